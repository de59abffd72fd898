"""Rules and patches that say the same: where the guard differs, two steps, and what rules on taints judge."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from tests.builders import DRIVER, KEY, NOW, NOW_TEXT, make_patch, make_taint
from tests.tables import table
from tests.unit.admission.guarding import NOWHERE, UNKNOWN, allowing, ask, node, refusals, tainting, text_in, told
from tests.unit.admission.patch_guarding import SlowMemo, ask_patch, cel, evicting, known, patching, send_patch
from tests.unit.admission.softened import send, softening
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT, NOT_BEFORE, OWNER, SCOPE, SOFTENED_FROM, TICKET
from webhook.policy.model import Action, ImpactLimits, ImpactSettings, Match, NamespaceMatch, PolicyMode, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.admission.decision import Decision

PAST: Final = NOW - timedelta(days=2)
BACKDATED: Final = evicting(time_added=format_time(PAST))
LAST_WEEK: Final = {EXPIRES_AT: format_time(PAST)}
SOFT: Final = softening()
OPERATOR: Final = "system:serviceaccount:health:operator"
PROTECTED: Final = softening(pods=9, protected_namespaces=NamespaceMatch(names=("ml",)))
WARNS: Final = ImpactSettings(unknown_impact=Action.WARN)
LATER: Final = {NOT_BEFORE: format_time(NOW + timedelta(hours=1))}
MARK: Final = {SOFTENED_FROM: "NoExecute"}
QUIET: Final = make_taint(time_added=format_time(NOW))
TWO_STEPS: Final = ImpactSettings(limits=(ImpactLimits(),), two_step=True)


def annotated(patch: Any, **annotations: str) -> Any:
    meta = patch["metadata"]
    return {**patch, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), **annotations}}}


class Case(NamedTuple):
    """A rule and a patch that say the same, the options of both, and what is said of the one and not of the other."""

    rule: Any
    patch: Any
    of_rule: str = ""
    of_patch: str = ""
    options: Mapping[str, Any] = {}
    was: Any = None
    patch_was: Any = None


def _confirmed_for_more() -> Case:
    """A stored text for all nodes on what is now for one."""
    limits = allowing(pods=3)
    rule = tainting(text=text_in(ask(tainting(), impact=limits)))
    patch = patching(text=text_in(ask_patch(patching(), impact=limits)))
    less = {**rule, "spec": {**rule["spec"], "deviceSelector": node(0)}}
    less_patched = {**patch, "spec": {"devices": {**patch["spec"]["devices"], "filter": node(0)}}}
    return Case(less, less_patched, "was printed for the object as it was", "", {"impact": limits}, rule, patch)


CASES: Final = {
    "expired": Case(tainting(annotations=LAST_WEEK), annotated(patching(), **LAST_WEEK), "the rule has expired"),
    "in a file": Case(tainting({}), patching({}), "narrow the selector", "", {"sight": None, "offline": True}),
    "for less than its text": _confirmed_for_more(),
    "updated": Case(
        *(tainting(), patching(cel("true")), "the limit is 3 pods", "evicts 3 pods", {"impact": allowing(pods=3)}),
        *(tainting(node(0)), patching(cel("true", pool="node-0"))),
    ),
    "with a later start": Case(tainting(annotations=LATER), annotated(patching(), **LATER), "delays our worker only"),
    "without a selector": Case(tainting(None), patching(None), "over=no-selector", "over=empty-selector"),
    "softened, in a protected namespace": Case(
        tainting(effect="NoSchedule", evict=True, annotations=MARK),
        patching("default", QUIET, softened=KEY),
        "no pod is evicted before",
        "",
        {"impact": PROTECTED, "user": OPERATOR},
    ),
    "not softened by /mutate": Case(
        *(tainting(), patching(), "softens such rules", "or there is one of that key with NoSchedule"),
        {"impact": SOFT, "user": OPERATOR},
    ),
    "to be softened": Case(
        *(tainting(), patching(), "NoSchedule with devicetaint.io/evict", "with devicetaint.io/softened-keys"),
        {"impact": SOFT, "user": OPERATOR, "mode": PolicyMode.WARN},
    ),
    "first step": Case(
        *(tainting(), patching(), "create the rule with", "create the patch with", {"impact": TWO_STEPS})
    ),
    "with a slow filter": Case(
        tainting(effect="NoSchedule"),
        patching(cel("true"), QUIET),
        "allowed",
        "denied",
        {"impact": allowing(devices=9), "patches": known(memo=SlowMemo())},
    ),
    "of unknown impact": Case(
        tainting(), patching(), "counted 1 of 1", "counted -", {"cluster": UNKNOWN, "impact": WARNS}
    ),
}


def said(decision: Decision) -> str:
    """The verdict, the reasons in the audit log, how much later reviews count, and all texts."""
    assumed = "-" if decision.assumed is None else f"{len(decision.assumed.rules)} of {len(decision.assumed.names)}"
    verdict = "allowed" if decision.allowed else "denied"
    texts = [text for _, text in told(decision)]
    return "\n".join([verdict, decision.annotations.get("impact", ""), f"counted {assumed}", *texts])


@pytest.mark.parametrize("name", CASES)
def test_rule_and_patch_differ_where_they_should(name: str) -> None:
    case = CASES[name]
    rule = said(ask(case.rule, case.was, **case.options))
    patch = said(ask_patch(case.patch, case.patch_was, **case.options))
    for text, own, other in ((case.of_rule, rule, patch), (case.of_patch, patch, rule)):
        assert not text or (text in own and text not in other), own


def test_equal_reasons_of_several_taints_are_told_once() -> None:
    old = BACKDATED, {**BACKDATED, "key": "a.example.com/x"}
    decision = ask_patch(patching("default", *old))
    assert decision.annotations["impact"].endswith(" over=backdated")
    assert said(decision).count("is past, so tolerationSeconds may be over") == 1


# --- two steps ------------------------------------------------------------------------------------


SETTINGS: Final = ImpactSettings(limits=(ImpactLimits(pods=100, namespaces=100),), two_step=True)
HARDWARE: Final = {SCOPE: "hardware"}
NOT_YET: Final = (
    "must not evict yet: its devices, its key or its value were others before, or fewer; "
    'store it like this with effect "None", look at its status, and change only the effect then'
)
STILL: Final = make_taint(effect="None")


@table(
    "old, new",
    {
        "selector": (tainting(NOWHERE, "None"), tainting()),
        "a wider selector": (tainting(node(0), "NoSchedule"), tainting()),
        "with /evict": (tainting(NOWHERE, "NoSchedule"), tainting(effect="NoSchedule", evict=True)),
        "a selector for the first time": (tainting(None, "None"), tainting()),
        "an unknown field": (tainting(effect="None"), tainting({"driver": DRIVER, "all": True})),
        "key": (tainting(effect="None", key="a.example.com/x"), tainting()),
        "value": (tainting(effect="None", value="planned"), tainting(value="now")),
        "the rest of the hardware": (tainting(effect="None"), tainting(annotations=HARDWARE)),
        "a wider selector, while it evicts": (tainting(node(0)), tainting()),
        "value, while it evicts": (tainting(value="planned"), tainting(value="now")),
        "the rest of the hardware, while it evicts": (tainting(), tainting(annotations=HARDWARE)),
    },
)
def test_rule_that_evicts_must_have_existed_with_its_selector_and_taint(old: Any, new: Any) -> None:
    assert refusals(ask(new, old, impact=SETTINGS))[0] == NOT_YET
    assert NOT_YET not in refusals(ask(new, old, impact=ImpactSettings(limits=SETTINGS.limits)))


@table(
    "old, new",
    {
        "the effect alone": (tainting(effect="None"), tainting()),
        "/evict alone": (tainting(effect="NoSchedule"), tainting(effect="NoSchedule", evict=True)),
        "fewer devices": (tainting(effect="None"), tainting(node(0))),
        "fewer devices, while it evicts": (tainting(), tainting(node(0))),
        "another selector that evicts no pod": (tainting(NOWHERE, "None"), tainting(effect="NoSchedule")),
        "hardware as before": (tainting(effect="None", annotations=HARDWARE), tainting(annotations=HARDWARE)),
    },
)
def test_second_step_passes(old: Any, new: Any) -> None:
    assert ask(new, old, impact=SETTINGS).allowed


def test_rule_is_not_created_evicting() -> None:
    text = 'must not evict yet: create the rule with effect "None", look at its status, and change it then'
    for evicting_rule in (tainting(), tainting(generate_name="g"), tainting(effect="NoSchedule", evict=True)):
        assert refusals(ask(evicting_rule, impact=SETTINGS)) == [text]
        assert ask(evicting_rule).allowed
    for quiet_rule in (tainting(effect="None"), tainting(effect="NoSchedule")):
        assert ask(quiet_rule, impact=SETTINGS).allowed


def test_rule_that_swaps_its_selector_is_not_softened() -> None:
    """What is refused is not stored in a milder form."""
    settings = softening(two_step=True)
    sent = send(tainting(), tainting(NOWHERE, "None"), impact=settings)
    assert (sent.softened, NOT_YET in refusals(sent.judged)) == (False, True)


@table(
    "old, new",
    {
        "filter": (patching(NOWHERE, STILL), patching()),
        "a wider filter": (patching({"driver": DRIVER, "pool": "node-0"}, STILL), patching()),
        "its first taint": (make_patch(filter_={"driver": DRIVER}, meta={"name": "firmware"}), patching()),
        "CEL": (patching(cel("false"), STILL), patching(cel("true"))),
        "value": (patching("default", STILL), patching("default", evicting(value="now"))),
        "one more": (patching("default", STILL), patching("default", evicting(), evicting(key="k.example.com/k"))),
        "while it evicts": (patching(), patching("default", evicting(), evicting(key="k.example.com/k"))),
        "softened keys": (patching(NOWHERE, make_taint()), patching("default", make_taint(), softened=KEY)),
    },
)
def test_patch_that_evicts_must_have_existed_with_its_filter_and_taints(old: Any, new: Any) -> None:
    assert refusals(ask_patch(new, old, impact=SETTINGS)) == [NOT_YET]
    softened = send_patch(new, old, impact=softening(two_step=True), user="operator", patches=known([old]))[1]
    assert NOT_YET in refusals(softened)


@table(
    "old, new",
    {
        "the effect alone": (patching("default", STILL), patching()),
        "fewer devices": (patching(None, STILL), patching()),
        "closing": (patching("default", STILL), patching("default", evicting(), make_taint(key="k.example.com/k"))),
        "softened": (patching("default", make_taint()), patching("default", make_taint(), softened=KEY)),
        "first step": (
            make_patch(filter_={"driver": DRIVER}, meta={"name": "firmware"}),
            patching("default", STILL),
        ),
    },
)
def test_second_step_of_a_patch_passes(old: Any, new: Any) -> None:
    assert ask_patch(new, old, impact=SETTINGS).allowed


# --- taint rules on patches -----------------------------------------------------------------------


IN_THREE_DAYS: Final = format_time(NOW + timedelta(days=3))
EARLIER: Final = format_time(NOW - timedelta(seconds=50))
YESTERDAY: Final = format_time(NOW - timedelta(days=1))


def taint(**fields: Any) -> Any:
    """A taint; without a time unless one is given."""
    given = evicting(**fields)
    return given if "time_added" in fields else {name: each for name, each in given.items() if name != "timeAdded"}


def is_judged(new: Any, old: Any) -> bool:
    rule = Rule("no", Action.DENY, Match())
    return rule.name in [each.rule for each in ask_patch(new, old, taint_rules=(rule,)).findings]


@table(
    "new, old, judged",
    {
        "nothing": (taint(time_added=EARLIER), taint(time_added=EARLIER), False),
        "an earlier time": (taint(time_added=NOW_TEXT), taint(time_added=IN_THREE_DAYS), True),
        "a later time": (taint(time_added=IN_THREE_DAYS), taint(time_added=NOW_TEXT), True),
        "a higher rate": (taint(evictionsPerSecond=1000), taint(evictionsPerSecond=1), True),
        "a rate": (taint(evictionsPerSecond=1000), taint(), True),
        "other data": (taint(data={"a": [1]}), taint(data={"a": [2]}), True),
        "the same data": (taint(data={"a": [1]}), taint(data={"a": [1]}), False),
        "the time that /mutate adds": (taint(time_added=NOW_TEXT), taint(), False),
        "a past time for none": (taint(time_added=YESTERDAY), taint(), True),
        "no time": (taint(), taint(), False),
    },
)
def test_update_is_judged_by_what_it_changes_of_a_taint(new: Any, old: Any, *, judged: bool) -> None:
    assert is_judged(patching("default", new), patching("default", old)) is judged


@table(
    "new, old, judged",
    {
        "one that goes": ({}, {TICKET: "OPS-1"}, True),
        "one that comes": ({EXPIRES_AT: IN_THREE_DAYS}, {}, True),
        "another value": ({OWNER: "b"}, {OWNER: "a"}, True),
        "the same": ({TICKET: "OPS-1"}, {TICKET: "OPS-1"}, False),
        "one of others": ({"example.com/a": "1"}, {}, False),
    },
)
def test_update_is_judged_if_it_changes_an_annotation_of_ours(
    new: dict[str, str], old: dict[str, str], *, judged: bool
) -> None:
    """As for a rule: `when` sees them."""
    one, other = (patching("default", taint()) for _ in range(2))
    one["metadata"]["annotations"], other["metadata"]["annotations"] = new, old
    assert is_judged(one, other) is judged


def test_softened_taint_that_stays_so_is_not_judged_again() -> None:
    new, old = (patching("default", taint(effect="NoSchedule"), softened=KEY, priority=each) for each in (1, 2))
    assert not is_judged(new, old)
    assert is_judged(old, new)
