"""Pods, PodGroups and disruption budgets on the wire, and the part of them that an inventory holds.

Equal strings are one string, and equal labels are one value: a cluster has hundreds of thousands of pods.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any, Final

import msgspec

from webhook.api import pods
from webhook.api.decode import Reader
from webhook.api.meta import LabelSelector, parse_time
from webhook.api.pods import DisruptionBudget, Labels, Pod, PodClaim, PodGroup, decode_budget, decode_pod_group
from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.cache.listwatch import (
    REMEMBERED_ENTRIES,
    ObjectIdentity,
    OwnerReference,
    SharedLists,
    WholeWire,
    controller_of,
    object_meta,
    owner_of,
)
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.client.rest import ThrottledCluster

_NOTHING: Final = msgspec.Raw()
_label_pairs: Final[dict[tuple[str, str], tuple[str, str]]] = {}
"""Pods of one owner often differ in one label, so each label is shared, beside all labels of a pod."""
_REMEMBERED_MOST: Final = 10_000
"""Different labels in one namespace whose budgets are remembered."""


def _read_labels(value: Any) -> Labels:
    found = pods.to_labels(Reader({"labels": value}, []).text_map("labels"))
    if len(_label_pairs) >= REMEMBERED_ENTRIES:
        _label_pairs.clear()
    return tuple([_label_pairs.setdefault(label, label) for label in found])


_labels: Final = SharedLists(_read_labels)


class _PodAnnotations(msgspec.Struct, frozen=True, gc=False):
    mirror: str | msgspec.UnsetType | None = msgspec.field(name=pods.MIRROR, default=msgspec.UNSET)
    hold: str | None = msgspec.field(name=pods.HOLD, default=None)
    gang: str | None = msgspec.field(name=pods.GANG, default=None)


class _PodMeta(ObjectIdentity, frozen=True, gc=False, rename="camel"):
    annotations: _PodAnnotations = _PodAnnotations()
    owner_references: tuple[OwnerReference, ...] | None = None
    deletion_timestamp: str | None = None
    labels: msgspec.Raw = _NOTHING


class _PodClaim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """An entry of spec.resourceClaims or of status.resourceClaimStatuses."""

    name: str = ""
    resource_claim_name: str | None = None


class _SchedulingGroup(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    pod_group_name: str = ""


class _PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""
    resource_claims: tuple[_PodClaim, ...] | None = None
    scheduling_group: _SchedulingGroup = _SchedulingGroup()
    priority: int | None = None
    restart_policy: str = ""


class _ExtendedClaim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource_claim_name: str = ""


class _PodCondition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""
    resource_claim_statuses: tuple[_PodClaim, ...] | None = None
    extended_resource_claim_status: _ExtendedClaim | None = None
    conditions: tuple[_PodCondition, ...] | None = None


class PodWire(msgspec.Struct, frozen=True, gc=False):
    """The fields of a Pod that matter for evicting it."""

    metadata: _PodMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    def to_value(self) -> Pod:
        """As `api.pods.decode_pod` returns it, without annotations and generateName."""
        metadata, spec, status = self.metadata, self.spec, self.status
        extended = status.extended_resource_claim_status
        owner = owner_of(controller_of(metadata.owner_references))
        return Pod(
            meta=object_meta(metadata),
            node_name=intern(spec.node_name),
            claims=self._claims() if spec.resource_claims else (),
            extended_claim=extended.resource_claim_name if extended else "",
            pod_group=intern(spec.scheduling_group.pod_group_name),
            phase=intern(status.phase),
            deleting=metadata.deletion_timestamp is not None,
            priority=spec.priority or 0,
            owner=owner,
            mirror=metadata.annotations.mirror is not msgspec.UNSET,
            hold=metadata.annotations.hold,
            ready=any(each.type == pods.READY and each.status == "True" for each in status.conditions or ()),
            grace_ends=parse_time(metadata.deletion_timestamp or ""),
            labels=_labels.of(metadata.labels),
            gang=intern(metadata.annotations.gang or ""),
            completes=pods.will_complete(spec.restart_policy, owner),
        )

    def _claims(self) -> tuple[PodClaim, ...]:
        """The entries in order; a generated claim's name stands in the status."""
        generated = {each.name: each.resource_claim_name for each in self.status.resource_claim_statuses or ()}
        return tuple(
            [
                PodClaim(generated.get(each.name), generated=True)
                if each.resource_claim_name is None
                else PodClaim(each.resource_claim_name)
                for each in self.spec.resource_claims or ()
            ]
        )


class _PodGroupMeta(ObjectIdentity, frozen=True, gc=False, rename="camel"):
    owner_references: tuple[OwnerReference, ...] | None = None


class PodGroupWire(msgspec.Struct, frozen=True, gc=False):
    """A PodGroup of any version. There are few, and their disruption mode has two shapes."""

    metadata: _PodGroupMeta
    spec: dict[str, Any] | None = None

    def to_value(self) -> PodGroup:
        """As `api.pods.decode_pod_group` returns it, without annotations and generateName."""
        return msgspec.structs.replace(
            decode_pod_group(Reader({"spec": self.spec}, [])),
            meta=object_meta(self.metadata),
            owner=owner_of(controller_of(self.metadata.owner_references)),
        )


class _BudgetWire(WholeWire, frozen=True):
    def to_value(self) -> DisruptionBudget:
        """As `api.pods.decode_budget` returns it."""
        return decode_budget(self.reader)


class DisruptionBudgetCache:
    """Which budgets select a pod, by its labels."""

    def __init__(
        self,
        cluster: ThrottledCluster,
        on_selectors: Callable[[str, str], None] = lambda *_: None,
        on_status: Callable[[str, str], None] = lambda *_: None,
        *,
        random: Callable[[], float],
    ) -> None:
        """`on_selectors` is called with a namespace where other pods than before may need a disruption of a budget.

        Its second argument is the budget that now lets pods go that are not ready, or empty for any other change.
        `on_status` is called with the namespace and the name of a budget that may allow more or less.
        """
        collection = FixedCollection("policy", "v1", "poddisruptionbudgets")
        self.reflector = Reflector[DisruptionBudget](cluster, collection, _BudgetWire, random=random)
        self.reflector.subscribe(self._changed)
        self._on_selectors = on_selectors
        self._on_status = on_status
        self._selectors: dict[str, dict[str, LabelSelector | None]] = {}
        """By namespace and name; None selects nothing, an empty selector everything (policy/v1)."""
        self._selecting: dict[str, dict[Labels, tuple[str, ...]]] = {}
        """The budgets of pods with these labels, by namespace."""

    def select(self, pod: Pod) -> tuple[DisruptionBudget, ...]:
        """The budgets that select the pod, by name."""
        namespace = pod.meta.namespace
        selectors = self._selectors.get(namespace)
        if not selectors:
            return ()
        known = self._selecting.setdefault(namespace, {})
        found = known.get(pod.labels)
        if found is None:
            if len(known) >= _REMEMBERED_MOST:
                known.clear()
            labels = dict(pod.labels)
            found = known[pod.labels] = tuple(
                sorted(name for name, each in selectors.items() if each is not None and each.matches(labels))
            )
        return tuple([self.reflector.items[f"{namespace}/{name}"] for name in found])

    def find(self, namespace: str, name: str) -> DisruptionBudget | None:
        """The budget of that name, if there is one."""
        return self.reflector.items.get(f"{namespace}/{name}")

    def _changed(self, old: DisruptionBudget | None, new: DisruptionBudget | None) -> None:
        either = new or old
        assert either is not None
        meta = either.meta
        if old is None or new is None or old.selector != new.selector:
            self._select_again(meta.namespace, meta.name, new)
        elif new.frees_unready and not old.frees_unready:
            self._on_selectors(meta.namespace, meta.name)
        if new is not None and (old is None or old.allowed != new.allowed):
            self._on_status(meta.namespace, meta.name)

    def _select_again(self, namespace: str, name: str, budget: DisruptionBudget | None) -> None:
        """A budget was created, deleted, or selects other pods."""
        named = self._selectors.setdefault(namespace, {})
        if budget is None:
            named.pop(name, None)
            if not named:
                del self._selectors[namespace]
        else:
            named[name] = budget.selector
        self._selecting.pop(namespace, None)
        self._on_selectors(namespace, "")
