"""`twoStep`: what evicts has existed before as it is, but for its effect."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.builders import DRIVER, KEY, make_patch, make_taint
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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(tainting(NOWHERE, "None"), tainting(), id="selector"),
        pytest.param(tainting(node(0), "NoSchedule"), tainting(), id="a wider selector"),
        pytest.param(tainting(NOWHERE, "NoSchedule"), tainting(effect="NoSchedule", evict=True), id="with /evict"),
        pytest.param(tainting(None, "None"), tainting(), id="a selector for the first time"),
        pytest.param(tainting(effect="None"), tainting({"driver": DRIVER, "all": True}), id="an unknown field"),
        pytest.param(tainting(effect="None", key="a.example.com/x"), tainting(), id="key"),
        pytest.param(tainting(effect="None", value="planned"), tainting(value="now"), id="value"),
        pytest.param(tainting(effect="None"), tainting(annotations=HARDWARE), id="the rest of the hardware"),
        pytest.param(tainting(node(0)), tainting(), id="a wider selector, while it evicts"),
        pytest.param(tainting(value="planned"), tainting(value="now"), id="value, while it evicts"),
        pytest.param(tainting(), tainting(annotations=HARDWARE), id="the rest of the hardware, while it evicts"),
    ],
)
def test_rule_that_evicts_must_have_existed_with_its_selector_and_taint(old: Any, new: Any) -> None:
    assert refusals(ask(new, old, impact=SETTINGS))[0] == NOT_YET
    assert NOT_YET not in refusals(ask(new, old, impact=ImpactSettings(limits=SETTINGS.limits)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(tainting(effect="None"), tainting(), id="the effect alone"),
        pytest.param(tainting(effect="NoSchedule"), tainting(effect="NoSchedule", evict=True), id="/evict alone"),
        pytest.param(tainting(effect="None"), tainting(node(0)), id="fewer devices"),
        pytest.param(tainting(), tainting(node(0)), id="fewer devices, while it evicts"),
        pytest.param(
            tainting(NOWHERE, "None"), tainting(effect="NoSchedule"), id="another selector that evicts no pod"
        ),
        pytest.param(
            tainting(effect="None", annotations=HARDWARE), tainting(annotations=HARDWARE), id="hardware as before"
        ),
    ],
)
def test_second_step_passes(old: Any, new: Any) -> None:
    assert ask(new, old, impact=SETTINGS).allowed


def test_rule_that_is_created_again_begins_anew() -> None:
    assert refusals(ask(tainting(generate_name="g"), impact=SETTINGS))[0].startswith("must not evict yet: create")


def test_rule_that_swaps_its_selector_is_not_softened() -> None:
    """What is refused is not stored in a milder form."""
    settings = softening(two_step=True)
    sent = send(tainting(), tainting(NOWHERE, "None"), impact=settings)
    assert (sent.softened, NOT_YET in refusals(sent.judged)) == (False, True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(patching(NOWHERE, QUIET), patching(), id="filter"),
        pytest.param(patching({"driver": DRIVER, "pool": "node-0"}, QUIET), patching(), id="a wider filter"),
        pytest.param(
            make_patch(filter_={"driver": DRIVER}, meta={"name": "firmware"}), patching(), id="its first taint"
        ),
        pytest.param(patching(cel("false"), QUIET), patching(cel("true")), id="CEL"),
        pytest.param(patching("default", QUIET), patching("default", evicting(value="now")), id="value"),
        pytest.param(
            patching("default", QUIET), patching("default", evicting(), evicting(key="k.example.com/k")), id="one more"
        ),
        pytest.param(
            patching(), patching("default", evicting(), evicting(key="k.example.com/k")), id="while it evicts"
        ),
        pytest.param(
            patching(NOWHERE, make_taint()), patching("default", make_taint(), softened=KEY), id="softened keys"
        ),
    ],
)
def test_patch_that_evicts_must_have_existed_with_its_filter_and_taints(old: Any, new: Any) -> None:
    assert refusals(ask_patch(new, old, impact=SETTINGS)) == [NOT_YET]
    softened = send_patch(new, old, impact=softening(two_step=True), user="operator", patches=known([old]))[1]
    assert NOT_YET in refusals(softened)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(patching("default", QUIET), patching(), id="the effect alone"),
        pytest.param(patching(None, QUIET), patching(), id="fewer devices"),
        pytest.param(
            patching("default", QUIET), patching("default", evicting(), make_taint(key="k.example.com/k")), id="closing"
        ),
        pytest.param(patching("default", make_taint()), patching("default", make_taint(), softened=KEY), id="softened"),
        pytest.param(
            make_patch(filter_={"driver": DRIVER}, meta={"name": "firmware"}),
            patching("default", QUIET),
            id="first step",
        ),
    ],
)
def test_second_step_of_a_patch_passes(old: Any, new: Any) -> None:
    assert ask_patch(new, old, impact=SETTINGS).allowed
