"""What `explain` knows of a cluster, from a dump or live: objects, policy, and what could not be read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from webhook.admission.audit import explained_at_rest
from webhook.admission.context import AdmissionContext
from webhook.commands.shared.entries import meta, text
from webhook.commands.shared.flags import credentials_of
from webhook.commands.shared.main import reading_cluster
from webhook.commands.status.run import ClusterLook
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
    from webhook.commands.status.views import StatusSettings
    from webhook.commands.status.waits import StatusObjects
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

    def __init__(self, options: argparse.Namespace, namespace: str | None) -> None:
        self.claims: dict[str, dict[str, Any]] = {}
        self.beside = Dump()
        self.pods: set[str] = set()
        self.partial: frozenset[str] = frozenset()
        self.unknown: list[str] = []
        self.namespace = namespace or "default"
        self.policy_known = True
        self._asked = namespace
        super().__init__(options)
        if options.dump:
            absent = [kind for kind in _CONSEQUENCES if kind in self.missing]
            self.unknown += [f"{_CONSEQUENCES[kind]}: the dump has no {kind}" for kind in absent]

    def take(self, manifest: Manifest) -> None:
        """Keeps claims as they stand, and what names mean."""
        self.beside.add([manifest])
        value = manifest.value
        kind = text(value, "kind") if isinstance(value, dict) else ""
        about = meta(value)
        key = f"{text(about, 'namespace')}/{text(about, 'name')}"
        if kind == "ResourceClaim":
            self.claims[key] = value
        elif kind == "Pod":
            self.pods.add(key)

    def read_cluster(self, options: argparse.Namespace) -> None:
        """As much as the caller may read. Raises ClusterUnreachable."""
        # Late: see commands/shared/main.py.
        from webhook.commands.explain.from_cluster import facts_of_cluster, namespace_of  # noqa: PLC0415

        config_map = None if options.policy is not None else options.policy_configmap
        with reading_cluster():
            credentials = credentials_of(options)
            self.namespace = self._asked or namespace_of(credentials) or "default"
            found = asyncio.run(facts_of_cluster(credentials, config_map, self.namespace))
        self.objects, self.server = found.objects, found.server
        self.pods = found.pods
        self.missing, self.partial = frozenset(found.missing), frozenset(found.partial)
        for number, value in enumerate(found.raw, 1):
            self.take(Manifest(found.server, number, value, NOWHERE))
        for kind, why in found.refused:
            self.unknown.append(f"{_CONSEQUENCES[kind]}: {why}")
        if found.policy_refused:
            self.policy_known = False
            self.unknown.append(
                f"what the policy says, and its limits, for which the built-in ones are shown: {found.policy_refused}"
            )
        if found.policy is not None:
            self.use(found.policy)


def facts_of(options: argparse.Namespace) -> ExplainFacts:
    """Reads everything once. Raises ClusterUnreachable."""
    found = ExplainLook(options, options.namespace)
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
