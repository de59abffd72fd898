"""The worker's three modes, the taints it acts on in each, and the combinations that would do harm. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, assert_never

from webhook.api.decode import Reader
from webhook.api.meta import OWN_GROUP, parse_time
from webhook.inventory.pools import Evictor
from webhook.inventory.targets import EvictionScope

_SILENT: Final = timedelta(minutes=2)
"""A leader renews its Lease every few seconds; clocks may differ by this much."""
MODE_ANNOTATION: Final = f"{OWN_GROUP}/mode"
"""On the Lease: the mode of the worker that holds it."""
IN_TREE_ANNOTATION: Final = f"{OWN_GROUP}/in-tree"
"""On the Lease: what that worker has found out about the in-tree controller."""
VERSION_ANNOTATION: Final = f"{OWN_GROUP}/version"
"""On the Lease: that worker's version."""

POLICY_ANNOTATION: Final = f"{OWN_GROUP}/policy"
"""On the Lease: the hash of the policy in use."""
LAST_POLICY_ANNOTATION: Final = f"{OWN_GROUP}/last-policy"
"""On the Lease: the hash of the last one that was not the built-in one. It stays when the policy is gone."""


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


class WorkerSays(NamedTuple):
    """What the worker that leads wrote on its Lease. `mode` is None, and texts are empty, where it does not say."""

    mode: Mode | None
    in_tree: InTree
    version: str

    @classmethod
    def of(cls, lease: Mapping[str, Any], now: datetime | None = None) -> WorkerSays | None:
        """Read the Lease; None if no one holds it, or renewed it lately. Without `now` any time will do."""
        reader = Reader.of(lease, [])
        spec, annotations = reader.child_or_empty("spec"), reader.meta().annotations
        renewed = parse_time(spec.text("renewTime"))
        if not spec.text("holderIdentity") or (now is not None and (renewed is None or renewed < now - _SILENT)):
            return None
        mode, in_tree = annotations.get(MODE_ANNOTATION, ""), annotations.get(IN_TREE_ANNOTATION, "")
        return cls(
            Mode(mode) if mode in {*Mode} else None,
            InTree(in_tree) if in_tree in {*InTree} else InTree.UNKNOWN,
            annotations.get(VERSION_ANNOTATION, ""),
        )


def scope_of(mode: Mode, in_tree: InTree) -> EvictionScope:
    """Return the taints that the worker acts on. Only `observe` looks whether the in-tree controller runs."""
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
    """Say why the mode must not run beside the in-tree controller, or None."""
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
    """Warn of a harmless combination that is most likely a mistake, or return None."""
    if in_tree is InTree.ABSENT and mode is Mode.DELEGATED:
        return "no pod is evicted for NoExecute here: the in-tree controller is absent, and only mode replacement acts"
    return None
