"""Component default-tolerations as files: one entry more, which waits for nobody longer than it must."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.manifests.installing import MANIFESTS, REGISTRATIONS, overlay_of, rendered
from tests.controlplane.assets import Assets
from tests.controlplane.registration import configurations

Json = dict[str, Any]

(_ADDED,) = yaml.safe_load((MANIFESTS / "components" / "default-tolerations" / "entry.yaml").read_text())
ENTRY: Final[Json] = _ADDED["value"]
(_, BASE) = configurations(MANIFESTS)
BASE_ENTRIES: Final = {entry["name"]: entry for entry in BASE["webhooks"]}
INJECT: Final = "cert-manager.io/inject-ca-from"


def test_it_is_asked_about_whatever_may_lack_tolerations() -> None:
    (rule,) = ENTRY["rules"]
    assert rule["resources"] == ["resourceclaims", "resourceclaimtemplates"]
    assert rule["operations"] == ["CREATE", "UPDATE"]
    assert [condition["name"] for condition in ENTRY["matchConditions"]] == ["not-being-deleted", "spec-differs"]


def test_all_else_is_as_for_templates_in_the_base() -> None:
    templates = BASE_ENTRIES["templates.mutate.devicetaint.io"]
    differing = {key for key in {*ENTRY, *templates} if ENTRY.get(key) != templates.get(key)}
    assert differing == {"name", "rules"}
    (rule,), (base_rule,) = ENTRY["rules"], templates["rules"]
    assert {**rule, "resources": []} == {**base_rule, "resources": []}


@pytest.mark.apiserver
@pytest.mark.parametrize("certificates", ["self-managed", "cert-manager"])
def test_the_entry_is_the_last_of_the_configuration_whose_ca_bundle_is_looked_after(
    assets: Assets, tmp_path: Path, certificates: str
) -> None:
    """With either way to certificates, in either order of the components."""
    ours, theirs = "components/default-tolerations", f"../certs/{certificates}"
    for number, components in enumerate(([ours, theirs], [theirs, ours])):
        documents = rendered(assets, overlay_of(tmp_path / str(number), components=components))
        found = {each["kind"]: each for each in documents if each["kind"] in REGISTRATIONS}
        mutating = found["MutatingWebhookConfiguration"]
        assert mutating["webhooks"] == [*BASE["webhooks"], ENTRY]
        assert {each["metadata"]["name"] for each in found.values()} == {"device-taint-webhook"}
        injected = {(each["metadata"]["annotations"]).get(INJECT) for each in found.values()}
        assert injected == {"device-taint-webhook/device-taint-webhook" if certificates == "cert-manager" else None}
