from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NOW
from tests.unit.policy.documents import judge_of, make_defaults, make_entry
from webhook.api.taints import EXISTS, DeviceToleration
from webhook.policy.decide import defaults_for, overlap, rendered
from webhook.policy.match import Requester, Scope, Target

# The documentation and earlier policies rely on these numbers, so they are written out.
TOLERATIONS_MAX = 16

SCOPE = Scope(Requester("jane"), "train", None)
TARGET = Target("gpu", frozenset({"gpu.example.com"}), admin_access=False)
WAIT = {"key": "maint", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
WAITING = DeviceToleration("maint", EXISTS, "", "NoExecute", 300)


def added(
    *present: DeviceToleration, rules: Any = (), target: Target = TARGET, **fields: Any
) -> tuple[DeviceToleration, ...]:
    judge = judge_of(*rules, **{"defaultTolerations": [make_defaults("wait", **WAIT)], **fields})
    return defaults_for(judge, SCOPE, target, present, NOW, lambda _: dict)


def test_request_that_says_nothing_gets_the_default() -> None:
    assert added() == (WAITING,)


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(DeviceToleration("maint", EXISTS, "", "NoExecute", 5), id="the same taints for a shorter time"),
        pytest.param(DeviceToleration("maint", "Equal", "v", ""), id="one of its taints"),
        pytest.param(DeviceToleration("", EXISTS), id="every taint"),
        pytest.param(WAITING, id="the default itself"),
    ],
)
def test_who_says_something_about_a_taint_is_left_to_it(own: DeviceToleration) -> None:
    assert added(own) == ()


def test_tolerations_of_other_taints_keep_nothing_away() -> None:
    assert added(DeviceToleration("xid", EXISTS), DeviceToleration("maint", EXISTS, "", "NoSchedule")) == (WAITING,)


@pytest.mark.parametrize("present", [TOLERATIONS_MAX - 1, TOLERATIONS_MAX, TOLERATIONS_MAX + 1])
def test_never_more_than_the_documents_allow_are_there_afterwards(present: int) -> None:
    """`semantics.md` L-8."""
    entries = [make_defaults("one", **WAIT), make_defaults("two", key="other", operator="Exists")]
    own = [DeviceToleration(f"own-{number}", EXISTS) for number in range(present)]
    assert len(added(*own, defaultTolerations=entries)) == max(0, TOLERATIONS_MAX - present)


def test_first_of_two_defaults_that_overlap_wins() -> None:
    entries = [make_defaults("wait", **WAIT), make_defaults("all", operator="Exists")]
    assert added(defaultTolerations=entries) == (WAITING,)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"rules": [make_entry("no", "deny")]}, (), id="what a rule denies is not added"),
        pytest.param({"default": "deny", "rules": [make_entry("ok", "allow")]}, (WAITING,), id="what a rule allows is"),
        pytest.param({"rules": [make_entry("told", "warn")]}, (WAITING,), id="what a rule only tells is"),
        pytest.param(
            {"rules": [make_entry("no", "deny", {"tolerations": {"seconds": {"above": 299}}})]},
            (),
            id="too long for a rule",
        ),
        pytest.param(
            {"rules": [make_entry("no", "deny", {"when": "toleration.tolerationSeconds > 1"})]},
            (),
            id="what a rule that cannot be evaluated denies is not added",
        ),
    ],
)
def test_policy_judges_what_it_adds(fields: Any, expected: tuple[DeviceToleration, ...]) -> None:
    assert added(**fields) == expected


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        pytest.param({"deviceClasses": ["g*"]}, (WAITING,), id="of that class"),
        pytest.param({"deviceClasses": ["nic"]}, (), id="of another class"),
        pytest.param({"namespaces": {"names": ["train"]}}, (WAITING,), id="in that namespace"),
        pytest.param({"requesters": {"users": ["joe"]}}, (), id="of another user"),
        pytest.param({"adminAccess": True}, (), id="without the admin access that is asked for"),
        pytest.param({"when": "request.count > 1"}, (), id="whose condition cannot be evaluated"),
    ],
)
def test_default_is_for_what_it_matches(match: Any, expected: tuple[DeviceToleration, ...]) -> None:
    assert added(defaultTolerations=[{**make_defaults("wait", **WAIT), "match": match}]) == expected


@pytest.mark.parametrize(
    "match",
    [
        pytest.param({"deviceClasses": ["nic"]}, id="for another class"),
        pytest.param({"requesters": {"users": ["joe"]}}, id="for another user"),
        pytest.param({"when": "request.count > 1"}, id="that cannot be evaluated"),
    ],
)
def test_default_that_does_not_apply_keeps_no_other_away(match: Any) -> None:
    first = {**make_defaults("first", key="other", operator="Exists"), "match": match}
    assert added(defaultTolerations=[first, make_defaults("wait", **WAIT)]) == (WAITING,)


def test_class_that_is_not_known_gets_no_default_for_drivers() -> None:
    entry = {**make_defaults("wait", **WAIT), "match": {"drivers": ["gpu.example.com"]}}
    assert added(defaultTolerations=[entry]) == (WAITING,)
    assert added(defaultTolerations=[entry], target=TARGET._replace(drivers=None)) == ()


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (DeviceToleration("a", "Equal", "v"), DeviceToleration("a", "", "v"), True),
        (DeviceToleration("a", "Equal", "v"), DeviceToleration("a", "Equal", "w"), False),
        (DeviceToleration("a", "Equal", "v"), DeviceToleration("a", EXISTS), True),
        (DeviceToleration("a", EXISTS), DeviceToleration("b", EXISTS), False),
        (DeviceToleration("", EXISTS), DeviceToleration("b", EXISTS), True),
        (DeviceToleration("a", EXISTS, "", "None"), DeviceToleration("a", EXISTS, "", "NoSchedule"), False),
        (DeviceToleration("a", EXISTS, "", "None"), DeviceToleration("a", EXISTS), True),
    ],
)
def test_tolerations_overlap_where_a_taint_is_tolerated_by_both(
    one: DeviceToleration,
    other: DeviceToleration,
    meet: bool,  # noqa: FBT001 -- a table's
) -> None:
    assert overlap(one, other) is overlap(other, one) is meet


def test_toleration_is_rendered_without_what_is_empty() -> None:
    assert rendered(WAITING) == {
        "key": "maint",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    assert rendered(DeviceToleration("a", "", "v", "", 0)) == {
        "key": "a",
        "operator": "Equal",
        "value": "v",
        "tolerationSeconds": 0,
    }
