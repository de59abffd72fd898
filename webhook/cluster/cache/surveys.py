"""What the eviction worker knows of a cluster beside its inventory: namespaces, budgets, who else is at work.

Each is a watch of its own; that one of them may not be read makes the worker gentler and never stops it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.api.pods import HOLD
from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.cache.listwatch import METADATA
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.cache.wire import Identity, Meta
from webhook.cluster.client.errors import ClusterError
from webhook.cluster.client.rest import path_of
from webhook.policy.match import NamespaceMatcher
from webhook.policy.model import LabelRequirement, NamespaceMatch
from webhook.policy.ports import NamespaceFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.pods import Pod
    from webhook.cluster.cache.discovery import Collection
    from webhook.cluster.client.rest import Cluster
    from webhook.cluster.client.throttled import ActingCluster

IN_TREE_MANAGER: Final = "device-taint-eviction-controller"
"""Who writes the status of rules in the name of the in-tree controller (E-38)."""
_REMEMBERED_MOST: Final = 10_000


# --- namespaces ----------------------------------------------------------------------------------


class _NamespaceMeta(Meta, frozen=True, gc=False):
    annotations: dict[str, str] | None = None


class _Namespace(msgspec.Struct, frozen=True, gc=False):
    metadata: _NamespaceMeta

    @property
    def meta(self) -> _NamespaceMeta:
        return self.metadata

    def kept(self) -> _Namespace:
        """Of annotations only the one that is asked for."""
        meta = self.metadata
        hold = (meta.annotations or {}).get(HOLD)
        kept = None if hold is None else {HOLD: hold}
        return _Namespace(msgspec.structs.replace(meta, annotations=kept))


class Namespaces:
    """Labels and holds of namespaces, kept by a watch."""

    def __init__(
        self, cluster: Cluster, *, random: Callable[[], float], on_hold: Callable[[str], None] = lambda _: None
    ) -> None:
        """`on_hold` hears the names of namespaces whose hold has changed."""
        collection = FixedCollection("", "v1", "namespaces")
        self.reflector = Reflector[_Namespace](cluster, collection, _Namespace, random=random, metadata_only=True)
        self.reflector.subscribe(self._changed)
        self._facts: dict[str, NamespaceFacts] = {}
        self._on_hold = on_hold

    def facts_of(self, name: str) -> NamespaceFacts | None:
        """What profiles look at; None while it is not known."""
        return self._facts.get(name)

    def hold_of(self, namespace: str) -> str | None:
        """The text of `/hold`, if it has one."""
        known = self.reflector.items.get(namespace)
        return None if known is None else (known.metadata.annotations or {}).get(HOLD)

    def _changed(self, old: _Namespace | None, new: _Namespace | None) -> None:
        either = new or old
        assert either is not None
        name = either.metadata.name
        if new is None:
            self._facts.pop(name, None)
        else:
            self._facts[name] = NamespaceFacts(name, new.metadata.labels or {})
        before = old.metadata.annotations if old is not None else None
        if before != (new.metadata.annotations if new is not None else None):
            self._on_hold(name)


# --- disruption budgets --------------------------------------------------------------------------


class _Expression(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _LabelSelector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Expression] | None = None


class _BudgetSpec(msgspec.Struct, frozen=True, gc=False):
    selector: _LabelSelector | None = None


class _Budget(msgspec.Struct, frozen=True, gc=False):
    metadata: Identity
    spec: _BudgetSpec = _BudgetSpec()

    @property
    def meta(self) -> Identity:
        return self.metadata

    def kept(self) -> _Budget:
        return self


class _Labels(msgspec.Struct, frozen=True):
    metadata: Meta


_LABELS: Final = msgspec.json.Decoder(_Labels)


class Budgets:
    """Which pods have a disruption budget. Pods of one owner have the same labels, so one of them is asked for."""

    def __init__(self, cluster: ActingCluster, *, random: Callable[[], float]) -> None:
        self._cluster = cluster
        collection = FixedCollection("policy", "v1", "poddisruptionbudgets")
        self.reflector = Reflector[_Budget](cluster, collection, _Budget, random=random)
        self.reflector.subscribe(self._changed)
        self._selectors: dict[str, dict[str, NamespaceMatcher | None]] = {}
        self._labels: dict[str, NamespaceFacts] = {}

    async def covers(self, pod: Pod) -> bool:
        """Whether one selects the pod; no, where that cannot be told: then the owner's limit holds."""
        known = self.known(pod)
        if known is not None:
            return known
        await self._ask_for_labels(pod)
        return self.known(pod) or False

    def known(self, pod: Pod) -> bool | None:
        """Whether one selects the pod; None as long as its labels are not known and make a difference."""
        selectors = self._selectors.get(pod.meta.namespace)
        if not selectors:
            return False
        labels = self._labels.get(_kin_of(pod))
        if labels is None:
            return None
        return any(each is not None and each.matches("", labels, allowing=True) for each in selectors.values())

    async def _ask_for_labels(self, pod: Pod) -> None:
        path = path_of("", "v1", "pods", namespace=pod.meta.namespace, name=pod.meta.name)
        try:
            answer = await self._cluster.get(path, accept=METADATA)
            labels = _LABELS.decode(answer).metadata.labels
        except (ClusterError, msgspec.DecodeError):
            return
        if len(self._labels) >= _REMEMBERED_MOST:
            self._labels.clear()
        # Namespaces and pods have the same sort of labels, and the policy's room knows how to select by them.
        self._labels[_kin_of(pod)] = NamespaceFacts("", labels or {})

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
            named[meta.name] = _compiled(new.spec.selector)


def _kin_of(pod: Pod) -> str:
    """The same for pods that have the same labels."""
    return pod.owner.uid if pod.owner is not None else pod.meta.uid


def _compiled(selector: _LabelSelector | None) -> NamespaceMatcher | None:
    """None selects nobody; an empty one everybody (policy/v1)."""
    if selector is None:
        return None
    required = [LabelRequirement(key, "In", (value,)) for key, value in (selector.match_labels or {}).items()]
    required += [
        LabelRequirement(each.key, each.operator, tuple(each.values or ())) for each in selector.match_expressions or ()
    ]
    return NamespaceMatcher(NamespaceMatch(expressions=tuple(required)))


# --- rules ---------------------------------------------------------------------------------------


class _ManagedFields(msgspec.Struct, frozen=True, gc=False):
    manager: str = ""
    subresource: str = ""
    time: str = ""


class _RuleMeta(Identity, frozen=True, gc=False, rename="camel"):
    managed_fields: list[_ManagedFields] | None = None


class _Written(msgspec.Struct, frozen=True, gc=False):
    """A rule, and when the in-tree controller last wrote its status; empty if it never did."""

    metadata: _RuleMeta
    at: str = ""

    @property
    def meta(self) -> _RuleMeta:
        return self.metadata

    def kept(self) -> _Written:
        times = [each.time for each in self.metadata.managed_fields or () if each.manager == IN_TREE_MANAGER]
        return _Written(msgspec.structs.replace(self.metadata, managed_fields=None), max(times, default=""))


class InTreeWrites:
    """Whether the in-tree controller writes the status of rules, kept by a watch of their metadata."""

    def __init__(self, cluster: Cluster, collection: Collection, *, random: Callable[[], float]) -> None:
        self.reflector = Reflector[Any](cluster, collection, _Written, random=random, metadata_only=True, optional=True)
        self.reflector.subscribe(self._changed)
        self.seen = asyncio.Event()
        """Set when it wrote a status after the first list: it is at work."""

    def _changed(self, old: _Written | None, new: _Written | None) -> None:
        if new is None or not new.at or not self.reflector.synced.is_set():
            return
        if old is None or old.at != new.at:
            self.seen.set()
