"""The four ways to work, which taints are ours in each, and which combinations would do harm. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from webhook.inventory.matching import Evictor
from webhook.inventory.scope import EvictionScope


class Mode(StrEnum):
    """What the worker does."""

    OBSERVE = "observe"
    """Plans and tells; touches no pod."""
    DELEGATED = "delegated"
    """Empties the devices of NoSchedule rules that ask for it with `/evict`."""
    SUPPLEMENT = "supplement"
    """Evicts whom the in-tree controller misses: pods whose device came through an extended resource."""
    REPLACEMENT = "replacement"
    """Carries out every NoExecute taint, in clusters without the in-tree controller, and `/evict` as well."""

    @property
    def acts(self) -> bool:
        """Whether pods are evicted."""
        return self is not Mode.OBSERVE


class InTree(StrEnum):
    """Whether the in-tree controller is at work, as told or found out."""

    ACTIVE = "active"
    ABSENT = "absent"
    UNKNOWN = "unknown"


def scope_of(mode: Mode, in_tree: InTree) -> EvictionScope:
    """Which taints the worker looks at. Only `observe` depends on whether the in-tree controller is at work."""
    match mode:
        case Mode.OBSERVE:
            return EvictionScope(Evictor.OURS if in_tree is InTree.ABSENT else Evictor.IN_TREE, asked=True)
        case Mode.DELEGATED:
            return EvictionScope(None, asked=True)
        case Mode.SUPPLEMENT:
            return EvictionScope(Evictor.OURS, only_extended=True)
        case Mode.REPLACEMENT:
            return EvictionScope(Evictor.OURS, asked=True)
        case _:
            assert_never(mode)


def refusal(mode: Mode, in_tree: InTree) -> str | None:
    """Why the mode must not act beside this in-tree controller, or None."""
    if mode is not Mode.REPLACEMENT:
        return None
    if in_tree is InTree.ACTIVE:
        return (
            "the in-tree device-taint-eviction-controller is at work, and two evictors must not share taints: run "
            "kube-controller-manager with --controllers=*,-device-taint-eviction-controller, or use mode delegated"
        )
    if in_tree is InTree.UNKNOWN:
        return (
            "it cannot be told whether the in-tree device-taint-eviction-controller is at work: DeviceTaintRules are "
            "not served here, or have no status; if it is switched off, say so with --in-tree=absent"
        )
    return None


def advice(mode: Mode, in_tree: InTree) -> str | None:
    """What is most likely not meant, though it does no harm."""
    if in_tree is InTree.ABSENT and mode in (Mode.DELEGATED, Mode.SUPPLEMENT):
        return "nobody carries out NoExecute here: the in-tree controller is absent, and only mode replacement would"
    return None
