"""`twoStep`: what evicts has existed before as it is, but for its effect."""

from __future__ import annotations

from typing import Any, Final

from tests.builders import DRIVER, KEY, make_patch, make_taint
from tests.tables import table
from tests.unit.admission.guarding import NOWHERE, ask, node, refusals, tainting
from tests.unit.admission.patch_guarding import ask_patch, cel, evicting, known, patching, send_patch
from tests.unit.admission.softened import send, softening
from webhook.api.rules import SCOPE
from webhook.policy.model import ImpactLimits, ImpactSettings

SETTINGS: Final = ImpactSettings(limits=(ImpactLimits(pods=100, namespaces=100),), two_step=True)
HARDWARE: Final = {SCOPE: "hardware"}
NOT_YET: Final = (
    "must not evict yet: its devices, its key or its value were others before, or fewer; "
    'store it like this with effect "None", look at its status, and change only the effect then'
)
QUIET: Final = make_taint(effect="None")


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
        "filter": (patching(NOWHERE, QUIET), patching()),
        "a wider filter": (patching({"driver": DRIVER, "pool": "node-0"}, QUIET), patching()),
        "its first taint": (make_patch(filter_={"driver": DRIVER}, meta={"name": "firmware"}), patching()),
        "CEL": (patching(cel("false"), QUIET), patching(cel("true"))),
        "value": (patching("default", QUIET), patching("default", evicting(value="now"))),
        "one more": (patching("default", QUIET), patching("default", evicting(), evicting(key="k.example.com/k"))),
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
        "the effect alone": (patching("default", QUIET), patching()),
        "fewer devices": (patching(None, QUIET), patching()),
        "closing": (patching("default", QUIET), patching("default", evicting(), make_taint(key="k.example.com/k"))),
        "softened": (patching("default", make_taint()), patching("default", make_taint(), softened=KEY)),
        "first step": (make_patch(filter_={"driver": DRIVER}, meta={"name": "firmware"}), patching("default", QUIET)),
    },
)
def test_second_step_of_a_patch_passes(old: Any, new: Any) -> None:
    assert ask_patch(new, old, impact=SETTINGS).allowed
