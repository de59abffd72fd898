"""Rules whose effect is lowered to None, by the worker or by hand: that evicts no pod, also with `/evict`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest

from tests.builders import DRIVER, NOW, make_rule
from tests.tables import table
from tests.unit.admission.guarding import UNKNOWN, allowing, ask, over, tainting, told
from tests.unit.admission.patch_guarding import evicting
from tests.unit.admission.softened import MARKS, send, softening
from tests.unit.admission.test_written_for_hardware import hardware
from tests.unit.admission.test_written_rules import ACCOUNT
from webhook.api.meta import format_time
from webhook.api.rules import EVICT, EVICTIONS_PER_SECOND, EXPIRES_AT, HARDWARE, NOT_BEFORE, SCOPE

HOURS_AGO: Final = NOW - timedelta(hours=2)
EXPIRED: Final = {EXPIRES_AT: format_time(NOW - timedelta(minutes=1))}
ASKED: Final = {EVICT: "true"}
NONE: Final = allowing(pods=0, devices=0)
STORED: Final = {
    "asked for with /evict": ("NoSchedule", ASKED),
    "softened": ("NoSchedule", MARKS),
    "in-tree": ("NoExecute", {}),
    "in-tree, and asked for": ("NoExecute", ASKED),
}


@pytest.mark.parametrize("expiry", [{}, EXPIRED], ids=["by hand", "expired"])
@pytest.mark.parametrize("cluster", [None, UNKNOWN], ids=["known", "unknown"])
@pytest.mark.parametrize("impact", [NONE, softening(pods=0)], ids=["no pod", "softening"])
@table("effect, annotations", STORED)
def test_effect_may_always_be_lowered_to_none(
    effect: str, annotations: dict[str, str], impact: Any, cluster: Any, expiry: dict[str, str]
) -> None:
    given: dict[str, Any] = {"annotations": {**annotations, **expiry}, "added": HOURS_AGO}
    sent = send(tainting(effect="None", **given), tainting(effect=effect, **given), cluster=cluster, impact=impact)
    assert (sent.judged.allowed, told(sent.judged)) == (True, [])


@table(
    "effect, annotations",
    {
        "asked for": ("NoSchedule", ASKED),
        "a rate that was raised meanwhile": ("NoSchedule", {**ASKED, EVICTIONS_PER_SECOND: "100"}),
        "a scope that was added meanwhile": ("NoSchedule", {**ASKED, SCOPE: HARDWARE}),
        "in-tree": ("NoExecute", ASKED),
    },
)
def test_rule_that_was_lowered_is_judged_once_it_acts_again(effect: str, annotations: dict[str, str]) -> None:
    lowered = tainting(effect="None", annotations=annotations, added=HOURS_AGO)
    for impact in (allowing(pods=3), allowing(pods=100)):
        again = ask(tainting(effect=effect, annotations=annotations, added=HOURS_AGO), lowered, impact=impact)
        assert "backdated" in over(again)


@table(
    "annotations, was",
    {
        "a rate": ({**ASKED, EVICTIONS_PER_SECOND: "100"}, ASKED),
        "a scope": ({**ASKED, SCOPE: HARDWARE}, ASKED),
        "no start any more": (ASKED, {**ASKED, NOT_BEFORE: format_time(NOW + timedelta(days=1))}),
        "no mark any more": (ASKED, MARKS),
    },
)
def test_what_asks_for_more_says_nothing_on_a_rule_that_is_lowered(
    annotations: dict[str, str], was: dict[str, str]
) -> None:
    assert (
        told(ask(tainting(effect="None", annotations=annotations), tainting(effect="NoSchedule", annotations=was)))
        == []
    )
    assert not ask(
        tainting(effect="NoSchedule", annotations=annotations),
        tainting(effect="None", annotations=annotations),
        impact=NONE,
    ).allowed


def test_rule_with_none_that_is_widened_or_is_first_asked_for_shows_what_it_would_hit() -> None:
    narrow = tainting({"pool": "node-0"}, "None", annotations=ASKED)
    for new, old in (
        (tainting(effect="None", annotations=ASKED), narrow),
        (narrow, tainting({"pool": "node-0"}, "None")),
    ):
        assert "impact" in ask(new, old, impact=allowing(pods=100)).annotations


@pytest.mark.parametrize("annotations", [{}, ASKED], ids=["closes only", "asked for"])
def test_scope_that_came_with_none_counts_once_the_rule_acts(annotations: dict[str, str]) -> None:
    """A card with two partitions: three devices are closed, also if the rule is no longer one that evicts."""
    selector = {"driver": DRIVER, "pool": "node-0", "device": "gpu-0"}
    new, old = (
        make_rule(
            meta={"name": "bad-card", "uid": "u", "annotations": {**each, SCOPE: HARDWARE}},
            selector=selector,
            taint=evicting(effect=effect),
        )
        for effect, each in (("NoSchedule", annotations), ("None", ASKED))
    )
    given: Any = {"cluster": hardware(annotations={}), "patch_account": ACCOUNT}
    assert over(ask(new, old, impact=allowing(devices=2), **given)) == ["limit:devices"]


@table(
    "effect, annotations",
    {"closes": ("NoSchedule", {}), "asked for": ("NoSchedule", ASKED), "in-tree": ("NoExecute", ASKED)},
)
def test_expired_rule_that_was_lowered_does_not_act_again(effect: str, annotations: dict[str, str]) -> None:
    again, lowered = (
        tainting(effect=each, annotations={**own, **EXPIRED}) for each, own in ((effect, annotations), ("None", ASKED))
    )
    assert "the rule has expired" in str(told(ask(again, lowered, impact=allowing(pods=100))))
    assert ask(lowered, tainting(effect="None", annotations=EXPIRED), impact=allowing(pods=100)).allowed
