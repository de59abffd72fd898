"""What has become of a patch: the rules that it needs, and its status with counts and conditions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from msgspec import structs

from webhook.api.rules import Condition, DeviceSelector
from webhook.inventory.pools import PoolId
from webhook.patches.covering import Cover, DeviceNameSet, each_of
from webhook.patches.expansion import ExpandedRule, rules_of
from webhook.patches.filter_match import NO_DEVICES, FilterMatch, SelectorFaults
from webhook.patches.index import PatchIndex
from webhook.patches.patching import taints_of_patch
from webhook.patches.slice_patches import AppliedAttributes
from webhook.patches.stored import PatchStatus, StoredPatch


class Standing(NamedTuple):
    """One patch as it should be.

    `rules` are none if there would be more than the ceiling; `needed` is how many there would be.
    """

    rules: tuple[ExpandedRule, ...]
    needed: int
    selected: int
    """Published devices that the filter selects."""
    tainted: int
    """Those of them on which a taint of the patch counts."""
    faults: tuple[SelectorFaults, ...]
    unusable: str
    """Why the filter selects nothing at all; empty if it can be judged."""


def standing_of(index: PatchIndex, name: str, ceiling: int) -> Standing:
    """Return the standing of a patch that exists, once the index has nothing left to do. Raises: KeyError."""
    patch, match = index.patches[name], index.match_of(name)
    selected = sum([len(names) for _, names in match.selected(index.fleet)])
    if match.unusable:
        return Standing((), 0, 0, 0, (), match.unusable)
    lost = [index.contests.left_of(origin, name) for origin in taints_of_patch(patch)]
    won = sum([_tainted(index, match, selected, [each]) for each in lost])
    singly = not match.plain and won <= ceiling
    # Taints that lose the same have the same; most lose nothing.
    known: dict[frozenset[tuple[PoolId, DeviceNameSet]], list[Cover]] = {}
    selectors: list[Iterable[DeviceSelector]] = []
    needed = 0
    for left in lost:
        if match.plain and not left:
            selectors.append((match.selector,))
            needed += 1
        else:
            key = frozenset(left.items())
            if key not in known:
                known[key] = _covers(index, match, left, singly=singly)
            found = known[key]
            selectors.append(each for cover in found for each in cover.selectors())
            needed += sum([cover.needed for cover in found])
    rules = tuple(rules_of(patch, selectors)) if needed <= ceiling else ()
    return Standing(rules, needed, selected, _tainted(index, match, selected, lost), match.faults, "")


def _covers(
    index: PatchIndex, match: FilterMatch, left: Mapping[PoolId, DeviceNameSet], *, singly: bool
) -> list[Cover]:
    """Return covers by driver for what a filter selects; in the pools of `left` other devices count."""
    wanted: dict[str, dict[str, DeviceNameSet]] = defaultdict(dict)
    for (driver, pool), names in match.selected(index.fleet):
        own = left.get((driver, pool), names)
        if own:
            wanted[driver][pool] = own
    cover = each_of if singly else index.fleet.cover
    return [cover(driver, wanted[driver]) for driver in sorted(wanted)]


def _tainted(index: PatchIndex, match: FilterMatch, selected: int, lost: list[Mapping[PoolId, DeviceNameSet]]) -> int:
    if not lost:
        return 0
    in_question = set(lost[0]).intersection(*lost)  # elsewhere some taint counts on all that is selected
    kept = sum([len(NO_DEVICES.union(*[left[pool] for left in lost])) for pool in in_question])
    return selected - sum([len(match.selected_in(pool, index.fleet)) for pool in in_question]) + kept


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
    tainted: int = 0
    """Devices that these rules are for; only where others could not be written."""
    applied: AppliedAttributes = AppliedAttributes()
    """What has become of attributes and capacity; a condition that the status has already stays as it is."""


def status_of(
    stored: StoredPatch, standing: Standing, ceiling: int, outcome: ExpansionOutcome, now: datetime
) -> PatchStatus:
    """Return what the status should say; the times of conditions whose status did not change stay."""
    complete = standing.needed <= ceiling and not outcome.refused and not outcome.failed
    known = {each.type: each for each in stored.status.conditions}
    conditions = [_expanded(standing, ceiling, outcome), _evaluated(standing)]
    patched, applied = outcome.applied
    if applied is not None:
        conditions.append(applied)
    return PatchStatus(
        stored.generation,
        standing.selected,
        standing.tainted if complete else outcome.tainted,
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
    """Return the reason of the condition Expanded."""
    return next((each.reason for each in conditions if each.type == EXPANDED), "")
