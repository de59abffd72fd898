"""When the guard speaks at all, who passes it, and how a refusal is confirmed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.builders import NOW
from tests.unit.admission.guarding import (
    NOWHERE,
    OTHER,
    UNKNOWN,
    ask,
    fleet,
    node,
    over,
    refusals,
    tainting,
    text_in,
    told,
)
from tests.unit.inventory.values import inventory_of
from webhook.api.rules import CONFIRM_IMPACT, EXPIRES_AT
from webhook.inventory.state import Sight
from webhook.policy.model import Action, ImpactLimits, ImpactSettings, PolicyMode

LONG_AGO = NOW - timedelta(hours=2)
AN_HOUR_AGO = "2026-06-01T11:00:00Z"
CAREFUL = "oncall"


@pytest.mark.parametrize(
    ("seconds", "reasons"), [(-61, ["backdated"]), (-60, []), (0, []), (3600, [])], ids=["past", "skew", "now", "later"]
)
@pytest.mark.parametrize("selector", [node(0), NOWHERE], ids=["hits a pod", "hits nobody"])
def test_rule_that_begins_to_evict_must_not_lie_back(seconds: int, reasons: list[str], selector: Any) -> None:
    added = NOW + timedelta(seconds=seconds)
    assert over(ask(tainting(selector, added=added))) == reasons
    assert over(ask(tainting(selector, "None", added=added, evict=True))) == reasons
    assert over(ask(tainting(selector, "NoSchedule", added=added))) == []


@pytest.mark.parametrize(
    ("expires", "effect", "was", "refused"),
    [
        (AN_HOUR_AGO, "NoExecute", None, True),
        (AN_HOUR_AGO, "NoSchedule", None, True),
        (AN_HOUR_AGO, "None", None, False),
        ("2026-06-01T12:00:00Z", "NoExecute", None, True),
        ("2026-06-01T12:00:01Z", "NoExecute", None, False),
        (AN_HOUR_AGO, "NoExecute", "None", True),
        (AN_HOUR_AGO, "NoExecute", "NoSchedule", True),
        (AN_HOUR_AGO, "NoSchedule", "None", True),
        (AN_HOUR_AGO, "NoExecute", "NoExecute", False),
        (AN_HOUR_AGO, "NoSchedule", "NoExecute", False),
        (AN_HOUR_AGO, "None", "NoExecute", False),
    ],
)
@pytest.mark.parametrize("sight", [Sight(inventory_of(*fleet())), None, UNKNOWN], ids=["seen", "no cluster", "unknown"])
def test_rule_past_its_end_must_not_begin_to_act(
    expires: str, effect: str, was: str | None, *, refused: bool, sight: Any
) -> None:
    rule = tainting(node(0), effect, annotations={EXPIRES_AT: expires})
    old = None if was is None else tainting(node(0), was)
    decision = ask(rule, old, sight=sight, impact=ImpactSettings(unknown_impact=Action.WARN))
    text = f"was at {expires}: the rule has expired; to use it again, change or remove this annotation"
    assert refusals(decision) == ([text] if refused else [])
    assert [error.field for error in decision.errors] == [f"metadata.annotations[{EXPIRES_AT}]"] * refused


def test_mode_warn_tells_and_lets_pass() -> None:
    decision = ask(tainting({}), mode=PolicyMode.WARN)
    assert decision.allowed
    (warning,) = told(decision)
    assert warning[1].startswith("hits 8 devices, 4 pods in 1 namespace: an empty selector")
    assert over(decision) == ["empty-selector"]
    assert decision.assumed is not None


@pytest.mark.parametrize("sight", [UNKNOWN, Sight(inventory_of(*fleet()))])
def test_mode_off_is_silent(sight: Sight) -> None:
    decision = ask(
        tainting({}, added=LONG_AGO, annotations={EXPIRES_AT: AN_HOUR_AGO}), sight=sight, mode=PolicyMode.OFF
    )
    assert (told(decision), "impact" in decision.annotations) == ([], False)


def test_glass_that_nobody_had_to_break_is_whole() -> None:
    settings = ImpactSettings(break_glass_groups=(CAREFUL,))
    assert "break-glass" not in ask(tainting(node(0)), impact=settings, groups=[CAREFUL]).annotations["impact"]


def test_confirmed_rule_passes_with_its_figures_and_is_audited() -> None:
    text = text_in(ask(tainting({})))
    decision = ask(tainting({}, text=text), user="john")
    assert decision.allowed
    assert told(decision) == [("warn", "selects 8 devices in 4 pools; evicts 4 pods in 1 namespace, all at once")]
    assert decision.annotations["impact"].endswith(" over=empty-selector confirmed")
    assert decision.assumed is not None


def test_text_that_does_not_hold_is_told_beside_the_refusal() -> None:
    decision = ask(tainting({}, text=text_in(ask(tainting(None)))))
    assert [error.field for error in decision.errors] == [
        "spec.deviceSelector",
        f"metadata.annotations[{CONFIRM_IMPACT}]",
    ]
    assert refusals(decision)[1].startswith(f"{OTHER}; leave the annotation out, or set annotation ")
    assert ask(tainting({}, text=text_in(decision))).allowed


def test_no_text_is_none() -> None:
    assert not ask(tainting({}, text="")).allowed
    assert ask(tainting(node(0), text="")).allowed


def test_text_that_is_not_needed_any_more_does_no_harm() -> None:
    text = text_in(ask(tainting({})))
    assert ask(tainting({}, text=text), tainting({}, "NoExecute")).allowed


def test_time_added_is_confirmed_only_where_it_was_set_back() -> None:
    now = text_in(ask(tainting({})))
    assert ask(tainting({}, text=now, added=NOW - timedelta(seconds=30))).allowed
    assert not ask(tainting({}, text=now, added=LONG_AGO)).allowed
    back = text_in(ask(tainting({}, added=LONG_AGO)))
    assert ask(tainting({}, text=back, added=LONG_AGO)).allowed
    assert not ask(tainting({}, text=back, added=LONG_AGO - timedelta(seconds=1))).allowed
    assert not ask(tainting({}, text=back)).allowed


def test_rule_that_evicts_already_is_confirmed_anew_with_its_time_or_without() -> None:
    """A second hundred pods take a new text, and by then the time is past."""
    least = ImpactSettings(limits=(ImpactLimits(pods=0),))
    old, later = tainting({}), NOW + timedelta(hours=1)
    text = text_in(ask(tainting({}, text="renew"), old, impact=least, now=later))
    assert ask(tainting({}, text=text), old, impact=least, now=later).allowed
    first = text_in(ask(tainting({}), impact=least))
    assert ask(tainting({}, text=first), old, impact=least, now=later).allowed


def test_made_up_names_share_a_text() -> None:
    """The API server makes up another name each time, and tells it."""
    text = text_in(ask(tainting({}, name="gpu-x7x2p", generate_name="gpu-")))
    assert ask(tainting({}, name="gpu-b4kq9", generate_name="gpu-", text=text)).allowed
    assert ask(tainting({}, name="", generate_name="gpu-", text=text)).allowed
    assert not ask(tainting({}, name="gpu-b4kq9", text=text)).allowed
    assert not ask(tainting({}, name="disk-b4kq9", generate_name="gpu-", text=text)).allowed
    assert not ask(tainting({}, name="gpu-b4kq9", generate_name="gpu", text=text)).allowed


def test_prefix_confirms_no_name_that_somebody_chose() -> None:
    """G02: a text for `generateName: g` is not for every rule whose name begins with g."""
    text = text_in(ask(tainting({}, name="gx7x2p", generate_name="g")))
    assert not ask(tainting({}, name="gpus-of-everybody", generate_name="g", text=text)).allowed
    made = tainting({}, name="gx7x2p", generate_name="g", effect="NoSchedule")
    raised = tainting({}, name="gx7x2p", generate_name="g", text=text)
    assert not ask(raised, made).allowed, "an update has a name"
    assert ask(tainting({}, name="gx7x2p", generate_name="g", text=text_in(ask(raised, made))), made).allowed
