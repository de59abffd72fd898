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


class _BudgetMeta(ObjectIdentity, frozen=True, gc=False, rename="camel"):
    generation: int | None = None


class _BudgetSpec(msgspec.Struct, frozen=True, gc=False):
    selector: _LabelSelector | None = None


class _BudgetStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    observed_generation: int | None = None
    disruptions_allowed: int | None = None


class _Budget(msgspec.Struct, frozen=True, gc=False):
    metadata: _BudgetMeta
    spec: _BudgetSpec = _BudgetSpec()
    status: _BudgetStatus = _BudgetStatus()

    @property
    def allowed(self) -> int | None:
        """As the Eviction API reads the status: only that of the newest generation counts."""
        if (self.status.observed_generation or 0) < (self.metadata.generation or 0):
            return None
        return self.status.disruptions_allowed

    @property
    def meta(self) -> ObjectIdentity:
        return self.metadata

    def to_value(self) -> _Budget:
        return self


class _Labeled(msgspec.Struct, frozen=True):
    metadata: Meta


_LABELED: Final = msgspec.json.Decoder(_Labeled)


def _ignore(*_names: str) -> None:
    """For those who ask the cache, and need no calls from it."""


class DisruptionBudgetCache:
    """Which budgets select a pod. Pods of one owner have the same labels, so they are read of one of them."""

    def __init__(
        self,
        cluster: ThrottledCluster,
        on_selectors: Callable[[str], None] = _ignore,
        on_status: Callable[[str, str], None] = _ignore,
        *,
        random: Callable[[], float],
    ) -> None:
        """`on_selectors` is called with a namespace, of which other budgets may select the pods.

        `on_status` is called with the namespace and the name of a budget that may allow more or less.
        """
        self._cluster = cluster
        collection = FixedCollection("policy", "v1", "poddisruptionbudgets")
        self.reflector = Reflector[_Budget](cluster, collection, _Budget, random=random)
        self.reflector.subscribe(self._changed)
        self._on_selectors = on_selectors
        self._on_status = on_status
        self._selectors: dict[str, dict[str, LabelSelector | None]] = {}
        """By namespace and name; None selects nothing, an empty selector everything (policy/v1)."""
        self._labels: dict[str, Mapping[str, str]] = {}
        """Of pods, by the uid of their owner."""
        self._selecting: dict[str, dict[str, tuple[str, ...]]] = {}
        """The budgets of a pod, by namespace and by the same uid."""

    async def look_up(self, pod: Pod) -> None:
        """Reads the labels of the pod, unless they make no difference or are known."""
        if self.select(pod) is None:
            await self._fetch_labels(pod)

    def select(self, pod: Pod) -> tuple[str, ...] | None:
        """The names of the budgets that select the pod; None while its labels make a difference and are not known."""
        namespace = pod.meta.namespace
        selectors = self._selectors.get(namespace)
        if not selectors:
            return ()
        owner = _owner_of(pod)
        known = self._selecting.setdefault(namespace, {})
        if owner not in known:
            labels = self._labels.get(owner)
            if labels is None:
                return None
            known[owner] = tuple(
                sorted(
                    name for name, selector in selectors.items() if selector is not None and selector.matches(labels)
                )
            )
        return known[owner]

    def allowed(self, namespace: str, name: str) -> int | None:
        """How many evictions the budget's status allows; None without a status of its newest generation."""
        budget = self.reflector.items.get(f"{namespace}/{name}")
        return None if budget is None else budget.allowed

    async def _fetch_labels(self, pod: Pod) -> None:
        path = path_of("", "v1", "pods", namespace=pod.meta.namespace, name=pod.meta.name)
        try:
            answer = await self._cluster.get(path, accept=METADATA)
            labels = decode(_LABELED, answer).metadata.labels
        except (ClusterError, msgspec.DecodeError):
            return
        if len(self._labels) >= _REMEMBERED_MOST:
            self._labels.clear()
            self._selecting.clear()
        self._labels[_owner_of(pod)] = labels or {}

    def _changed(self, old: _Budget | None, new: _Budget | None) -> None:
        either = new or old
        assert either is not None
        meta = either.metadata
        if old is None or new is None or old.spec != new.spec:
            self._select_anew(meta.namespace, meta.name, new)
        if new is not None and (old is None or old.allowed != new.allowed or old.status != new.status):
            self._on_status(meta.namespace, meta.name)

    def _select_anew(self, namespace: str, name: str, budget: _Budget | None) -> None:
        """A budget was created, deleted, or selects other pods."""
        named = self._selectors.setdefault(namespace, {})
        if budget is None:
            named.pop(name, None)
            if not named:
                del self._selectors[namespace]
        else:
            named[name] = None if budget.spec.selector is None else budget.spec.selector.to_value()
        self._selecting.pop(namespace, None)
        self._on_selectors(namespace)


def _owner_of(pod: Pod) -> str:
    """The same for pods that have the same labels."""
    return pod.owner.uid if pod.owner is not None else pod.meta.uid
