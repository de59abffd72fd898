"""What our server may do in a cluster is what it does: no verb is missing, and none is there for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
import yaml

from tests.apiserver.policy.stage import ACCOUNT, KEY_SECRET, RestartablePlane, make_policy
from tests.apiserver.registration.samples import MANIFESTS
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP, rule_versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.apiserver.policy.stage import Stage

pytestmark = pytest.mark.apiserver

Json = dict[str, Any]


class Access(NamedTuple):
    """One verb on one resource; the name is empty where the role gives all of them."""

    group: str
    resource: str
    verb: str
    name: str = ""


GRANTED: Final = {
    Access(group, resource, verb, name)
    for document in yaml.safe_load_all((MANIFESTS / "base" / "access.yaml").read_text())
    for rule in document.get("rules", [])
    for group in rule["apiGroups"]
    for resource in rule["resources"]
    for verb in rule["verbs"]
    for name in rule.get("resourceNames", [""])
}
_NAMED: Final = {access.resource for access in GRANTED if access.name}
_STRANGE: Final = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "strange", "namespace": "nowhere"},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "r",
                    "exactly": {
                        "deviceClassName": "missing.example.com",
                        "tolerations": [{"key": "some.example.com/key", "operator": "Exists", "effect": "NoExecute"}],
                    },
                }
            ]
        }
    },
}
_LOOKS_AT_NAMES: Final = make_policy(
    rules=[
        {
            "name": "by-names",
            "action": "deny",
            "match": {"namespaces": {"labels": {"tier": "production"}}, "drivers": ["gpu.example.com"]},
        }
    ]
)


@pytest.fixture
def with_rules(small: Stage) -> Iterator[Stage]:
    """The small control plane while it serves rules: what is not served is not asked for either."""
    plane = small.plane
    assert isinstance(plane, RestartablePlane)
    rules = [f"{GROUP}/{version}/devicetaintrules" for version in rule_versions(plane.server_version)]
    plane.serve(dict.fromkeys(rules, True))
    yield small
    plane.serve(dict.fromkeys(rules, False))


@pytest.fixture
def whole_life(with_rules: Stage) -> Iterator[list[Json]]:
    """What our server asked for from its first start, over names it does not know, to a policy that is broken."""
    small = with_rules
    small.client.patch(KEY_SECRET, {"data": None})
    earlier = sum(1 for _ in small.plane.audit_events())
    small.start_webhook()
    try:
        small.use(_LOOKS_AT_NAMES)
        assert not small.ask(_STRANGE)["allowed"]
        assert small.write_policy("kind: Something").ok  # nobody is registered to refuse it
        wait_until(lambda: bool(small.policy_events()), "an Event about the policy")
        wait_until(lambda: small.metric("inventory_synced") == {"": 1.0}, "the inventory")
        events = list(small.plane.audit_events())[earlier:]
    finally:
        small.stop_webhook()
    yield [event for event in events if event["user"]["username"] == ACCOUNT]
    small.use_nothing()


def _asked_for(events: Iterable[Json]) -> set[Access]:
    asked = set()
    for event in events:
        about = event["objectRef"]
        name = about.get("name", "") if about["resource"] in _NAMED else ""
        asked.add(Access(about.get("apiGroup", ""), about["resource"], event["verb"], name))
    return asked


def test_what_the_manifests_grant_is_what_is_asked_for(whole_life: list[Json]) -> None:
    assert [event["requestURI"] for event in whole_life if event["responseStatus"]["code"] == 403] == []
    assert _asked_for(event for event in whole_life if "objectRef" in event) == GRANTED
