"""Why a pod is not evicted now, and what exempts it for good. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from webhook.api.pods import DAEMON_SET

if TYPE_CHECKING:
    from webhook.api.pods import Pod
    from webhook.eviction.pod_plan import PodPlan
    from webhook.policy.model import EvictionProfile


class StepReason(StrEnum):
    """Why the pod is not evicted now."""

    SAFE = "no taint makes it go"
    GONE = "it is gone, being deleted or finished"
    DONE = "it was evicted"
    OBSERVED = "mode observe touches no pod"
    DAEMON = "pods of DaemonSets are skipped"
    MIRROR = "mirror pods cannot be evicted"
    EARLY = "it is not due yet"
    HELD = "it is held"
    COMPLETING = "it is left to complete"
    WINDOW = "no window is open"
    SKIPPED = "its profile has action: skip"
    FAILED = "its eviction is retried after an error"
    GANG = "others that it goes together with cannot go yet"
    GROUP = "its PodGroup keeps its claims reserved"
    ALONE = "no pod goes that it would go along with"
    REPUBLISHED = "the pool of its device is not published in full"
    RETURNS = "pods of its claim come back to the same device"


def exemption(pod: Pod, profile: EvictionProfile) -> StepReason | None:
    """Why a pod of this kind is never evicted, or None."""
    if pod.mirror:
        return StepReason.MIRROR
    if pod.owner is not None and pod.owner.kind == DAEMON_SET and not profile.evict_daemon_sets:
        return StepReason.DAEMON
    return StepReason.SKIPPED if profile.skips else None


PUT_OFF: Final = frozenset({StepReason.HELD, StepReason.COMPLETING, StepReason.WINDOW, StepReason.GANG})
"""Why a pod that is due by its taints is not evicted yet, although rates and limits may allow it."""


def in_vain(held_by: str, returns: str) -> StepReason | None:
    """Why evicting the pod would free no device, or None; the arguments are those of `Facts`."""
    if held_by:
        return StepReason.GROUP
    return StepReason.RETURNS if returns else None


def stays(plan: PodPlan, returns: str) -> bool:
    """Whether the pod is not evicted at any time, as long as its plan and what its claims are used by do not change."""
    exempt = exemption(plan.pod, plan.profile.settings) or in_vain(plan.held_by, returns)
    return exempt is not None or plan.eviction.waits
