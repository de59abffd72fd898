"""Which pods have a disruption budget: selectors and statuses are kept by a watch, labels are those of the pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.api.budgets import DisruptionBudget, decode_budget
from webhook.api.decode import Reader
from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.cache.reflector import Reflector

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.pods import Labels, Pod
    from webhook.api.selectors import LabelSelector
    from webhook.cluster.client.rest import ThrottledCluster

_REMEMBERED_MOST: Final = 10_000
"""Different labels in one namespace of which the budgets are remembered."""


class _BudgetWire(msgspec.Struct, frozen=True):
    metadata: dict[str, Any]
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None

    def to_value(self) -> DisruptionBudget:
        """As `api.budgets.decode_budget` returns it."""
        return decode_budget(Reader({"metadata": self.metadata, "spec": self.spec, "status": self.status}, []))


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
        """`on_selectors` is called with a namespace, of which other pods may need a disruption of a budget than before.

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
        concerns = [each and (each.selector, each.frees_unready) for each in (old, new)]
        if None in concerns or concerns[0] != concerns[1]:
            self._select_anew(meta.namespace, meta.name, new)
        if new is not None and (old is None or old.allowed != new.allowed):
            self._on_status(meta.namespace, meta.name)

    def _select_anew(self, namespace: str, name: str, budget: DisruptionBudget | None) -> None:
        """A budget was created, deleted, selects other pods, or begins or ceases to let pods go that are not ready."""
        named = self._selectors.setdefault(namespace, {})
        if budget is None:
            named.pop(name, None)
            if not named:
                del self._selectors[namespace]
        else:
            named[name] = budget.selector
        self._selecting.pop(namespace, None)
        self._on_selectors(namespace)
