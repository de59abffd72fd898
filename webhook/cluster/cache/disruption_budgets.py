"""Which pods have a disruption budget: selectors and statuses are kept by a watch, labels are those of the pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.api.selectors import LabelRequirement, LabelSelector
from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.cache.wire import ObjectIdentity

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.pods import Labels, Pod
    from webhook.cluster.client.throttled import ThrottledCluster

_REMEMBERED_MOST: Final = 10_000
"""Different labels in one namespace of which the budgets are remembered."""


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


def _ignore(*_names: str) -> None:
    """For those who ask the cache, and need no calls from it."""


class DisruptionBudgetCache:
    """Which budgets select a pod, by its labels."""

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
        collection = FixedCollection("policy", "v1", "poddisruptionbudgets")
        self.reflector = Reflector[_Budget](cluster, collection, _Budget, random=random)
        self.reflector.subscribe(self._changed)
        self._on_selectors = on_selectors
        self._on_status = on_status
        self._selectors: dict[str, dict[str, LabelSelector | None]] = {}
        """By namespace and name; None selects nothing, an empty selector everything (policy/v1)."""
        self._selecting: dict[str, dict[Labels, tuple[str, ...]]] = {}
        """The budgets of pods with these labels, by namespace."""

    def select(self, pod: Pod) -> tuple[str, ...]:
        """The names of the budgets that select the pod, in order."""
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
        return found

    def allowed(self, namespace: str, name: str) -> int | None:
        """How many evictions the budget's status allows; None without a status of its newest generation."""
        budget = self.reflector.items.get(f"{namespace}/{name}")
        return None if budget is None else budget.allowed

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
