"""What `explain` knows of a cluster, from a dump or live: objects, policy, and what could not be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from webhook.admission.audit import explained_at_rest
from webhook.admission.context import AdmissionContext
from webhook.commands.shared.entries import meta, text
from webhook.commands.status.run import NOT_SERVED, ClusterLook
from webhook.files.dump import Dump
from webhook.files.read import Manifest
from webhook.files.spots import NOWHERE
from webhook.policy.decide import Judge
from webhook.policy.ports import KnownNames

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from webhook.admission.audit import Author
    from webhook.admission.explanation import Explanation
    from webhook.api.meta import NamespacedName
    from webhook.commands.status.from_cluster import ClusterFacts
    from webhook.commands.status.objects import StatusObjects
    from webhook.commands.status.views import StatusSettings
    from webhook.files.report import Row

_CONSEQUENCES: Final = {
    "DeviceTaintRule": "taints by DeviceTaintRules, and so whether a pod is evicted for one",
    "ResourceSlice": "which devices are published, taints in slices, and shared hardware",
    "ResourceClaim": "which pod uses which device, and what its claim tolerates",
    "Pod": "the state of pods",
    "Namespace": "labels and holds of namespaces",
    "PodDisruptionBudget": "whether a disruption budget blocks an eviction",
    "PodGroup": "which pods go together",
    "DeviceClass": "the drivers behind device classes, which rules of the policy may ask for",
}
"""What is unknown without a kind."""


@dataclass(slots=True)
class ExplainFacts:
    """The facts of one moment. `unknown` names in words what is not known, and why."""

    source: str
    server: str | None
    namespace: str
    objects: StatusObjects
    settings: StatusSettings
    names: KnownNames
    claims: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """As they are served, by `namespace/name`."""
    pods: set[str] = field(default_factory=set)
    """All pods, by `namespace/name`; the inventory holds those that use claims."""
    missing: frozenset[str] = frozenset()
    partial: frozenset[str] = frozenset()
    """Kinds of which only the objects of `namespace` are known."""
    policy_known: bool = True
    unknown: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    failed: bool = False

    def ruling(self, claim: str) -> tuple[Author, Explanation] | None:
        """What the policy says today of a claim by `namespace/name`; None if the policy or the claim is not known."""
        value = self.claims.get(claim)
        if value is None or not self.policy_known:
            return None
        context = AdmissionContext(now=self.settings.now, judge=Judge(self.settings.policy), names=self.names)
        return explained_at_rest(value, context)


class ExplainLook(ClusterLook):
    """Reads also claims as they are served, and the drivers behind classes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.claims: dict[str, dict[str, Any]] = {}
        self.beside = Dump()
        self.pods: set[str] = set()
        self.partial: frozenset[str] = frozenset()
        self.unknown: list[str] = []
        self.within = options.namespace or ""
        self.namespace = self.within or "default"
        self.policy_known = True
        super().__init__(options)

    def take(self, value: Any) -> None:
        """Keeps claims as they stand, and what names mean."""
        kind = text(value, "kind") if isinstance(value, dict) else ""
        about = meta(value)
        key = f"{text(about, 'namespace')}/{text(about, 'name')}"
        if kind == "ResourceClaim":
            self.claims[key] = value
        elif kind == "Pod":
            self.pods.add(key)
        elif kind in {"DeviceClass", "Namespace"}:
            self.beside.add([Manifest("", 1, value, NOWHERE)])

    def tell_missing(self) -> None:
        """Says what is unknown without the kinds that a dump has no object of."""
        absent = [kind for kind in _CONSEQUENCES if kind in self.missing]
        self.unknown += [f"{_CONSEQUENCES[kind]}: the dump has no {kind}" for kind in absent]

    def tell_refused(self, found: ClusterFacts, config_map: NamespacedName) -> None:
        """Says what is unknown without what could not be read."""
        self.namespace, self.partial = found.namespace, frozenset(found.partial)
        if not found.rules_served:
            self.unknown.append(f"{_CONSEQUENCES['DeviceTaintRule']}: {NOT_SERVED}")
        for each, error in found.refused.items():
            why = f"no permission to read {each.name}"
            if each.kind in self.partial and each.kind == "Namespace":
                why = f"only namespace {found.namespace} is known"
            elif each.kind in self.partial:
                why = f"only those of namespace {found.namespace} are known"
            self.unknown.append(f"{_CONSEQUENCES[each.kind]}: {why}: {error}")
        if found.policy_refused:
            self.policy_known = False
            why = f"no permission to read the ConfigMap {config_map}: {found.policy_refused}"
            self.unknown.append(f"what the policy says, and its limits, for which the built-in ones are shown: {why}")


def facts_of(options: argparse.Namespace) -> ExplainFacts:
    """Reads everything once. Raises ClusterUnreachable."""
    found = ExplainLook(options)
    found.unknown += found.notes
    if found.failed:
        found.unknown.append("everything that depends on what could not be read: see the errors")
    return ExplainFacts(
        source="dump" if options.dump else "cluster",
        server=found.server,
        namespace=found.namespace,
        objects=found.objects,
        settings=found.settings(options),
        names=KnownNames(found.beside.namespaces, found.beside.device_classes),
        claims=found.claims,
        pods=found.pods,
        missing=found.missing,
        partial=found.partial,
        policy_known=found.policy_known or options.policy is not None,
        unknown=found.unknown,
        rows=found.rows,
        failed=found.failed,
    )
