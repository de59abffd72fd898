"""Why a pod that could go by itself waits for another one that it goes together with, in words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.eviction.pod_plan import StepReason

if TYPE_CHECKING:
    from webhook.eviction.step import Wait

_WORDS: Final = {
    StepReason.EARLY: "not due yet",
    StepReason.HELD: "on hold",
    StepReason.COMPLETING: "left to complete",
    StepReason.FAILED: "retried after an error",
}


def state_text(step: Wait) -> str:
    """What the pod is that this one waits for, as in `ml/train-0, which is on hold`."""
    assert step.cause is not None
    return _WORDS[step.cause]


def together_with(pod: str) -> str:
    """The other pod, by `namespace/name`, as the subject of a sentence about it."""
    return f"{pod}, which it goes together with"
