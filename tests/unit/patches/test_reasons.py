"""The annotation that says why a device has its rule."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from tests.unit.patches.reacting import GPU, KEY, ago, softened, stored
from webhook.api.meta import ObjectMeta
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.api.taints import DeviceTaint
from webhook.inventory.targets import DeviceId
from webhook.patches.reasons import REASONS_MAX, RETURNS_MAX, ReactionReason, ReactionRule, ReasonId, noted_on
from webhook.policy.limits import REACTION_KEY, ReactionLevel, may_come_of_reactions, reaction_rule_name
from webhook.policy.model import Reaction

REASONS = "devicetaint.io/reasons"
DESCRIPTION = "devicetaint.io/description"


def make_reason(number: int = 0, **fields: Any) -> ReactionReason:
    return ReactionReason(**{"id": ReasonId(f"r{number:02}", KEY), "value": "48", "since": ago(600), **fields})


def make_rule(
    *reasons: ReactionReason, level: ReactionLevel = ReactionLevel.CLOSE, address: DeviceId = GPU
) -> ReactionRule:
    return ReactionRule(address, level, reasons)


@pytest.mark.parametrize("level", list(ReactionLevel))
@pytest.mark.parametrize(
    "reasons",
    [
        pytest.param((), id="none"),
        pytest.param((make_reason(),), id="one"),
        pytest.param((make_reason(value=""), make_reason(1, clear=ago(5), returns=2)), id="two"),
    ],
)
def test_rule_reads_as_it_was_written(level: ReactionLevel, reasons: tuple[ReactionReason, ...]) -> None:
    rule = make_rule(*reasons, level=level)
    assert noted_on(stored(rule)) == rule


@pytest.mark.parametrize("pool", ["p", "rack-1/node-1", "a/b/c.example.com"])
def test_pools_may_have_slashes_in_their_names(pool: str) -> None:
    rule = make_rule(make_reason(), address=DeviceId("d.example.com", pool, "gpu-0"))
    assert noted_on(stored(rule)) == rule


def test_names_differ_for_different_devices_and_fit() -> None:
    addresses = [DeviceId("d", "p/a", "x"), DeviceId("d", "p", "x"), DeviceId("e", "p", "x"), DeviceId("d", "p", "y")]
    names = [reaction_rule_name(each) for each in addresses]
    assert len(set(names)) == len(names)
    assert len(reaction_rule_name(DeviceId("d" * 63, "p" * 253, "x" * 63))) == len("reaction-") + 63 + 1 + 16
    assert reaction_rule_name(GPU) == "reaction-gpu-0-5bdf677b1a371e7e"


AT_GPU = DeviceSelector(*GPU)


def written(**fields: Any) -> str:
    reason = {"reaction": "r00", "key": KEY, "since": "2026-06-01T11:50:00Z"}
    reason |= fields.pop("reason", {})
    whole = {"device": str(GPU), "effect": "NoSchedule", "reasons": [reason], **fields}
    return json.dumps({name: value for name, value in whole.items() if value is not None})


def rule_with(text: str, selector: DeviceSelector | None = None, **annotations: str) -> DeviceTaintRule:
    meta = ObjectMeta(reaction_rule_name(GPU), annotations={REASONS: text, **annotations})
    return DeviceTaintRule(meta, selector, DeviceTaint(REACTION_KEY, "", "NoExecute"))


def test_what_need_not_be_written_has_its_default() -> None:
    assert noted_on(rule_with(written(more=1), AT_GPU)) == make_rule(make_reason(value=""), level=ReactionLevel.EXECUTE)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"selector": None}, id="no selector"),
        pytest.param({"selector": DeviceSelector("nobody.example.com")}, id="a selector of nothing"),
        pytest.param({"selector": DeviceSelector(*GPU, unknown=(("all", "true"),))}, id="a selector of more"),
        pytest.param({"selector": DeviceSelector(GPU.driver, GPU.pool, "gpu-1")}, id="another device"),
        pytest.param({"taint": DeviceTaint("mallory.example.com/x", "", "NoExecute")}, id="another key"),
        pytest.param({"taint": DeviceTaint(REACTION_KEY, "v", "NoExecute")}, id="a value"),
        pytest.param({"taint": DeviceTaint(REACTION_KEY, "", "None")}, id="effect None"),
        pytest.param({"taint": DeviceTaint(REACTION_KEY, "", "PreferNoSchedule")}, id="an effect of the future"),
        pytest.param({"meta": ObjectMeta("reaction-gpu-0", annotations={REASONS: "?"})}, id="another name"),
        pytest.param({"meta": ObjectMeta(reaction_rule_name(GPU))}, id="no reasons"),
    ],
)
def test_rule_that_no_reaction_would_write_says_nothing(fields: dict[str, Any]) -> None:
    """Whatever is in its annotations: these are of its author."""
    rule = stored(make_rule(make_reason(), level=ReactionLevel.EXECUTE))
    assert noted_on(rule) is not None
    assert noted_on(structs.replace(rule, **fields)) is None


def test_what_a_rule_does_is_read_from_the_rule() -> None:
    rule = rule_with(written(effect="NoExecute", evict=True), AT_GPU)
    closing = structs.replace(rule, taint=DeviceTaint(REACTION_KEY, "", "NoSchedule"))
    assert noted_on(closing) == make_rule(make_reason(value=""), level=ReactionLevel.CLOSE)
    assert noted_on(softened(make_rule(level=ReactionLevel.EXECUTE))) == make_rule(level=ReactionLevel.EXECUTE)


def test_reasons_of_another_device_do_not_count() -> None:
    noted = noted_on(rule_with(written(device=f"{GPU.driver}/{GPU.pool}/gpu-1"), AT_GPU))
    assert noted == make_rule(level=ReactionLevel.EXECUTE)


@pytest.mark.parametrize(("suffix", "number"), [("", 1), ("-2", 2), ("-10", 10)])
def test_number_of_a_name_is_read(suffix: str, number: int) -> None:
    rule = stored(make_rule(make_reason()))
    renamed = structs.replace(rule, meta=structs.replace(rule.meta, name=f"{rule.meta.name}{suffix}"))
    noted = noted_on(renamed)
    assert noted is not None
    assert (noted.number, noted.name) == (number, renamed.meta.name)


@pytest.mark.parametrize("suffix", ["-", "-1", "-0", "-02", "-x", "2", "-2-2", f"-{'9' * 5000}", "-²", "-٣"])
def test_name_that_only_begins_like_one_of_ours_is_none(suffix: str) -> None:
    rule = stored(make_rule(make_reason()))
    assert noted_on(structs.replace(rule, meta=structs.replace(rule.meta, name=f"{rule.meta.name}{suffix}"))) is None


@pytest.mark.parametrize(("returns", "counted"), [(-5, 0), (0, 0), (RETURNS_MAX, RETURNS_MAX), (10**9, RETURNS_MAX)])
def test_returns_are_read_within_their_bounds(returns: int, counted: int) -> None:
    noted = noted_on(rule_with(written(reason={"returns": returns}), AT_GPU))
    assert noted is not None
    assert noted.reasons[0].returns == counted


BROKEN = [
    "",
    "[]",
    "{}",
    "\ud800",
    written(device=None),
    written(device="a"),
    written(device="a/b"),
    written(device="/b/c"),
    written(device="a//c"),
    written(device="a/b/"),
    written(effect=None),
    written(reasons=[1]),
    written(reason={"since": "yesterday"}),
    written(reason={"clear": "yesterday"}),
    written(reason={"since": None}),
    written(reason={"returns": "1"}),
]


@pytest.mark.parametrize("text", BROKEN, ids=ascii)
def test_what_cannot_be_read_counts_as_no_reason_for_the_device_that_is_selected(text: str) -> None:
    assert noted_on(rule_with(text, DeviceSelector(*GPU))) == make_rule(level=ReactionLevel.EXECUTE)


@pytest.mark.parametrize(
    "selector",
    [
        None,
        DeviceSelector(),
        DeviceSelector(GPU.driver, GPU.pool),
        DeviceSelector(GPU.driver, None, GPU.device),
        DeviceSelector(None, GPU.pool, GPU.device),
        DeviceSelector(GPU.driver, GPU.pool, "gpu-1"),
    ],
    ids=str,
)
def test_what_cannot_be_read_and_selects_something_else_is_not_ours(selector: DeviceSelector | None) -> None:
    assert noted_on(rule_with("?", selector)) is None


def test_evict_of_a_rule_that_cannot_be_read_counts() -> None:
    rule = rule_with("?", DeviceSelector(*GPU), **{"devicetaint.io/evict": "true"})
    closing = DeviceTaintRule(rule.meta, rule.selector, DeviceTaint(REACTION_KEY, "", "NoSchedule"))
    assert noted_on(closing) == make_rule(level=ReactionLevel.EMPTY)


def test_too_many_reasons_leave_out_those_that_are_gone_and_then_the_youngest() -> None:
    assert REASONS_MAX == 16
    old = [make_reason(number, since=ago(1000 - number)) for number in range(REASONS_MAX)]
    young = make_reason(90, since=ago(1))
    gone = make_reason(91, since=ago(5000), clear=ago(5))
    noted = noted_on(stored(make_rule(young, gone, *old[::-1])))
    assert noted is not None
    assert noted.reasons == tuple(old)
    noted = noted_on(stored(make_rule(gone, young, *old[1:])))
    assert noted is not None
    assert noted.reasons == (*old[1:], young)


def test_description_is_bounded_in_bytes() -> None:
    reason = make_reason(id=ReasonId("ä" * 600, KEY))
    text = make_rule(reason).annotations[DESCRIPTION]
    assert len(text.encode()) == 1024
    assert text.startswith("Degraded: ääää")
    assert make_rule(make_reason(id=ReasonId("ab" + "ä" * 600, "k"))).annotations[DESCRIPTION].endswith("ä")


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (make_reason(), "r00 (gpu.example.com/xid=48)"),
        (make_reason(value=""), "r00 (gpu.example.com/xid)"),
        (make_reason(id=ReasonId(KEY, KEY)), "gpu.example.com/xid=48"),
        (make_reason(id=ReasonId(KEY, KEY), value=""), "gpu.example.com/xid"),
    ],
    ids=str,
)
def test_reason_reads_shortly(reason: ReactionReason, text: str) -> None:
    assert reason.text == text


CLOSING = Reaction("xid", GPU.driver, KEY)
EMPTYING = Reaction("xid", GPU.driver, KEY, evict=True)
EXECUTING = Reaction("xid", GPU.driver, KEY, effect="NoExecute")


@pytest.mark.parametrize("level", list(ReactionLevel))
def test_a_rule_that_does_no_more_than_a_reaction_may_come_of_it(level: ReactionLevel) -> None:
    rule = stored(make_rule(make_reason(), level=level))
    assert may_come_of_reactions(rule, [CLOSING]) is (level is ReactionLevel.CLOSE)
    assert may_come_of_reactions(rule, [CLOSING, EMPTYING]) is (level is not ReactionLevel.EXECUTE)
    assert may_come_of_reactions(rule, [EXECUTING])
    assert not may_come_of_reactions(rule, [])
    assert not may_come_of_reactions(rule, [Reaction("xid", "other", KEY, effect="NoExecute")])


@pytest.mark.parametrize(
    "selector",
    [
        None,
        DeviceSelector(),
        DeviceSelector(GPU.driver, GPU.pool),
        DeviceSelector(GPU.driver, GPU.pool, ""),
        DeviceSelector(GPU.driver, "", GPU.device),
        DeviceSelector(*GPU, device_class_name="gpu"),
        DeviceSelector(*GPU, unknown=(("all", "true"),)),
    ],
    ids=str,
)
def test_a_rule_for_more_than_a_device_comes_of_no_reaction(selector: DeviceSelector | None) -> None:
    rule = stored(make_rule(make_reason()))
    assert not may_come_of_reactions(DeviceTaintRule(rule.meta, selector, rule.taint), [EXECUTING])


@pytest.mark.parametrize("taint", [DeviceTaint("a", "", "NoSchedule"), DeviceTaint(REACTION_KEY, "a", "NoSchedule")])
def test_another_taint_comes_of_no_reaction(taint: DeviceTaint) -> None:
    rule = stored(make_rule(make_reason()))
    assert not may_come_of_reactions(DeviceTaintRule(rule.meta, rule.selector, taint), [EXECUTING])
