"""Patches that hit nothing as long as something else stands before them, or as long as they cannot be evaluated."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.builders import DRIVER, KEY, make_taint
from tests.unit.admission.guarding import allowing, over, refusals, told
from tests.unit.admission.patch_guarding import CREATED_TEXT, FIRST, SlowMemo, ask_patch, cel, evicting, known, patching
from webhook.policy.model import Action, ImpactLimits, ImpactSettings

CLOSING: Final = make_taint()
TOO_LONG: Final = "to evaluate its filter takes longer than a review may"


def before(*taints: Any, name: str = "before", **fields: Any) -> Any:
    """A stored patch that takes precedence."""
    return patching("default", *taints, name=name, created=CREATED_TEXT, priority=10, **fields)


@pytest.mark.parametrize("old", [None, patching("default", CLOSING)])
def test_patch_that_evicts_counts_although_one_that_only_closes_wins(old: Any) -> None:
    """Nothing is asked when the other patch goes, and then all pods would be evicted."""
    stored = [before(CLOSING), *([] if old is None else [old])]
    emptying = patching("default", CLOSING, softened=KEY)
    assert over(ask_patch(emptying, old, patches=known(stored), impact=allowing(pods=3))) == ["limit:pods"]
    assert ask_patch(emptying, old, patches=known(stored), impact=allowing(pods=4)).allowed


@pytest.mark.parametrize(
    ("new", "stored"),
    [
        pytest.param(patching("default", CLOSING, softened=KEY), before(CLOSING, softened=KEY), id="softened, too"),
        pytest.param(patching(), before(evicting(value="v")), id="NoExecute, too"),
        pytest.param(patching("default", CLOSING), before(CLOSING, softened=KEY), id="it only closes"),
    ],
)
def test_patch_counts_not_where_one_wins_that_does_as_much(new: Any, stored: Any) -> None:
    assert ask_patch(new, patches=known([stored]), impact=allowing(pods=0, devices=0)).allowed


@pytest.mark.parametrize(
    ("patches", "chosen", "why"),
    [
        pytest.param(known(memo=SlowMemo()), cel(FIRST), TOO_LONG, id="CEL that takes too long"),
        pytest.param(known(), {"deviceClassName": "gone"}, "device class gone does not exist", id="class"),
    ],
)
def test_filter_that_cannot_be_evaluated_is_no_way_around_a_limit_on_devices(
    patches: Any, chosen: Any, why: str
) -> None:
    """The controller has more time for it, and a class may come later."""
    closing = patching({**chosen, "driver": DRIVER}, CLOSING)
    text = f"what it hits is not known: {why}"
    assert refusals(ask_patch(closing, patches=patches, impact=allowing(devices=8))) == [
        f"{text}; try again in a while"
    ]
    assert told(ask_patch(closing, patches=patches, impact=allowing(devices=None))) == [("warn", text)]
    lenient = ImpactSettings(limits=(ImpactLimits(devices=8),), unknown_impact=Action.WARN)
    assert told(ask_patch(closing, patches=patches, impact=lenient)) == [("warn", text)]
    cold = ask_patch(closing, patches=known(unknown="not read"), impact=allowing(devices=8))
    assert told(cold) == [("warn", "what it hits is not known: not read")]
    evicts = ask_patch(
        patching({**chosen, "driver": DRIVER}, CLOSING, softened=KEY), patches=patches, impact=allowing(devices=8)
    )
    assert refusals(evicts) == [f"{text}; try again in a while"]
