"""What an update must not have done in order to be left alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest

from tests.builders import DRIVER, NOW, decoded, make_rule
from tests.tables import table
from tests.unit.admission.guarding import UNKNOWN, allowing, ask, fleet, node, over, tainting, told
from tests.unit.admission.patch_guarding import evicting
from tests.unit.admission.softened import MARKS, send, softening
from tests.unit.admission.test_written_for_hardware import hardware
from tests.unit.admission.test_written_rules import ACCOUNT
from tests.unit.inventory.values import inventory_of
from webhook.api.meta import format_time
from webhook.api.rules import DESCRIPTION, EVICT, EVICTIONS_PER_SECOND, EXPIRES_AT, HARDWARE, NOT_BEFORE, SCOPE
from webhook.inventory.rule_delta import begins_to_evict, only_less
from webhook.policy.model import ImpactLimits, ImpactSettings

EARLIER = NOW - timedelta(seconds=1)
LATER = NOW + timedelta(seconds=1)
YESTERDAY = NOW - timedelta(days=1)
STRICT = ImpactSettings(limits=(ImpactLimits(pods=0),))
RULE = tainting(node(0))
QUIET = tainting(node(0), "NoSchedule")
ASKED = tainting(node(0), "NoSchedule", evict=True)
LOUD = tainting(node(0), evict=True)


def value(rule: Any) -> Any:
    return decoded(rule)[0]


LESS = [
    pytest.param(RULE, RULE, id="nothing"),
    pytest.param(tainting(node(0), annotations={DESCRIPTION: "x", EVICTIONS_PER_SECOND: "9"}), RULE, id="annotations"),
    pytest.param(RULE, tainting(node(0), text="v1.1"), id="a text that has done its duty"),
    pytest.param(tainting({**node(0), "device": "gpu-0"}), RULE, id="a device of the pool"),
    pytest.param(RULE, tainting(), id="a pool of the driver"),
    pytest.param(RULE, tainting({}), id="a pool of all"),
    pytest.param(tainting(node(0), added=LATER), RULE, id="later"),
    pytest.param(QUIET, RULE, id="NoSchedule after NoExecute"),
    pytest.param(tainting(node(0), "None"), RULE, id="None after NoExecute"),
    pytest.param(tainting(node(0), "None"), QUIET, id="None after NoSchedule"),
    pytest.param(tainting(node(0), "None", evict=True), ASKED, id="None, for which our worker evicts no pod"),
    pytest.param(QUIET, ASKED, id="nobody is asked to evict any more"),
    pytest.param(RULE, LOUD, id="nobody else is asked to evict any more"),
    pytest.param(tainting({}, "NoSchedule"), tainting({}), id="a wide one that does less"),
    pytest.param(tainting(None, "NoSchedule"), tainting(None), id="a missing one that does less"),
    pytest.param(tainting(node(0), added=YESTERDAY), tainting(added=YESTERDAY), id="narrower, as old as it was"),
    pytest.param(tainting({**node(0), "device": "gpu-0"}, "NoSchedule"), QUIET, id="a device of a pool that is closed"),
    pytest.param(tainting(node(0), "None"), tainting({}, "None"), id="narrower, and it did nothing before"),
]
MORE = [
    pytest.param(tainting(), RULE, id="the driver of a pool"),
    pytest.param(tainting({"pool": "node-0"}), RULE, id="the pool in any driver"),
    pytest.param(tainting({}), RULE, id="everything"),
    pytest.param(tainting(None), RULE, id="no selector"),
    pytest.param(tainting(None), tainting({}), id="no selector any more"),
    pytest.param(tainting({}), tainting(None), id="a selector for the first time"),
    pytest.param(tainting(node(1)), RULE, id="another pool"),
    pytest.param(tainting({**node(0), "deviceClassName": "gpu"}), RULE, id="a retired field"),
    pytest.param(RULE, tainting({**node(0), "all": True}), id="an unknown field that is gone"),
    pytest.param(tainting({**node(0), "all": 1}), tainting({**node(0), "all": True}), id="an unknown field's value"),
    pytest.param(tainting(node(0), value="fan"), RULE, id="another value"),
    pytest.param(tainting(node(0), "NoSchedule", value="fan"), QUIET, id="another value of one that closes"),
    pytest.param(tainting(node(0), key="example.com/other"), RULE, id="another key"),
    pytest.param(tainting(node(0), added=EARLIER), RULE, id="earlier"),
    pytest.param(RULE, QUIET, id="NoExecute after NoSchedule"),
    pytest.param(RULE, tainting(node(0), "None"), id="NoExecute after None"),
    pytest.param(QUIET, tainting(node(0), "None"), id="NoSchedule after None"),
    pytest.param(ASKED, QUIET, id="somebody is asked to evict"),
    pytest.param(LOUD, RULE, id="somebody else is asked to evict"),
    pytest.param(RULE, ASKED, id="in-tree instead of ours: it does not know tolerations of any effect"),
    pytest.param(ASKED, RULE, id="ours instead of in-tree"),
    pytest.param(LOUD, ASKED, id="in-tree beside ours"),
    pytest.param(tainting({}, "None"), tainting(node(0), "None"), id="wider, though it does nothing"),
    pytest.param(QUIET, tainting(node(0), "None", evict=True), id="it begins to close devices, and is no longer asked"),
]


@pytest.mark.parametrize(("new", "old"), LESS)
def test_update_that_does_nothing_new_is_not_judged_again(new: Any, old: Any) -> None:
    assert only_less(value(new), value(old))
    decision = ask(new, old, impact=STRICT)
    assert (decision.allowed, told(decision), decision.assumed) == (True, [], None)
    assert "impact" not in decision.annotations


@pytest.mark.parametrize(("new", "old"), MORE)
def test_update_that_does_more_is_judged(new: Any, old: Any) -> None:
    assert not only_less(value(new), value(old))
    decision = ask(new, old, impact=STRICT)
    assert told(decision) != []
    assert "impact" in decision.annotations


@table(
    "new, old",
    {
        "wider": (tainting(added=YESTERDAY), tainting(node(0), added=YESTERDAY)),
        "elsewhere": (tainting(node(1), added=YESTERDAY), tainting(node(0), added=YESTERDAY)),
        "another value": (tainting(node(0), added=YESTERDAY, value="fan"), tainting(node(0), added=YESTERDAY)),
        "another key": (tainting(node(0), added=YESTERDAY, key="example.com/b"), tainting(node(0), added=YESTERDAY)),
        "set back": (tainting(node(0), added=YESTERDAY), RULE),
        "effect raised": (tainting(node(0), added=YESTERDAY), tainting(node(0), "NoSchedule", added=YESTERDAY)),
        "asked to evict": (
            tainting(node(0), "NoSchedule", added=YESTERDAY, evict=True),
            tainting(node(0), "NoSchedule", added=YESTERDAY),
        ),
    },
)
def test_old_rule_uses_up_the_graces_of_whom_it_newly_hits(new: Any, old: Any) -> None:
    """A rule that was made to hit nobody could otherwise lie in wait until its time is past."""
    assert "backdated" in over(ask(new, old, cluster=inventory_of(*fleet())))
    moved = {**new, "spec": {**new["spec"], "taint": {**new["spec"]["taint"], "timeAdded": "2026-06-01T12:00:00Z"}}}
    assert over(ask(moved, old, cluster=inventory_of(*fleet()))) == []


def test_rule_that_evicts_no_pod_begins_no_eviction() -> None:
    assert begins_to_evict(value(RULE), None)
    assert not begins_to_evict(value(QUIET), None)
    assert not begins_to_evict(value(QUIET), value(RULE))


def test_old_rule_that_asks_another_evictor_begins_nothing() -> None:
    new, old = tainting(node(0), added=YESTERDAY, evict=True), tainting(node(0), added=YESTERDAY)
    assert not begins_to_evict(value(new), value(old))
    assert over(ask(new, old)) == []


def test_time_that_is_missing_counts_as_now() -> None:
    """No server stores such a rule; files and other revisions may have one."""
    untimed = value({**RULE, "spec": {**RULE["spec"], "taint": {"key": "a", "effect": "NoExecute"}}})
    timed = value({**RULE, "spec": {**RULE["spec"], "taint": {**RULE["spec"]["taint"], "key": "a"}}})
    assert only_less(untimed, untimed)
    assert not only_less(timed, untimed)
    assert not only_less(untimed, timed)


# --- rules whose effect is lowered to None --------------------------------------------------------


HOURS_AGO: Final = NOW - timedelta(hours=2)
EXPIRED: Final = {EXPIRES_AT: format_time(NOW - timedelta(minutes=1))}
WITH_EVICT: Final = {EVICT: "true"}
NONE: Final = allowing(pods=0, devices=0)
STORED: Final = {
    "asked for with /evict": ("NoSchedule", WITH_EVICT),
    "softened": ("NoSchedule", MARKS),
    "in-tree": ("NoExecute", {}),
    "in-tree, and asked for": ("NoExecute", WITH_EVICT),
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
        "asked for": ("NoSchedule", WITH_EVICT),
        "a rate that was raised meanwhile": ("NoSchedule", {**WITH_EVICT, EVICTIONS_PER_SECOND: "100"}),
        "a scope that was added meanwhile": ("NoSchedule", {**WITH_EVICT, SCOPE: HARDWARE}),
        "in-tree": ("NoExecute", WITH_EVICT),
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
        "a rate": ({**WITH_EVICT, EVICTIONS_PER_SECOND: "100"}, WITH_EVICT),
        "a scope": ({**WITH_EVICT, SCOPE: HARDWARE}, WITH_EVICT),
        "no start any more": (WITH_EVICT, {**WITH_EVICT, NOT_BEFORE: format_time(NOW + timedelta(days=1))}),
        "no mark any more": (WITH_EVICT, MARKS),
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
    narrow = tainting({"pool": "node-0"}, "None", annotations=WITH_EVICT)
    for new, old in (
        (tainting(effect="None", annotations=WITH_EVICT), narrow),
        (narrow, tainting({"pool": "node-0"}, "None")),
    ):
        assert "impact" in ask(new, old, impact=allowing(pods=100)).annotations


@pytest.mark.parametrize("annotations", [{}, WITH_EVICT], ids=["closes only", "asked for"])
def test_scope_that_came_with_none_counts_once_the_rule_acts(annotations: dict[str, str]) -> None:
    """A card with two partitions: three devices are closed, also if the rule is no longer one that evicts."""
    selector = {"driver": DRIVER, "pool": "node-0", "device": "gpu-0"}
    new, old = (
        make_rule(
            meta={"name": "bad-card", "uid": "u", "annotations": {**each, SCOPE: HARDWARE}},
            selector=selector,
            taint=evicting(effect=effect),
        )
        for effect, each in (("NoSchedule", annotations), ("None", WITH_EVICT))
    )
    given: Any = {"cluster": hardware(annotations={}), "patch_account": ACCOUNT}
    assert over(ask(new, old, impact=allowing(devices=2), **given)) == ["limit:devices"]


@table(
    "effect, annotations",
    {
        "closes": ("NoSchedule", {}),
        "asked for": ("NoSchedule", WITH_EVICT),
        "in-tree": ("NoExecute", WITH_EVICT),
    },
)
def test_expired_rule_that_was_lowered_does_not_act_again(effect: str, annotations: dict[str, str]) -> None:
    again, lowered = (
        tainting(effect=each, annotations={**own, **EXPIRED})
        for each, own in ((effect, annotations), ("None", WITH_EVICT))
    )
    assert "the rule has expired" in str(told(ask(again, lowered, impact=allowing(pods=100))))
    assert ask(lowered, tainting(effect="None", annotations=EXPIRED), impact=allowing(pods=100)).allowed
