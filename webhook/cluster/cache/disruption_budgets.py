"""Which pods have a disruption budget: the selectors are kept by a watch, labels of pods are read when they matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.api.selectors import LabelRequirement, LabelSelector
from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.cache.listwatch import METADATA
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.cache.wire import Meta, ObjectIdentity
from webhook.cluster.client.answers import decode
from webhook.cluster.client.errors import ClusterError
from webhook.cluster.client.rest import path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.api.pods import Pod
    from webhook.cluster.client.throttled import ThrottledCluster

_REMEMBERED_MOST: Final = 10_000


class _Requirement(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class _LabelSelector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Requirement] | None = None

    def to_value(self) -> LabelSelector:
        exact = [LabelRequirement(key, "In", (value,)) for key, value in (self.match_labels or {}).items()]
        others = [LabelRequirement(each.key, each.operator, each.values or ()) for each in self.match_expressions or ()]
        return LabelSelector((*exact, *others))


class _BudgetSpec(msgspec.Struct, frozen=True, gc=False):
    selector: _LabelSelector | None = None


class _Budget(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectIdentity
    spec: _BudgetSpec = _BudgetSpec()

    @property
    def meta(self) -> ObjectIdentity:
        return self.metadata

    def to_value(self) -> _Budget:
        return self


class _Labeled(msgspec.Struct, frozen=True):
    metadata: Meta


_LABELED: Final = msgspec.json.Decoder(_Labeled)


class DisruptionBudgetCache:
    """Which pods have a disruption budget. Pods of one owner have the same labels, so they are read of one of them."""

    def __init__(self, cluster: ThrottledCluster, *, random: Callable[[], float]) -> None:
        self._cluster = cluster
        collection = FixedCollection("policy", "v1", "poddisruptionbudgets")
        self.reflector = Reflector[_Budget](cluster, collection, _Budget, random=random)
        self.reflector.subscribe(self._changed)
        self._selectors: dict[str, dict[str, LabelSelector | None]] = {}
        """By namespace and name; None selects nothing, an empty selector everything (policy/v1)."""
        self._labels: dict[str, Mapping[str, str]] = {}
        """Of pods, by the uid of their owner."""

    async def covers(self, pod: Pod) -> bool:
        """Whether one selects the pod; false if its labels cannot be read: then the owner's limit holds."""
        known = self.known(pod)
        if known is not None:
            return known
        await self._fetch_labels(pod)
        return self.known(pod) or False

    def known(self, pod: Pod) -> bool | None:
        """Whether one selects the pod; None while its labels make a difference and are not known."""
        selectors = self._selectors.get(pod.meta.namespace)
        if not selectors:
            return False
        labels = self._labels.get(_owner_of(pod))
        if labels is None:
            return None
        return any(selector is not None and selector.matches(labels) for selector in selectors.values())

    async def _fetch_labels(self, pod: Pod) -> None:
        path = path_of("", "v1", "pods", namespace=pod.meta.namespace, name=pod.meta.name)
        try:
            answer = await self._cluster.get(path, accept=METADATA)
            labels = decode(_LABELED, answer).metadata.labels
        except (ClusterError, msgspec.DecodeError):
            return
        if len(self._labels) >= _REMEMBERED_MOST:
            self._labels.clear()
        self._labels[_owner_of(pod)] = labels or {}

    def _changed(self, old: _Budget | None, new: _Budget | None) -> None:
        either = new or old
        assert either is not None
        meta = either.metadata
        named = self._selectors.setdefault(meta.namespace, {})
        if new is None:
            named.pop(meta.name, None)
            if not named:
                del self._selectors[meta.namespace]
        else:
            named[meta.name] = None if new.spec.selector is None else new.spec.selector.to_value()


def _owner_of(pod: Pod) -> str:
    """The same for pods that have the same labels."""
    return pod.owner.uid if pod.owner is not None else pod.meta.uid
