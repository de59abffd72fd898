"""The worker's three modes, the taints it acts on in each, and the combinations that would do harm. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from webhook.inventory.matching import Evictor
from webhook.inventory.scope import EvictionScope


class Mode(StrEnum):
    """What the worker does."""

    OBSERVE = "observe"
    """Plans and reports; evicts no pod."""
    DELEGATED = "delegated"
    """Empties the devices of NoSchedule rules that request it with `/evict`."""
    REPLACEMENT = "replacement"
    """Acts on every NoExecute taint and on `/evict`, in clusters without the in-tree controller."""

    @property
    def acts(self) -> bool:
        """Whether this mode evicts pods."""
        return self is not Mode.OBSERVE


class InTree(StrEnum):
    """Whether the in-tree controller is running, as configured or detected."""

    ACTIVE = "active"
    ABSENT = "absent"
    UNKNOWN = "unknown"


def scope_of(mode: Mode, in_tree: InTree) -> EvictionScope:
    """The taints that the worker acts on. Only `observe` depends on whether the in-tree controller is running."""
    match mode:
        case Mode.OBSERVE:
            return EvictionScope(Evictor.OURS if in_tree is InTree.ABSENT else Evictor.IN_TREE, asked=True)
        case Mode.DELEGATED:
            return EvictionScope(None, asked=True)
        case Mode.REPLACEMENT:
            return EvictionScope(Evictor.OURS, asked=True)
        case _:
            assert_never(mode)


def refusal(mode: Mode, in_tree: InTree) -> str | None:
    """Why the mode must not run beside the in-tree controller, or None."""
    if mode is not Mode.REPLACEMENT:
        return None
    if in_tree is InTree.ACTIVE:
        return (
            "the in-tree device-taint-eviction-controller is running, and two evictors must not share taints: run "
            "kube-controller-manager with --controllers=*,-device-taint-eviction-controller, or use mode delegated"
        )
    if in_tree is InTree.UNKNOWN:
        return (
            "cannot tell whether the in-tree device-taint-eviction-controller is running: DeviceTaintRules are not "
            "served here, have no status, or admission refuses the canary rule; if it is disabled, set --in-tree=absent"
        )
    return None


def advice(mode: Mode, in_tree: InTree) -> str | None:
    """A warning about a harmless combination that is most likely a mistake, or None."""
    if in_tree is InTree.ABSENT and mode is Mode.DELEGATED:
        return "no pod is evicted for NoExecute here: the in-tree controller is absent, and only mode replacement acts"
    return None
