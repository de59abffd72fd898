"""The times of the taints of a stored patch: whether an update hits pods whose grace periods may be over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest
from msgspec import structs

from tests.builders import DRIVER, KEY, NOW, NOW_TEXT
from tests.tables import table
from tests.unit.admission.guarding import UNKNOWN, allowing, over, text_in, told
from tests.unit.admission.patch_guarding import FIRST, ask_patch, cel, evicting, patching, send_patch, taints_of
from tests.unit.admission.softened import OPERATOR, softening
from webhook.api.meta import format_time
from webhook.policy.model import Action, Softening

YESTERDAY: Final = format_time(NOW - timedelta(days=1))
BEFORE: Final = format_time(NOW - timedelta(days=2))
LATER: Final = format_time(NOW + timedelta(days=1))
DRIVERS: Final = {"driver": DRIVER}
NODE: Final = {"driver": DRIVER, "pool": "node-0"}
MANY: Final = allowing(pods=100)


def old_patch(filter_: Any = NODE, rate: int = 5, *, text: str | None = None, priority: int = 0, **taint: Any) -> Any:
    given = {"time_added": YESTERDAY, "evictionsPerSecond": rate, **taint}
    return patching(filter_, evicting(**given), text=text, priority=priority)


@table(
    "new, backdated",
    {
        "a higher rate": (old_patch(rate=50), False),
        "a higher rate for fewer devices": (old_patch({**NODE, "device": "gpu-0"}, 50), False),
        "more devices": (old_patch(DRIVERS), True),
        "a higher rate and priority": (old_patch(rate=50, priority=1), True),
        "a higher rate and another value": (old_patch(rate=50, value="b"), True),
        "an earlier time": (old_patch(time_added=BEFORE), True),
    },
)
def test_past_time_counts_only_for_pods_that_an_update_newly_hits(new: Any, *, backdated: bool) -> None:
    decision = ask_patch(new, old_patch(), impact=MANY)
    assert (over(decision), decision.allowed) == ((["backdated"], False) if backdated else ([], True))
    warned = structs.replace(MANY, unknown_impact=Action.WARN)
    assert ask_patch(new, old_patch(), impact=warned, cluster=UNKNOWN).allowed is not backdated


@pytest.mark.parametrize("written", [True, False])
def test_past_time_counts_where_the_patch_had_no_rules(*, written: bool) -> None:
    """It needed more than it may have: an update may be the first that hits anything."""
    first = cel(FIRST, **DRIVERS)
    decision = ask_patch(old_patch(first, 50), old_patch(first), written=written, impact=MANY)
    assert over(decision) == ([] if written else ["backdated"])


@pytest.mark.parametrize("before", [True, False])
def test_text_of_creation_holds_for_an_update_that_newly_hits_nothing(*, before: bool) -> None:
    few = allowing(pods=3)
    text = text_in(ask_patch(patching(DRIVERS), impact=few))
    old, new = old_patch(DRIVERS, text=text if before else None), old_patch(DRIVERS, 50, text=text)
    assert ask_patch(new, old, impact=few).allowed
    assert "another object" not in str(told(ask_patch(new, old, impact=few, cluster=UNKNOWN)))
    assert not ask_patch(old_patch(DRIVERS, 50, text=text, priority=1), old, impact=few).allowed


def test_confirmed_patch_is_not_softened_for_an_update_that_newly_hits_nothing() -> None:
    text = text_in(ask_patch(patching(DRIVERS), impact=allowing(pods=3)))
    old, new = (old_patch(DRIVERS, rate, text=text) for rate in (5, 50))
    mutated, judged, _ = send_patch(new, old, user=OPERATOR, impact=softening())
    assert (mutated.patch, judged.allowed) == ((), True)


OVER, ALWAYS = Softening.OVER, Softening.ALWAYS
UNTIMED: Final = evicting(time_added=None)
FASTER: Final = evicting(time_added=None, evictionsPerSecond=100)
AS_STORED: Final = evicting(time_added=YESTERDAY)


@table(
    "new, when, time",
    {
        "the same": (patching(NODE, UNTIMED), OVER, YESTERDAY),
        "fewer devices": (patching({**NODE, "device": "gpu-0"}, UNTIMED), OVER, YESTERDAY),
        "more devices": (patching(DRIVERS, UNTIMED), OVER, NOW_TEXT),
        "more devices, always": (patching(DRIVERS, UNTIMED), ALWAYS, NOW_TEXT),
        "more devices, with the stored time": (patching(DRIVERS, AS_STORED), OVER, NOW_TEXT),
        "more devices, with the stored time, always": (patching(DRIVERS, AS_STORED), ALWAYS, NOW_TEXT),
        "more devices, with a later time of the author": (patching(DRIVERS, evicting(time_added=LATER)), OVER, LATER),
        "more devices and a higher rate": (patching(DRIVERS, FASTER), OVER, NOW_TEXT),
        "more devices and a higher rate, always": (patching(DRIVERS, FASTER), ALWAYS, NOW_TEXT),
        "a higher priority": (patching(NODE, UNTIMED, priority=3), ALWAYS, NOW_TEXT),
        "a higher rate": (patching(NODE, FASTER), ALWAYS, YESTERDAY),
    },
)
def test_softened_patch_that_may_hit_more_gets_the_present_time(new: Any, when: Softening, time: str) -> None:
    old = patching(NODE, evicting(effect="NoSchedule", time_added=YESTERDAY), softened=KEY)
    impact = softening(when, pods=3 if when is OVER else 100)
    _, judged, stored = send_patch(new, old, user=OPERATOR, impact=impact)
    assert taints_of(stored) == [(KEY, "NoSchedule", time)]
    assert judged.errors == ()


@table(
    "stored, new, times",
    {
        "another effect": ([{"effect": "None"}], [{}], [NOW_TEXT]),
        "less": ([{}], [{"effect": "NoSchedule"}], [NOW_TEXT]),
        "and another time": ([{"effect": "None"}], [{"time_added": BEFORE}], [BEFORE]),
        "and another value": ([{"effect": "None"}], [{"value": "b"}], [YESTERDAY]),
        "the same": ([{}], [{"evictionsPerSecond": 50}], [YESTERDAY]),
        "one of two": ([{"effect": "None"}, {"key": "b/c"}], [{}, {"key": "b/c"}], [NOW_TEXT, YESTERDAY]),
        "one that had both effects": ([{"effect": "None"}, {}], [{}], [YESTERDAY]),
    },
)
def test_taint_whose_effect_alone_changed_gets_the_time_of_the_change(stored: Any, new: Any, times: list[str]) -> None:
    """D-4, which no API server does for patches."""
    old, patch = (patching(NODE, *[evicting(**{"time_added": YESTERDAY, **each}) for each in some])
                  for some in (stored, new))  # fmt: skip
    assert [each[2] for each in taints_of(send_patch(patch, old, impact=MANY)[2])] == times


def test_two_steps_may_be_taken_by_changing_the_effect_alone() -> None:
    old, new = (patching(NODE, evicting(effect=effect, time_added=YESTERDAY)) for effect in ("None", "NoExecute"))
    assert send_patch(new, old, impact=structs.replace(MANY, two_step=True))[1].allowed


FEW: Final = allowing(pods=3)


@table("meta", {"a label": {"labels": {"team": "a"}}, "a finalizer": {"finalizers": ["devicetaint.io/x"]}})
def test_stored_patch_without_a_time_gets_one_by_a_change_beside_its_spec(meta: Any) -> None:
    """As /mutate was away when it was created."""
    stored = patching(DRIVERS, UNTIMED)
    mutated, judged, new = send_patch({**stored, "metadata": {**stored["metadata"], **meta}}, stored, impact=FEW)
    assert (mutated.allowed, judged.allowed) == (True, True)
    assert taints_of(new)[0][2] == NOW_TEXT


@table(
    "new, filter_",
    {
        "an earlier time": (evicting(time_added=format_time(NOW - timedelta(minutes=2))), DRIVERS),
        "more devices": (UNTIMED, NODE),
    },
)
def test_stored_patch_without_a_time_is_judged_for(new: Any, filter_: Any) -> None:
    assert not send_patch(patching(DRIVERS, new), patching(filter_, UNTIMED), impact=FEW)[1].allowed
