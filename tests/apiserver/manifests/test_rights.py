"""What the manifests grant is what the programs do: no right is missing, and none is there for nothing.

Each program runs as its own ServiceAccount, with a token as a pod gets one, in an API server that authorizes by RBAC
and has no roles but its own and ours. What each token was used for stands in the audit log.
"""

from __future__ import annotations

import copy
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
import yaml

from tests.apiserver.accounts import Token, asked_for, grant, refused, rights_of
from tests.apiserver.evicting import RULES, EvictProcess, Ward
from tests.apiserver.guard.replicas import wait_synced
from tests.apiserver.manifests.installing import (
    OWN_NAMESPACE,
    REGISTRATIONS,
    WAYS,
    Json,
    installation,
    remove,
    url,
)
from tests.apiserver.objects import claim_of
from tests.apiserver.planes import own_plane
from tests.builders import make_review
from tests.controlplane import versions
from tests.controlplane.assets import Assets
from tests.controlplane.client import Client, path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from tests.controlplane.registration import default_probes
from tests.controlplane.webhook_process import WebhookProcess

SERVE: Final = "device-taint-webhook"
EVICT: Final = "device-taint-webhook-evict"
SERVED: Final = "default-tolerations"
"""One with every entry; it makes its own certificates."""
MODES: Final = ("observe", "delegated", "replacement")
"""The one that may least comes first: roles are only added."""
POLICY: Final = path("v1", "configmaps", namespace=OWN_NAMESPACE, name="device-taint-webhook-policy")
LEASE: Final = path("coordination.k8s.io/v1", "leases", namespace=OWN_NAMESPACE, name=EVICT)
AUDITED: Final = {"resourceclaimtemplates", "resourceclaims", "deviceclasses"}
NO_OCCASION: Final = {
    ("", "pods", "get"),  # of a pod whose eviction got no response
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", "get"),  # for doctor, in the pod
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "get"),
    ("scheduling.k8s.io", "podgroups", "list"),  # PodGroups are not served unless a gate is on
    ("scheduling.k8s.io", "podgroups", "watch"),
    ("devicetaint.io", "resourceslicepatches", "list"),  # served only with component patches
    ("devicetaint.io", "resourceslicepatches", "watch"),
}
"""Rights that are put to use elsewhere."""
LOOKS_AT_NAMES: Final = """
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
rules:
- name: by-names
  action: deny
  match: {namespaces: {labels: {tier: production}}, drivers: [gpu.example.com]}
impact:
  limits:
  - {action: soften}
"""
"""And at the lease of the eviction worker, as it softens."""
GENTLE_THEN_NOT: Final = """
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
inTreeEvictor: absent
eviction:
- {rate: 10000, burst: 100000, perOwnerUnavailable: 1, deadline: 1s, afterDeadline: delete}
"""


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    with own_plane(request, audit=True) as plane:
        yield plane


def _install(plane: ControlPlane, way: str, account: str) -> None:
    """What accounts need of a way to install, and nothing that would act."""
    grant(plane, installation(plane.assets, way), account)


def _write_policy(plane: ControlPlane, text: str) -> None:
    name = POLICY.rpartition("/")[2]
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": OWN_NAMESPACE}}
    _ = plane.client.apply(POLICY, config_map | {"data": {"policy.yaml": text}}, field_manager="test-policy").object


def _compare(plane: ControlPlane, way: str, token: Token) -> None:
    """Each request within the rights of its account, and each right put to use."""
    granted = rights_of(installation(plane.assets, way), token.account)
    events = token.events()
    asked = asked_for(events)
    assert refused(events) == []
    assert {each for each in asked if not any(right.covers(each) for right in granted)} == set(), "by whose grace?"
    needed = {right for right in granted if (right.group, right.resource, right.verb) not in NO_OCCASION}
    assert {right for right in needed if not any(right.covers(each) for each in asked)} == set(), "what for?"


# --- serve ------------------------------------------------------------------------------------------


class Server:
    """`serve` with certificates of its own, called by the API server."""

    def __init__(self, plane: ControlPlane, token: Token, *arguments: str) -> None:
        self._plane = plane
        self._registrations = [each for each in installation(plane.assets, SERVED) if each["kind"] in REGISTRATIONS]
        for each in self._registrations:
            _ = plane.client.create(url(each).rpartition("/")[0], each).object
        self.process = WebhookProcess(
            f"--kubeconfig={token.kubeconfig}",
            "--certificate-names=127.0.0.1",
            *arguments,
            standalone=False,
            self_managed=True,
        )

    def bundles(self) -> dict[str, str]:
        """The caBundle of each entry."""
        stored = [self._plane.client.get(url(each)).object for each in self._registrations]
        return {
            entry["name"]: entry["clientConfig"].get("caBundle", "") for each in stored for entry in each["webhooks"]
        }

    def call_it(self) -> None:
        """Leads the entries to the process instead of a Service, and waits until the API server has got there."""
        for each in self._registrations:
            wait_until(lambda each=each: self._lead_here(url(each)), "every entry leads here")  # type: ignore[misc]
        probes = default_probes(self._plane)
        wait_until(
            lambda: all(self._plane.client.create(*probe, dry_run=True).ok for probe in probes), "probes are answered"
        )

    def _lead_here(self, registration: str) -> bool:
        """False where the process has written in between."""
        stored = copy.deepcopy(self._plane.client.get(registration).object)
        for entry in stored["webhooks"]:
            config = entry["clientConfig"]
            config["url"] = self.process.base_url + config.pop("service")["path"]
        return self._plane.client.replace(registration, stored).ok

    def ask(self, obj: Json) -> Json:
        """An answer to a review of ours, about names that no watch has told of."""
        authority = ssl.create_default_context()
        authority.check_hostname, authority.verify_mode = False, ssl.CERT_NONE
        client = Client(self.process.base_url, authority)
        try:
            response: Json = client.request("POST", "/validate", make_review(obj)).object["response"]
        finally:
            client.close()
        return response

    def loaded(self) -> bool:
        """Whether the policy last written is in use."""
        return "device_taint_webhook_policy_load_success 1.0" in self.process.metrics()

    def remove(self) -> None:
        """Nobody is asked any more."""
        for each in self._registrations:
            self._plane.client.delete(url(each))


def _strange_claim() -> Json:
    toleration = {"key": "some.example.com/key", "operator": "Exists", "effect": "NoExecute"}
    return claim_of("missing.example.com", toleration, name="strange", namespace="nowhere")


def test_serve_may_do_what_it_does_and_nothing_else(cluster: ControlPlane) -> None:
    """From its first start with an empty key and no CA, over unknown names, to a policy that is broken."""
    _install(cluster, SERVED, SERVE)
    token = Token(cluster, SERVE)
    server = Server(cluster, token)
    try:
        with server.process:
            assert "default-tolerations.mutate.devicetaint.io" in server.bundles()
            wait_until(lambda: all(server.bundles().values()), "caBundle in every entry")
            assert len(set(server.bundles().values())) == 1, "they trust the same CA"
            _write_policy(cluster, LOOKS_AT_NAMES)
            server.call_it()
            wait_until(lambda: not server.ask(_strange_claim())["allowed"], "the policy is in use")
            wait_until(
                lambda: any("/leases/" in each["requestURI"] for each in token.events()), "the lease is looked at"
            )
            wait_synced(server.process)
            server.remove()  # it would refuse what comes now
            wait_until(lambda: _create_probe(cluster), "nobody is asked")
            _write_policy(cluster, "kind: Something")
            wait_until(lambda: not server.loaded(), "the policy is looked at")
            wait_until(lambda: _policy_told_of(cluster), "an Event about it")
    finally:
        server.remove()
    _compare(cluster, SERVED, token)


@pytest.mark.parametrize(
    ("component", "flag", "followed"),
    [
        ("watch-pods", "--watch-pods", ("pods", "podgroups")),
        ("patches", "--watch-patches", ("resourceslicepatches",)),
    ],
)
def test_serve_follows_pods_and_patches_with_what_their_components_grant(
    cluster: ControlPlane, component: str, flag: str, followed: tuple[str, ...]
) -> None:
    documents = installation(cluster.assets, SERVED, f"components/{component}")
    definitions = [each for each in documents if each["kind"] == "CustomResourceDefinition"]
    if definitions:
        done = cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(definitions))
        assert done.code == 0, done
    grant(cluster, documents, SERVE)
    token = Token(cluster, SERVE)
    server = Server(cluster, token, flag)
    try:
        with server.process:
            wait_until(lambda: (followed[0], "watch") in _verbs(token), f"{followed[0]} are followed")
            wait_synced(server.process)
    finally:
        server.remove()
        remove(cluster, definitions)
    assert refused(token.events()) == []
    added = rights_of(documents, SERVE) - rights_of(installation(cluster.assets, SERVED), SERVE)
    assert {(right.resource, right.verb) for right in added} == {
        (resource, verb) for resource in followed for verb in ("list", "watch")
    }
    tried = {right for right in added if right.resource != "podgroups"}  # not served unless a gate is on
    assert {right for right in tried if not any(right.covers(each) for each in asked_for(token.events()))} == set()


def _verbs(token: Token) -> set[tuple[str, str]]:
    return {(right.resource, right.verb) for right in asked_for(token.events())}


def _create_probe(plane: ControlPlane) -> bool:
    """A policy that would be refused."""
    config_map = {"metadata": {"name": "device-taint-webhook-policy"}, "data": {"policy.yaml": "kind: Something"}}
    return plane.client.patch(POLICY, config_map, dry_run=True).ok


def _policy_told_of(plane: ControlPlane) -> bool:
    events = plane.client.get(path("events.k8s.io/v1", "events", namespace=OWN_NAMESPACE)).items
    return any(each["regarding"]["name"] == "device-taint-webhook-policy" for each in events)


# --- evict ------------------------------------------------------------------------------------------


class Patients(Ward):
    """Three pods with devices: one that may go, one whose disruption budget says no, and one that is held."""

    mode: str

    def fill(self, mode: str) -> None:
        """Admits them, for a worker in this mode."""
        self.mode = mode
        budgets = path("policy/v1", "poddisruptionbudgets", namespace=self.name)
        selector = {"matchLabels": {"app": "guarded"}}
        _ = self.client.create(
            budgets, {"metadata": {"name": "guard"}, "spec": {"minAvailable": 1, "selector": selector}}
        ).object
        said_no = {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        _ = self.client.patch(f"{budgets}/guard/status", {"status": {**said_no, "disruptionsAllowed": 0}}).object
        for name in ("free", "guarded", "held"):
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
            hold = {"devicetaint.io/hold": "not now"} if name == "held" else {}
            self.admit(name, labels={"app": name}, ownerReferences=[owner], annotations=hold)

    def taint_all(self) -> str:
        """As the mode wants it."""
        if self.mode == "delegated":
            return self.taint("NoSchedule", annotations={"devicetaint.io/evict": "true"})
        return self.taint("NoExecute")

    def taint_for(self, seconds: float) -> str:
        """A rule for nobody, which expires."""
        end = datetime.now(UTC) + timedelta(seconds=seconds)  # noqa: TID251 -- the worker has the same clock
        return self.taint(
            "NoSchedule", device="none", annotations={"devicetaint.io/expires-at": f"{end:%Y-%m-%dT%H:%M:%SZ}"}
        )

    def effect_of(self, rule: str) -> str:
        """Empty if the rule is gone."""
        reply = self.client.get(f"{RULES}/{rule}")
        return str(reply.object["spec"]["taint"]["effect"]) if reply.ok else ""

    def told(self) -> set[tuple[str, str]]:
        """(pod, reason) of the Events."""
        return {(pod, reason) for pod, reason, _ in self.events()}


@pytest.fixture
def with_status(cluster: ControlPlane) -> ControlPlane:
    """For `evict`, whose rules have v1 and a status here."""
    if versions.minor(cluster.server_version) < 37:
        pytest.skip("rules have another version, or no status")
    return cluster


def _worker(plane: ControlPlane, mode: str, token: Token, *arguments: str) -> EvictProcess:
    return EvictProcess(plane, mode, "--leader-elect", *arguments, policy=None, kubeconfig=token.kubeconfig)


def _resources(token: Token) -> set[str]:
    return {right.resource for right in asked_for(token.events())}


@pytest.mark.parametrize("mode", ["replacement", *(pytest.param(each, marks=pytest.mark.whole) for each in MODES[:2])])
def test_evict_may_do_what_it_does_and_nothing_else(with_status: ControlPlane, mode: str) -> None:
    """Canary, lease, plans, evictions, holds, DELETE after the deadline of a budget, expiry, conditions and Events."""
    way = f"evict-{mode}"
    _install(with_status, way, EVICT)
    _write_policy(with_status, GENTLE_THEN_NOT)
    with_status.client.delete(LEASE)
    token = Token(with_status, EVICT)
    with Patients(with_status.client) as ward, _worker(with_status, mode, token) as process:
        ward.fill(mode)
        process.wait_working()
        rule, brief = ward.taint_all(), ward.taint_for(2)
        if mode == "observe":
            wait_until(lambda: ward.condition(rule).get("reason") == "ObserveOnly", "what would be")
            wait_until(lambda: ("free", "EvictionScheduled") in ward.told(), "told")
        else:
            wait_until(lambda: ward.present() == {"held"}, "all but one are gone")
            wait_until(lambda: ward.effect_of(brief) == "None", "the rule for a while is over")
            wait_until(lambda: ward.condition(rule).get("status") == "True", "it is going on")
            evicted = "DeviceTaintManagerEviction" if mode == "replacement" else "Evicted"
            wanted = {("free", evicted), ("guarded", "EvictionBlocked"), ("guarded", evicted), ("held", "EvictionHeld")}
            wait_until(lambda: wanted <= ward.told(), "told")
        wait_until(lambda: _resources(token) >= AUDITED, "a periodic audit", every=0.5)
        assert process.process.stop() == 0
        assert with_status.client.get(LEASE).object["spec"].get("holderIdentity", "") == ""
    _compare(with_status, way, token)


@pytest.mark.whole
def test_expired_rules_are_deleted_with_no_other_right(with_status: ControlPlane) -> None:
    """--delete-expired is a flag that an installer may add, and not another way to install."""
    _install(with_status, "evict-delegated", EVICT)
    token = Token(with_status, EVICT)
    with (
        Patients(with_status.client) as ward,
        _worker(with_status, "delegated", token, *("--delete-expired", "--in-tree=absent")) as process,
    ):
        process.wait_working()
        brief = ward.taint_for(1)
        wait_until(lambda: ward.effect_of(brief) == "", "the rule for a while is gone")
    assert refused(token.events()) == []


# --- every way to install ---------------------------------------------------------------------------


@pytest.mark.whole
def test_no_way_to_install_grants_anything_that_was_not_tried_above(assets: Assets) -> None:
    """To `serve` what component self-managed needs, or that less; to `evict` what its mode needs."""
    all_documents = {way: installation(assets, way) for way in WAYS}
    tried = rights_of(all_documents[SERVED], SERVE)
    hooks = {right for right in tried if "webhookconfigurations" in right.resource and right.verb == "patch"}
    certificates = hooks | {right for right in tried if "-ca" in right.name}
    assert len(certificates) == 4
    for way, documents in all_documents.items():
        own = any(each["metadata"]["name"] == f"{SERVE}-certificates" for each in documents)
        granted = {right for right in rights_of(documents, SERVE) if right.resource != "resourceslicepatches"}
        assert granted == (tried if own else tried - certificates), way
    observing, acting = (rights_of(all_documents[f"evict-{mode}"], EVICT) for mode in ("observe", "delegated"))
    for way, documents in all_documents.items():
        found = rights_of(documents, EVICT)
        if found:
            assert found == (observing if way == "evict-observe" else acting), way
