from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NOW
from tests.tables import table
from tests.unit.policy.documents import errors_in, judge_of, make_defaults, make_entry
from webhook.api.field import quoted
from webhook.api.taints import EXISTS, DeviceToleration
from webhook.policy.decide import defaults_for, overlap, rendered
from webhook.policy.match import Requester, Scope, Target
from webhook.validation.formats import label_key

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


@table(
    "own",
    {
        "the same taints for a shorter time": DeviceToleration("maint", EXISTS, "", "NoExecute", 5),
        "one of its taints": DeviceToleration("maint", "Equal", "v", ""),
        "every taint": DeviceToleration("", EXISTS),
        "the default itself": WAITING,
    },
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


@table(
    "fields, expected",
    {
        "what a rule denies is not added": ({"rules": [make_entry("no", "deny")]}, ()),
        "what a rule allows is": ({"default": "deny", "rules": [make_entry("ok", "allow")]}, (WAITING,)),
        "what a rule only tells is": ({"rules": [make_entry("told", "warn")]}, (WAITING,)),
        "too long for a rule": (
            {"rules": [make_entry("no", "deny", {"tolerations": {"seconds": {"above": 299}}})]},
            (),
        ),
        "what a rule that cannot be evaluated denies is not added": (
            {"rules": [make_entry("no", "deny", {"when": "toleration.tolerationSeconds > 1"})]},
            (),
        ),
    },
)
def test_policy_judges_what_it_adds(fields: Any, expected: tuple[DeviceToleration, ...]) -> None:
    assert added(**fields) == expected


@table(
    "match, expected",
    {
        "of that class": ({"deviceClasses": ["g*"]}, (WAITING,)),
        "of another class": ({"deviceClasses": ["nic"]}, ()),
        "in that namespace": ({"namespaces": {"names": ["train"]}}, (WAITING,)),
        "of another user": ({"requesters": {"users": ["joe"]}}, ()),
        "without the admin access that is asked for": ({"adminAccess": True}, ()),
        "whose condition cannot be evaluated": ({"when": "request.count > 1"}, ()),
    },
)
def test_default_is_for_what_it_matches(match: Any, expected: tuple[DeviceToleration, ...]) -> None:
    assert added(defaultTolerations=[{**make_defaults("wait", **WAIT), "match": match}]) == expected


@table(
    "match",
    {
        "for another class": {"deviceClasses": ["nic"]},
        "for another user": {"requesters": {"users": ["joe"]}},
        "that cannot be evaluated": {"when": "request.count > 1"},
    },
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
    one: DeviceToleration, other: DeviceToleration, *, meet: bool
) -> None:
    assert overlap(one, other) is overlap(other, one) is meet


def test_toleration_is_rendered_without_what_is_empty() -> None:
    assert rendered(WAITING) == {"key": "maint", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    assert rendered(DeviceToleration("a", "", "v", "", 0)) == {
        "key": "a",
        "operator": "Equal",
        "value": "v",
        "tolerationSeconds": 0,
    }


# --- keys -----------------------------------------------------------------------------------------


@table(
    "key, right",
    {
        "two dots": ("gpu..example.com/flaky", False),
        "a dot before a dash": ("gpu.-example.com/flaky", False),
        "a dash before a dot": ("gpu-.example.com/flaky", False),
        "a prefix of 254 characters": (f"{'a' * 254}/flaky", False),
        "dashes within": ("my--gpu.example-a.com/flaky", True),
        "two dots in the name": ("gpu.example.com/fla..ky", True),
        "a name alone": ("fla.-ky", True),
        "a prefix of 253 characters": (f"{'a' * 253}/flaky", True),
    },
)
def test_a_default_toleration_may_not_have_a_key_that_no_server_takes(key: str, *, right: bool) -> None:
    assert bool(label_key(key)) is not right
    errors = errors_in(defaultTolerations=[make_defaults(key=key, operator="Exists")])
    at, why = (
        "defaultTolerations[0].tolerations[0].key",
        "prefix part must be a DNS subdomain of at most 253 characters",
    )
    assert errors == ([] if right else [f"{at}: Invalid value: {quoted(key)}: {why}"])
