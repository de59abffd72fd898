"""Where one scenario is played: a namespace, a driver and names of its own.

Nothing but the scenario and the evictor touches what is here, so what the scheduler, the resource claim controller
and kubelets would write is written by the scenario: every state is exact, also those that last for moments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

from tests.apiserver.eviction.manifests import Makers
from tests.apiserver.eviction.scenario import GROUP, ITSELF, NOBODY, Claim, Due, Pod
from tests.apiserver.eviction.steps import Marked
from tests.apiserver.eviction.witness import Deletion, Witness
from tests.controlplane import versions
from tests.controlplane.client import Client, path
from tests.controlplane.processes import wait_until
from webhook.api.meta import format_time

Json = dict[str, Any]

VERSION: Final = f"{versions.GROUP}/v1"
RULES: Final = path(VERSION, "devicetaintrules")
SLICES: Final = path(VERSION, "resourceslices")
POLICIES: Final = path("admissionregistration.k8s.io/v1", "validatingadmissionpolicies")
BINDINGS: Final = path("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings")
SOON_SECONDS: Final = 60.0
"""The longest that an evictor may need for what is due, with forty other scenarios on the same machine."""
CONDITION: Final = "EvictionInProgress"
_POLL_SECONDS: Final = 0.25


def now() -> datetime:
    """Wall-clock time, by which pods are evicted."""
    return datetime.now(UTC)  # noqa: TID251 -- evictors go by it, too


class Bench:
    """One of them, on one control plane."""

    def __init__(self, client: Client, witness: Witness, name: str) -> None:
        self.client = client
        self.name = name
        self.make = Makers(name)
        self.uids: dict[str, str] = {}
        """Of pods, by what the scenario calls them."""
        self.added: dict[str, datetime] = {}
        """When each taint was, as the API server has it."""
        self.acted_at = now()
        """When something was done that may have made a pod due."""
        self.rules: dict[str, Json] = {}
        self._witness = witness
        self._pods: dict[str, Pod] = {}
        self._claims: dict[str, Claim] = {}
        self._refused = ""
        self._slices: set[str] = set()
        namespace = {"metadata": {"name": name, "labels": {"resource.kubernetes.io/admin-access": "true"}}}
        _ = client.create(path("v1", "namespaces"), namespace).object

    # --- pods ------------------------------------------------------------------------------------

    def admit(self, pod: Pod) -> None:
        """It comes, is given its node, claims and devices, and runs."""
        names = [claim.name or f"{pod.name}-{number}" for number, claim in enumerate(pod.claims)]
        claims = list(zip(names, pod.claims, strict=True))
        for name, claim in claims:
            if not claim.generated and not claim.extended:
                self._create_claim(name, claim, "")
        created = self.client.create(self._url("pods"), self.make.pod(pod, claims)).object
        uid = self.uids[pod.label] = created["metadata"]["uid"]
        self._pods[pod.label] = pod
        for name, claim in claims:
            if claim.generated or claim.extended:
                self._create_claim(name, claim, uid)
        status = self.make.pod_status(pod, claims)
        _ = self.client.patch(f"{self._url('pods', pod.name)}/status", {"status": status}).object
        for name, claim in claims:
            if claim.allocated:
                self.allocate(name, pod.label)
        self._acted()

    def bind(self, pod: str) -> None:
        """As the scheduler does it."""
        binding = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": self.make.node}}
        _ = self.client.create(f"{self._url('pods', pod)}/binding", binding).object
        self._acted()

    def tell_claims(self, pod: str) -> None:
        """As the resource claim controller does it."""
        claims = [(f"{pod}-{number}", claim) for number, claim in enumerate(self._pods[pod].claims)]
        told = [{"name": f"c{number}", "resourceClaimName": name} for number, (name, _) in enumerate(claims)]
        status = {"status": {"resourceClaimStatuses": told}}
        _ = self.client.patch(f"{self._url('pods', pod)}/status", status).object
        self._acted()

    def label_pod(self, pod: str) -> None:
        _ = self.client.patch(self._url("pods", pod), {"metadata": {"labels": {"seen": "true"}}}).object

    def delete(self, pod: str) -> None:
        _ = self.client.delete(self._url("pods", pod)).object

    def budget(self) -> None:
        url = path("policy/v1", "poddisruptionbudgets", namespace=self.name)
        spec = {"maxUnavailable": 0, "selector": {}}
        _ = self.client.create(url, {"metadata": {"name": "nobody"}, "spec": spec}).object

    # --- claims ----------------------------------------------------------------------------------

    def allocate(self, claim: str, pod: str) -> None:
        """As the scheduler does it; a claim that is allocated already is reserved for one more pod."""
        known = self._claims[claim]
        url = f"{self._url('resourceclaims', claim)}/status"
        have: list[Json] = self.client.get(self._url("resourceclaims", claim)).object["status"].get("reservedFor", [])
        consumers = [*have, *[each for each in self._consumers(known, pod) if each not in have]]
        status = {"allocation": self.make.allocation(claim, known), "reservedFor": consumers}
        _ = self.client.patch(url, {"status": status}).object
        self._acted()

    def deallocate(self, claim: str) -> None:
        self._patch_claim_status(claim, {"allocation": None, "reservedFor": None})

    def reserve(self, claim: str, pods: Sequence[str]) -> None:
        consumers = [each for pod in pods for each in self._consumers(Claim(), pod)]
        self._patch_claim_status(claim, {"reservedFor": consumers or None})

    def delete_claim(self, claim: str) -> None:
        _ = self.client.delete(self._url("resourceclaims", claim)).object

    def label_claim(self, claim: str) -> None:
        patch = {"metadata": {"labels": {"seen": "true"}}}
        _ = self.client.patch(self._url("resourceclaims", claim), patch).object

    def claim_anew(self, claim: str, pod: str, tolerates: tuple[str, ...]) -> None:
        del self._claims[claim]
        self._create_claim(claim, Claim(tolerates), "")
        self.allocate(claim, pod)

    def _patch_claim_status(self, claim: str, status: Json) -> None:
        _ = self.client.patch(f"{self._url('resourceclaims', claim)}/status", {"status": status}).object
        self._acted()

    def _create_claim(self, name: str, claim: Claim, pod_uid: str) -> None:
        if name in self._claims:
            return
        self._claims[name] = claim
        maker = {"": "", ITSELF: pod_uid, NOBODY: NOBODY, GROUP: GROUP}[claim.made_for if pod_uid else ""]
        _ = self.client.create(self._url("resourceclaims"), self.make.claim(name, claim, maker)).object

    def _consumers(self, claim: Claim, pod: str) -> list[Json]:
        first = [self.make.consumer(each) for each in claim.behind]
        if claim.reserved_for == GROUP:
            return [*first, {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": GROUP, "uid": GROUP}]
        uid = self.uids[pod] if claim.reserved_for == ITSELF else claim.reserved_for
        return [*first, {"resource": "pods", "name": self._pods[pod].name, "uid": uid}]

    # --- taints ----------------------------------------------------------------------------------

    def taint(
        self, name: str, effect: str, selects: Mapping[str, str] | None, key: str, value: str, ago: int | None
    ) -> None:
        taint = {"key": key, "effect": effect, **({"value": value} if value else {}), **_time_added(ago)}
        spec: Json = {"taint": taint}
        if selects is not None:
            spec["deviceSelector"] = self.make.selector(selects)
        rule = {"metadata": {"name": self.make.scoped(name)}, "spec": spec}
        self._know(name, self.client.create(RULES, rule).object)

    def change(self, name: str, taint: Mapping[str, str], selects: Mapping[str, str] | None) -> None:
        spec: Json = {"taint": dict(taint)} if taint else {}
        if selects is not None:
            spec["deviceSelector"] = self.make.selector(selects)
        self._know(name, self.client.patch(f"{RULES}/{self.make.scoped(name)}", {"spec": spec}).object)

    def untaint(self, name: str) -> None:
        del self.rules[name]
        _ = self.client.delete(f"{RULES}/{self.make.scoped(name)}").object
        self._acted()

    def _know(self, name: str, rule: Json) -> None:
        self.rules[name] = rule
        added = self.added[name] = datetime.fromisoformat(rule["spec"]["taint"]["timeAdded"])
        self.added[f"{name} {rule['metadata']['generation'] - 1}"] = added
        self._acted()

    def publish(self, name: str, generation: int, devices: Mapping[str, Sequence[Marked]]) -> None:
        """As a driver does it, who leaves times that it has given once as they are."""
        told = {}
        for device, marks in devices.items():
            told[device] = [
                {"key": mark.key, "effect": mark.effect}
                | ({"timeAdded": format_time(self.added[mark.name])} if mark.name in self.added else {})
                | ({} if mark.name in self.added else _time_added(mark.ago))
                for mark in marks
            ]
        wanted = self.make.slice(name, generation, told)
        url = f"{SLICES}/{self.make.scoped(name)}"
        if name in self._slices:
            stored = self.client.patch(url, {"spec": wanted["spec"]}).object
        else:
            stored = self.client.create(SLICES, wanted).object
        self._slices.add(name)
        for device, marks in zip(stored["spec"]["devices"], devices.values(), strict=True):
            for taint, mark in zip(device.get("taints", ()), marks, strict=True):
                self.added[mark.name] = datetime.fromisoformat(taint["timeAdded"])
        self._acted()

    def unpublish(self, name: str) -> None:
        self._slices.discard(name)
        _ = self.client.delete(f"{SLICES}/{self.make.scoped(name)}").object
        self._acted()

    # --- an API server that says no --------------------------------------------------------------

    def forbid(self) -> None:
        """Returns once it does: a pod of the test's own shows."""
        policy, binding = self.make.refusal()
        _ = self.client.create(POLICIES, policy).object
        _ = self.client.create(BINDINGS, binding).object
        pod = next(iter(self._pods.values())).name
        wait_until(lambda: not self.client.delete(self._url("pods", pod), dry_run=True).ok, "refused", every=0.2)

    def permit(self, refusals: int) -> None:
        """Returns once the evictor was refused so often, and will not be any more."""
        pod = next(iter(self._pods.values())).name

        def refused() -> bool:
            return len([each for each in self.deletions() if each.code >= 300]) >= refusals

        wait_until(refused, f"refused {refusals} times", seconds=SOON_SECONDS, every=_POLL_SECONDS)
        _ = self.client.delete(f"{BINDINGS}/{self.name}").object

        def permitted() -> bool:
            reply = self.client.delete(self._url("pods", pod), dry_run=True)
            return reply.ok or reply.code == HTTPStatus.NOT_FOUND  # the evictor was faster

        wait_until(permitted, "permitted", every=0.2)
        self._acted()

    # --- what comes of it ------------------------------------------------------------------------

    def deletions(self) -> list[Deletion]:
        """What the evictor has tried here."""
        return [each for each in self._witness.deletions() if each.pod[0] == self.name]

    def evicted(self) -> dict[str, Deletion]:
        """Who is gone, by what the scenario calls them."""
        evicted = self._witness.evicted()
        return {label: evicted[uid] for label, uid in self.uids.items() if uid in evicted}

    def due_at(self, due: Due) -> datetime:
        return self.added[due.taint] + timedelta(seconds=due.seconds)

    def wait_evicted(self, *pods: str, seconds: float = SOON_SECONDS) -> None:
        """Raises NotReadyError."""
        wait_until(
            lambda: self.evicted().keys() >= set(pods),
            f"evicted: {', '.join(pods)}",
            seconds=seconds,
            every=_POLL_SECONDS,
        )

    def wait_cancelled(self, *pods: str) -> None:
        """Raises NotReadyError."""
        uids = {self.uids[pod] for pod in pods}

        def cancelled() -> bool:
            return uids <= {each.uid for each in self._witness.told() if each.text == "Cancelling deletion"}

        wait_until(cancelled, f"cancelled: {', '.join(pods)}", seconds=SOON_SECONDS, every=_POLL_SECONDS)

    def condition(self, rule: str) -> str:
        """The in-tree condition of a rule as it is written now, as text; empty while it has none.

        Our own conditions, Eviction and Released, are additions that are not compared.
        """
        found = self.client.get(f"{RULES}/{self.make.scoped(rule)}").object
        for condition in found.get("status", {}).get("conditions", ()):
            current = condition.get("observedGeneration") == found["metadata"]["generation"]
            if condition["type"] == CONDITION and current:
                return f"{condition['status']} {condition['reason']}: {condition['message']}".removesuffix(": ")
        return ""

    def wait_condition(self, rule: str, text: str) -> None:
        """Raises NotReadyError. It says something new every ten seconds at most (E-37)."""
        seen = ""

        def said() -> bool:
            nonlocal seen
            seen = self.condition(rule)
            return seen == text

        try:
            wait_until(said, f"rule {rule} says {text!r}", seconds=SOON_SECONDS + 10, every=2 * _POLL_SECONDS)
        except Exception as e:
            e.add_note(f"it says {seen!r}")
            raise

    def wait_past(self, due: Due, seconds: float) -> None:
        """Time has to pass for what must not happen in it."""
        until = self.due_at(due) + timedelta(seconds=seconds)
        left = (until - now()).total_seconds()
        wait_until(lambda: now() >= until, f"{until}", seconds=max(left, 0) + SOON_SECONDS, every=_POLL_SECONDS)

    def _acted(self) -> None:
        self.acted_at = now()

    def _url(self, plural: str, name: str = "") -> str:
        return path("v1" if plural == "pods" else VERSION, plural, namespace=self.name, name=name)


def _time_added(ago: int | None) -> Json:
    return {} if ago is None else {"timeAdded": format_time(now() - timedelta(seconds=ago))}
