"""`shadows` agrees with an oracle that tries every taint of a small world, in every company."""

from __future__ import annotations

from itertools import product
from typing import Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from webhook.admission.lint import shadows, tolerations_lint
from webhook.api.field import Path
from webhook.api.taints import EQUAL, EXISTS, NO_EXECUTE, NO_SCHEDULE, DeviceTaint, DeviceToleration

# One key and one value more than tolerations can name: what is said of "all" must differ from what is said of each.
TAINTS: Final = [
    DeviceTaint(key, value, effect)
    for key, value, effect in product(("a", "b", "c"), ("", "v", "w", "x"), ("None", NO_SCHEDULE, NO_EXECUTE))
]
FOREVER: Final = float("inf")

tolerations = st.one_of(
    st.builds(
        DeviceToleration,
        st.sampled_from(("", "a", "b")),
        st.just(EXISTS),
        st.just(""),
        st.sampled_from(("", "None", NO_SCHEDULE, NO_EXECUTE)),
        st.sampled_from((None, -1, 0, 5, 9)),
    ),
    st.builds(
        DeviceToleration,
        st.sampled_from(("", "a", "b")),
        st.sampled_from(("", EQUAL)),
        st.sampled_from(("", "v", "w")),
        st.sampled_from(("", "None", NO_SCHEDULE, NO_EXECUTE)),
        st.sampled_from((None, -1, 0, 5, 9)),
    ),
)


def matches(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """M-1 to M-3."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    return toleration.operator == EXISTS or toleration.value == taint.value


def may_be_allocated(taint: DeviceTaint, listed: list[DeviceToleration]) -> bool:
    """L-15: effects that nobody acts on need no toleration."""
    return taint.effect == "None" or any(matches(each, taint) for each in listed)


def stays_for(taint: DeviceTaint, listed: list[DeviceToleration], *, in_tree: bool) -> float | None:
    """How many seconds a pod may stay (E-9, E-10); None where no entry has a say."""
    if taint.effect != NO_EXECUTE:
        return FOREVER
    relevant = [each for each in listed if matches(each, taint) and (each.effect == NO_EXECUTE or not in_tree)]
    if any(each.toleration_seconds is None for each in relevant):
        return FOREVER
    return min((max(each.toleration_seconds or 0, 0) for each in relevant), default=None)


def adds_nothing(wide: DeviceToleration, narrow: DeviceToleration) -> bool:
    """Whether every taint fares the same with and without `narrow`, whatever else is listed.

    That nobody has a say counts as another outcome than no time at all: beside a third entry it is.
    """
    without, beside = [wide], [wide, narrow]
    return all(
        may_be_allocated(taint, without) == may_be_allocated(taint, beside)
        and all(
            stays_for(taint, without, in_tree=in_tree) == stays_for(taint, beside, in_tree=in_tree)
            for in_tree in (True, False)
        )
        for taint in TAINTS
    )


@settings(max_examples=max(300, settings().max_examples))
@given(tolerations, tolerations)
def test_what_is_shadowed_adds_nothing(wide: DeviceToleration, narrow: DeviceToleration) -> None:
    if shadows(wide, narrow):
        assert adds_nothing(wide, narrow)


@settings(max_examples=max(300, settings().max_examples))
@example(
    DeviceToleration(effect=NO_EXECUTE, toleration_seconds=0),
    DeviceToleration("a", effect=NO_EXECUTE, toleration_seconds=-1),
)
@given(tolerations, tolerations.filter(lambda each: each.effect != "None"))
def test_what_adds_nothing_is_shadowed(wide: DeviceToleration, narrow: DeviceToleration) -> None:
    """Effect None aside: such entries never add anything, which is another piece of advice."""
    assert shadows(wide, narrow) == adds_nothing(wide, narrow)


@given(tolerations, tolerations, tolerations)
def test_shadows_is_transitive(a: DeviceToleration, b: DeviceToleration, c: DeviceToleration) -> None:
    assert shadows(a, a)
    if shadows(a, b) and shadows(b, c):
        assert shadows(a, c)


@given(st.lists(tolerations, max_size=6))
def test_all_entries_that_advice_calls_superfluous_can_go_at_once(listed: list[DeviceToleration]) -> None:
    superfluous = {
        int(finding.error.field.rpartition("[")[2].rstrip("]"))
        for finding in tolerations_lint(Path.root().child("t"), listed)
        if finding.code in ("DT003", "DT004")
    }
    kept = [each for position, each in enumerate(listed) if position not in superfluous]
    for taint in TAINTS:
        assert may_be_allocated(taint, kept) == may_be_allocated(taint, listed)
        for in_tree in (True, False):
            assert stays_for(taint, kept, in_tree=in_tree) == stays_for(taint, listed, in_tree=in_tree)
