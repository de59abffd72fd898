"""Patches that hit nothing as long as something else stands before them, or as long as they cannot be evaluated."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest
from msgspec import structs

from tests.builders import DRIVER, KEY, NOW, make_taint
from tests.tables import table
from tests.unit.admission.guarding import allowing, ask, node, over, refusals, tainting, told
from tests.unit.admission.patch_guarding import (
    CREATED_TEXT,
    FIRST,
    SlowMemo,
    ask_patch,
    cel,
    evicting,
    figures,
    known,
    patching,
    racks,
)
from tests.unit.inventory.values import claim, on
from tests.unit.patches.patched import slice_of
from webhook.api.meta import format_time
from webhook.inventory.state import Usage
from webhook.policy.model import Action, ImpactLimits, ImpactSettings

CLOSING: Final = make_taint()
EARLIER, LATER = (format_time(NOW + timedelta(seconds=seconds)) for seconds in (-5, 5))
LONG_AGO: Final = format_time(NOW - timedelta(hours=1))
HIDDEN: Final = "other patches hide some of what it taints, and that counts: nothing is asked when they go"
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


@table(
    "new, stored",
    {
        "softened, too": (patching("default", CLOSING, softened=KEY), before(CLOSING, softened=KEY)),
        "NoExecute, too": (patching(), before(evicting())),
        "sooner": (patching(), before(evicting(time_added=EARLIER))),
        "and this one later": (patching("default", evicting(time_added=LATER)), before(evicting())),
        "and this one at last": (patching("default", evicting(time_added=None)), before(evicting())),
        "it closes as well": (patching("default", CLOSING), before(make_taint(time_added=LATER))),
        "it only closes": (patching("default", CLOSING), before(CLOSING, softened=KEY)),
    },
)
def test_patch_counts_not_where_one_wins_that_does_as_much(new: Any, stored: Any) -> None:
    assert ask_patch(new, patches=known([stored]), impact=allowing(pods=0, devices=0)).allowed
    assert ask_patch(new, patches=known([stored]), written=False, impact=allowing(pods=0, devices=0)).allowed
    devices = {**stored["spec"]["devices"], "filter": cel("true")}
    singly = known([{**stored, "spec": {**stored["spec"], "devices": devices}}])
    assert ask_patch(new, patches=singly, impact=allowing(pods=0, devices=0)).allowed
    without_rules = ask_patch(new, patches=singly, written=False, impact=allowing(pods=0, devices=0))
    assert "limit:devices" in over(without_rules)[0], "it needs too many"


@table(
    "new, stored",
    {
        "another value": (patching(), before(evicting(value="v"))),
        "another value that closes": (patching("default", CLOSING), before(make_taint(value="v"))),
        "softened": (patching("default", CLOSING, softened=KEY), before(make_taint(value="v"), softened=KEY)),
        "later": (patching(), before(evicting(time_added=LATER))),
        "at a time that is not known": (patching(), before(evicting(time_added=None))),
        "a value overwritten": (patching("default", evicting(value="v"), evicting()), before(evicting(value="v"))),
        "a value that the other one overwrites itself": (patching(), before(evicting(), evicting(value="v"))),
    },
)
def test_patch_counts_where_one_wins_that_does_less_to_the_same_pods(new: Any, stored: Any) -> None:
    """Nothing is asked when the other one goes, or when its priority is lowered."""
    decision = ask_patch(new, patches=known([stored]), impact=allowing(pods=3, devices=7))
    assert "limit:devices" in over(decision)[0]
    assert ("limit:devices,pods" in over(decision)) is (new != patching("default", CLOSING))
    assert ("warn", HIDDEN) in told(decision)


@table(
    "shield, pods",
    {
        "by one that names them as well": ({"driver": DRIVER}, 0),
        "by one for other devices": ({"driver": DRIVER, "pool": "node-0"}, 4),
        "by one that selects published devices only": (cel("true"), 1),
    },
)
def test_devices_in_use_that_nobody_publishes_count_unless_they_are_hidden(shield: Any, pods: int) -> None:
    """A rule for the whole driver, which comes when the other one goes, selects them."""
    cluster = racks()
    cluster.apply(None, claim("gone", on(pool="node-9"), users=["u-9"]))
    stored = known([patching(shield, name="before", created=CREATED_TEXT, priority=10)])
    decision = ask_patch(patching(), cluster=cluster, patches=stored)
    assert (figures(decision)["pods"] if "impact" in decision.annotations else 0) == pods


@table(
    "filter_, whole, pods",
    {
        "those that are yet to come may be meant": (cel(FIRST), False, 4),
        "it names another pool": (cel(FIRST, pool="node-1"), False, 1),
        "the newest generation has all its slices": (cel(FIRST), True, 3),
    },
)
def test_devices_in_use_that_a_newer_generation_does_not_show_yet_count(
    filter_: Any, *, whole: bool, pods: int
) -> None:
    """The controller goes by the generation before for as long."""
    cluster = racks()
    newer = slice_of("gpu-1", pool="node-0", generation=2, nodeName="node-0")
    cluster.apply(None, newer if whole else structs.replace(newer, slice_count=2))
    decision = ask_patch(patching(filter_), cluster=cluster)
    assert figures(decision)["pods"] == pods
    said = [text for _, text in told(decision) if text.startswith("a pool is published in part only")]
    assert (len(said), ("warn", HIDDEN) in told(decision)) == (int(pods == 4), False)


@pytest.mark.parametrize("stored", [[], [before(evicting(time_added=LONG_AGO))]], ids=["alone", "behind another one"])
def test_backdated_taint_is_over_the_limit_whoever_wins(stored: Any) -> None:
    backdated = patching("default", evicting(time_added=LONG_AGO))
    assert over(ask_patch(backdated, patches=known(stored), impact=allowing(pods=100))) == ["backdated"]


def test_patch_that_begins_to_win_counts_again() -> None:
    """Pods came since it was admitted: they tolerated what the other one put there."""
    old, new = patching(), patching(priority=11)
    stored = known([before(evicting(value="v")), old])
    assert over(ask_patch(new, old, patches=stored, impact=allowing(pods=3))) == ["limit:pods"]
    quiet = patching(priority=-1)
    assert ask_patch(quiet, old, patches=stored, impact=allowing(pods=0)).allowed


def test_patches_that_are_hidden_count_in_the_window() -> None:
    """All of them begin at once when the one before them goes."""
    shield = before(evicting(value="v"))
    first, second = (patching({"driver": DRIVER, "pool": f"node-{number}"}, name=f"p-{number}") for number in (0, 1))
    stored = known([shield, {**first, "metadata": {**first["metadata"], "uid": "u"}}])
    assert over(ask_patch(second, patches=stored, impact=allowing(pods=1), written=False)) == ["window:pods"]
    assert ask_patch(second, patches=known([shield]), impact=allowing(pods=1), written=False).allowed
    assert over(ask(tainting(node(1)), patches=stored, impact=allowing(pods=1))) == ["window:pods"]


def test_patch_that_is_hidden_counts_in_the_window_although_its_filter_takes_too_long() -> None:
    shield = before(evicting(value="v"))
    stored = patching(cel(FIRST, driver=DRIVER), name="p")
    patches = [shield, {**stored, "metadata": {**stored["metadata"], "uid": "u"}}]
    for memo in (None, SlowMemo()):
        decision = ask(tainting(node(1)), cluster=racks(), patches=known(patches, memo=memo), impact=allowing(pods=1))
        assert over(decision) == ["window:pods"]


def test_devices_in_use_are_looked_through_once_for_all_patches_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    scanned: list[Any] = []

    def unpublished(_: Usage, pools: Any, *_check: Any) -> tuple[()]:
        scanned.append(pools)
        return ()

    monkeypatch.setattr(Usage, "unpublished", unpublished)
    shield = before(evicting(value="v"))
    each = [patching(cel(FIRST, driver=DRIVER), name=f"p-{number}") for number in range(9)]
    hidden = [{**one, "metadata": {**one["metadata"], "uid": one["metadata"]["name"]}} for one in each]
    assert over(ask(tainting(node(1)), cluster=racks(), patches=known([shield, *hidden]), impact=allowing(pods=1)))
    assert len(scanned) == 1


@table(
    "patches, chosen, why",
    {
        "CEL that takes too long": (known(memo=SlowMemo()), cel(FIRST), TOO_LONG),
        "class": (known(), {"deviceClassName": "gone"}, "device class gone does not exist"),
    },
)
def test_filter_that_cannot_be_evaluated_is_no_way_around_a_limit_on_devices(
    patches: Any, chosen: Any, why: str
) -> None:
    """The controller has more time for it, and a class may come later."""
    closing = patching({**chosen, "driver": DRIVER}, CLOSING)
    text = f"its impact is not known: {why}"
    assert refusals(ask_patch(closing, patches=patches, impact=allowing(devices=8))) == [
        f"{text}; try again in a while"
    ]
    assert told(ask_patch(closing, patches=patches, impact=allowing(devices=None))) == [("warn", text)]
    lenient = ImpactSettings(limits=(ImpactLimits(devices=8),), unknown_impact=Action.WARN)
    assert told(ask_patch(closing, patches=patches, impact=lenient)) == [("warn", text)]
    cold = ask_patch(closing, patches=known(unknown="not read"), impact=allowing(devices=8))
    assert told(cold) == [("warn", "its impact is not known: not read")]
    evicts = ask_patch(
        patching({**chosen, "driver": DRIVER}, CLOSING, softened=KEY), patches=patches, impact=allowing(devices=8)
    )
    assert refusals(evicts) == [f"{text}; try again in a while"]
