"""The status of a patch: counts, and the conditions `Expanded`, `Evaluated` and `AttributesApplied`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from webhook.api.rules import Condition
from webhook.patches.applied import AppliedAttributes
from webhook.patches.stored import PatchStatus

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from webhook.patches.standing import Standing
    from webhook.patches.stored import StoredPatch

EXPANDED: Final = "Expanded"
EVALUATED: Final = "Evaluated"
TOO_MANY_RULES: Final = "TooManyRules"
FILTER_NOT_USABLE: Final = "FilterNotUsable"
RULE_REFUSED: Final = "RuleRefused"
WRITE_FAILED: Final = "WriteFailed"
SELECTOR_FAILED: Final = "SelectorFailed"
REASONS: Final = (EXPANDED, TOO_MANY_RULES, FILTER_NOT_USABLE, RULE_REFUSED, WRITE_FAILED)
"""Of the condition Expanded."""
_MESSAGE_MAX: Final = 2000


class ExpansionOutcome(NamedTuple):
    """What has become of the rules of a patch: how many exist, and why others could not be written."""

    rules: int
    refused: str = ""
    """A webhook's, a policy's or the server's own message; empty if nothing was refused."""
    failed: str = ""
    """An error that may pass."""
    applied: AppliedAttributes = AppliedAttributes()
    """What has become of attributes and capacity; a condition that the status has already stays as it is."""


def status_of(
    stored: StoredPatch, standing: Standing, ceiling: int, outcome: ExpansionOutcome, now: datetime
) -> PatchStatus:
    """What the status should say; the times of conditions whose status did not change stay."""
    complete = standing.needed <= ceiling and not outcome.refused and not outcome.failed
    known = {each.type: each for each in stored.status.conditions}
    conditions = [_expanded(standing, ceiling, outcome), _evaluated(standing)]
    patched, applied = outcome.applied
    if applied is not None:
        conditions.append(applied)
    return PatchStatus(
        stored.generation,
        standing.selected,
        standing.tainted if complete else 0,
        outcome.rules,
        tuple(
            [
                each if each is known.get(each.type) else _dated(each, known.get(each.type), stored.generation, now)
                for each in conditions
            ]
        ),
        patched,
    )


def _expanded(standing: Standing, ceiling: int, outcome: ExpansionOutcome) -> Condition:
    if standing.unusable:
        return Condition(EXPANDED, "False", FILTER_NOT_USABLE, standing.unusable)
    if standing.needed > ceiling:
        stay = f"; the {outcome.rules} that exist stay as they are" if outcome.rules else ""
        text = f"needs {standing.needed} DeviceTaintRules, more than the {ceiling} that a patch may have{stay}"
        return Condition(EXPANDED, "False", TOO_MANY_RULES, text)
    if outcome.refused:
        return Condition(EXPANDED, "False", RULE_REFUSED, outcome.refused)
    if outcome.failed:
        return Condition(EXPANDED, "False", WRITE_FAILED, outcome.failed)
    rules = "1 DeviceTaintRule" if outcome.rules == 1 else f"{outcome.rules} DeviceTaintRules"
    return Condition(EXPANDED, "True", EXPANDED, f"the patch is {rules}")


def _evaluated(standing: Standing) -> Condition:
    if standing.unusable:
        return Condition(EVALUATED, "False", FILTER_NOT_USABLE, standing.unusable)
    if standing.faults:
        return Condition(EVALUATED, "False", SELECTOR_FAILED, "; ".join(map(str, standing.faults)))
    return Condition(EVALUATED, "True", EVALUATED, "the filter could be evaluated on every device")


def _dated(new: Condition, old: Condition | None, generation: int, now: datetime) -> Condition:
    same = old is not None and old.status == new.status and old.last_transition_time is not None
    at = old.last_transition_time if same and old is not None else now.replace(microsecond=0)
    message = new.message if len(new.message) <= _MESSAGE_MAX else f"{new.message[: _MESSAGE_MAX - 3]}..."
    return structs.replace(new, message=message, observed_generation=generation, last_transition_time=at)


def reason_of(conditions: Iterable[Condition]) -> str:
    """The reason of the condition Expanded."""
    return next((each.reason for each in conditions if each.type == EXPANDED), "")
