"""Taint by toleration, for allocation and for both evictors, and what a selector selects."""

from __future__ import annotations

import pytest

from tests.unit.inventory.values import DRIVER, KEY, POOL, taint
from webhook.api.rules import CELSelector, DeviceSelector
from webhook.api.taints import DeviceTaint, DeviceToleration
from webhook.inventory.pools import FOR_EVER, LONG_AGO, Evictor, acts, grace_seconds, selects, tolerates

T = DeviceToleration


@pytest.mark.parametrize(
    ("toleration", "on", "covered"),
    [
        pytest.param(T(KEY, "Exists"), taint("NoSchedule"), True, id="no effect covers NoSchedule"),
        pytest.param(T(KEY, "Exists"), taint("NoExecute"), True, id="no effect covers NoExecute"),
        pytest.param(T(KEY, "Exists", "", "NoExecute"), taint("NoExecute"), True, id="the same effect"),
        pytest.param(T(KEY, "Exists", "", "NoExecute"), taint("NoSchedule"), False, id="NoExecute is not NoSchedule"),
        pytest.param(T(KEY, "Exists", "", "NoSchedule"), taint("NoExecute"), False, id="NoSchedule is not NoExecute"),
        pytest.param(T(KEY, "Exists", "", "Later"), taint("Later"), True, id="an effect that nobody knows yet"),
        pytest.param(T("", "Exists"), taint(), True, id="no key covers every key"),
        pytest.param(T(KEY, "Exists"), taint(key="example.com/other"), False, id="another key"),
        pytest.param(T("unhealthy", "Exists"), taint(), False, id="a key without its prefix"),
        pytest.param(T(KEY.upper(), "Exists"), taint(), False, id="a key in another case"),
        pytest.param(T(KEY, "Exists", "a"), taint(value="b"), True, id="Exists ignores values"),
        pytest.param(T(KEY, "Equal", "a"), taint(value="a"), True, id="Equal and equal"),
        pytest.param(T(KEY, "Equal", "a"), taint(value="b"), False, id="Equal and not equal"),
        pytest.param(T(KEY, "Equal"), taint(value=""), True, id="no value equals no value"),
        pytest.param(T(KEY, "", "a"), taint(value="a"), True, id="no operator is Equal, values equal"),
        pytest.param(T(KEY, "", "a"), taint(value="b"), False, id="no operator is Equal, values not equal"),
        pytest.param(T("", "Equal", "a"), taint(value="a"), True, id="no key with Equal is any key of that value"),
        pytest.param(T("", "Equal", "a"), taint(value="b"), False, id="no key with Equal and another value"),
        pytest.param(T("", ""), taint(), True, id="an empty toleration covers taints without value"),
        pytest.param(T("", ""), taint(value="a"), False, id="an empty toleration does not cover a value"),
        pytest.param(T(KEY, "Gt", "1"), taint(value="2"), False, id="operators of node taints do not exist"),
        pytest.param(T(KEY, "exists"), taint(), False, id="an operator in another case"),
    ],
)
def test_toleration_covers_taint(toleration: DeviceToleration, on: DeviceTaint, *, covered: bool) -> None:
    assert tolerates(toleration, on) is covered


@pytest.mark.parametrize(
    ("effect", "does"),
    [
        ("NoSchedule", True),
        ("NoExecute", True),
        ("None", False),
        pytest.param("Later", False, id="an effect that is not known yet"),
        pytest.param("", False, id="no effect"),
    ],
)
def test_only_two_effects_do_anything(effect: str, *, does: bool) -> None:
    assert acts(effect) is does


def no_execute(seconds: int | None = None, key: str = KEY) -> DeviceToleration:
    return T(key, "Exists", "", "NoExecute", seconds)


def any_effect(seconds: int | None = None) -> DeviceToleration:
    return T(KEY, "Exists", "", "", seconds)


@pytest.mark.parametrize(
    ("tolerations", "in_tree", "ours"),
    [
        pytest.param((), 0, 0, id="nothing tolerated"),
        pytest.param((no_execute(),), FOR_EVER, FOR_EVER, id="without seconds it is for ever"),
        pytest.param((no_execute(30),), 30, 30, id="for some seconds"),
        pytest.param((no_execute(0),), 0, 0, id="zero seconds are none"),
        pytest.param((no_execute(-5),), 0, 0, id="fewer than zero are none"),
        pytest.param((no_execute(60), no_execute(30)), 30, 30, id="the smallest of two"),
        pytest.param((no_execute(60), no_execute(-1)), 0, 0, id="one of two is negative"),
        pytest.param((no_execute(0), no_execute()), FOR_EVER, FOR_EVER, id="one without seconds wins, last"),
        pytest.param((no_execute(), no_execute(0)), FOR_EVER, FOR_EVER, id="one without seconds wins, first"),
        pytest.param((no_execute(30), no_execute(5, key="other")), 30, 30, id="what does not match does not count"),
        pytest.param((no_execute(5, key="other"), no_execute(30)), 30, 30, id="likewise before one that does"),
        pytest.param((any_effect(),), 0, FOR_EVER, id="an empty effect counts for us only"),
        pytest.param((any_effect(30),), 0, 30, id="an empty effect with seconds, likewise"),
        pytest.param((any_effect(), no_execute(30)), 30, FOR_EVER, id="an empty effect beside one that is named"),
        pytest.param((any_effect(5), no_execute(30)), 30, 5, id="an empty effect with fewer seconds"),
        pytest.param((T(KEY, "Exists", "", "NoSchedule"),), 0, 0, id="NoSchedule is tolerated, which does not help"),
        pytest.param((no_execute(9223372036),), 9223372036, 9223372036, id="the longest that fits 64 bits"),
        pytest.param((no_execute(9223372037),), LONG_AGO, 9223372037, id="one second more is in the past"),
        # 18446744074 s are 2**64 + 290448384 ns: a quarter of a second, after one turn.
        pytest.param((no_execute(18446744074),), 0, 18446744074, id="one whole turn"),
        pytest.param((no_execute(18446744074 + 60),), 60, 18446744134, id="one whole turn and a minute"),
        pytest.param((no_execute(2**63 - 1),), LONG_AGO, 2**63 - 1, id="the largest number there is: minus one second"),
        pytest.param((no_execute(2**63 - 1), no_execute(60)), 60, 60, id="the smallest is taken before it wraps"),
    ],
)
def test_grace(tolerations: tuple[T, ...], in_tree: int, ours: int) -> None:
    assert grace_seconds(tolerations, taint(), Evictor.IN_TREE) == in_tree
    assert grace_seconds(tolerations, taint(), Evictor.OURS) == ours


OTHER = "other"


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        pytest.param(None, False, id="missing"),
        pytest.param(DeviceSelector(), True, id="empty"),
        pytest.param(DeviceSelector(DRIVER), True, id="driver"),
        pytest.param(DeviceSelector(OTHER), False, id="another driver"),
        pytest.param(DeviceSelector(pool=POOL), True, id="pool"),
        pytest.param(DeviceSelector(pool=OTHER), False, id="another pool"),
        pytest.param(DeviceSelector(device="gpu-0"), True, id="device"),
        pytest.param(DeviceSelector(device=OTHER), False, id="another device"),
        pytest.param(DeviceSelector(DRIVER, POOL, "gpu-0"), True, id="all three"),
        pytest.param(DeviceSelector(DRIVER, OTHER, "gpu-0"), False, id="all three, one of them other"),
        pytest.param(DeviceSelector(""), False, id="empty text is a name that nothing has"),
        pytest.param(
            DeviceSelector(unknown=(("labels", "true"),)), True, id="too wide rather than too narrow: unknown fields"
        ),
        pytest.param(DeviceSelector(OTHER, unknown=(("or", "true"),)), True, id="R8: an unknown field beside a name"),
        pytest.param(DeviceSelector(device_class_name="gpu"), True, id="too wide: a class"),
        pytest.param(DeviceSelector(selectors=(CELSelector("false"),)), True, id="too wide: an expression"),
        pytest.param(DeviceSelector(OTHER, device_class_name="gpu"), False, id="a class and another driver"),
    ],
)
def test_selector_selects(selector: DeviceSelector | None, *, selected: bool) -> None:
    assert selects(selector, DRIVER, POOL, "gpu-0") is selected
