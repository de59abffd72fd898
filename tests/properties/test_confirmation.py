"""Laws of confirmations: they hold for what was confirmed, or less, and for one object alone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import structs

from tests.builders import NOW
from webhook.admission.confirmation import (
    Confirmation,
    ImpactToConfirm,
    Numbers,
    confirms,
    digest_of,
    exceeded,
    overstated,
    read_text,
    text_of,
)
from webhook.api.meta import ObjectMeta
from webhook.api.rules import EVICT, SCOPE, CELSelector, DeviceSelector, DeviceTaintRule
from webhook.api.taints import DeviceTaint

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789=,-_ \n\x00\N{SNOWMAN}"

texts: SearchStrategy[str] = st.text(st.characters(codec="utf-8"), max_size=6)
names = st.none() | texts
selectors: SearchStrategy[DeviceSelector] = st.builds(
    DeviceSelector,
    names,
    names,
    names,
    names,
    st.lists(st.builds(CELSelector, names), max_size=2).map(tuple),
    st.lists(st.tuples(texts, texts), max_size=2, unique_by=lambda each: each[0]).map(tuple),
)
metas: SearchStrategy[ObjectMeta] = st.builds(
    ObjectMeta,
    name=texts,
    annotations=st.dictionaries(st.sampled_from([EVICT, SCOPE]), st.sampled_from(["true", "hardware", "x"])),
)
taints: SearchStrategy[DeviceTaint] = st.builds(
    DeviceTaint,
    texts,
    texts,
    st.sampled_from(["None", "NoExecute", "NoSchedule"]),
    st.none() | st.integers(-100, 10**6).map(lambda seconds: NOW - timedelta(seconds=seconds)),
)
rules: SearchStrategy[DeviceTaintRule] = st.builds(
    DeviceTaintRule,
    metas,
    st.none() | selectors,
    taints,
    st.just(()),
    st.just(0),
    st.just(False),  # noqa: FBT003
)
moments = st.none() | st.just(NOW - timedelta(seconds=60))
percents = st.integers(0, 300) | st.floats(0, 300, allow_nan=False)
numbers = st.integers(0, 10**6)
protected = st.frozensets(st.integers(0, 20).map(lambda number: f"ns-{number}"), max_size=20)
hits: SearchStrategy[ImpactToConfirm] = st.builds(
    ImpactToConfirm, st.builds(Numbers, numbers, numbers, numbers, numbers), protected, numbers, numbers
)
digests = st.from_regex(r"[a-z2-7]{16}", fullmatch=True)


def of(rule: DeviceTaintRule, since: Any = None) -> str:
    return digest_of(rule, rule.meta.name, since)


# --- the text ------------------------------------------------------------------------------------


@given(hits, digests)
def test_text_says_what_was_confirmed(hit: ImpactToConfirm, digest: str) -> None:
    assert read_text(text_of(hit, digest)) == Confirmation(hit, digest)


@given(hits, digests, st.data())
def test_text_with_any_character_changed_says_something_else_or_the_same(
    hit: ImpactToConfirm, digest: str, data: Any
) -> None:
    """Nothing is read that was not written."""
    text = text_of(hit, digest)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(ALPHABET))
    for changed in (
        f"{text[:at]}{other}{text[at + 1 :]}",
        f"{text[:at]}{other}{text[at:]}",
        text[:at] + text[at + 1 :],
    ):
        read = read_text(changed)
        if read is not None:
            assert read_text(text_of(*read)) == read


@given(st.text(max_size=80) | st.from_regex(r"v1( [a-z]{1,10}=[0-9a-z,]{0,12}){1,8}", fullmatch=True))
def test_any_text_can_be_read(text: str) -> None:
    read = read_text(text)
    assert read is None or read_text(text_of(*read)) == read


# --- what it holds for ---------------------------------------------------------------------------


@given(hits, percents, st.data())
def test_text_holds_for_what_was_confirmed_and_anything_smaller(
    hit: ImpactToConfirm, percent: float, data: Any
) -> None:
    assert exceeded(hit, hit, percent) is None
    fewer = Numbers(*[data.draw(st.integers(0, number)) for number in hit.numbers])
    less = frozenset(each for each in sorted(hit.protected) if data.draw(st.booleans()))
    assert exceeded(hit, ImpactToConfirm(fewer, less, data.draw(st.integers(0, hit.unknown))), percent) is None


@given(hits, hits, percents)
def test_what_goes_beyond_the_tolerance_is_refused(hit: ImpactToConfirm, now: ImpactToConfirm, percent: float) -> None:
    pairs = [*zip(hit.numbers, now.numbers, strict=True), (hit.unknown, now.unknown)]
    beyond = any(after > before + before * percent / 100 + 1 for before, after in pairs)
    if beyond or now.protected - hit.protected:
        assert exceeded(hit, now, percent) is not None


@given(hits, hits)
def test_no_figure_may_say_more_than_twice_and_fifty_more(hit: ImpactToConfirm, now: ImpactToConfirm) -> None:
    pairs = [*zip(hit.numbers, now.numbers, strict=True), (hit.unknown, now.unknown), (hit.done, now.done)]
    far = any(said > 2 * today and said > today + 50 for said, today in pairs)
    assert (overstated(hit, now) is not None) is far


# --- what it is of -------------------------------------------------------------------------------


def acts_as(rule: DeviceTaintRule, since: Any) -> tuple[Any, ...]:
    """All that a confirmation is of."""
    said, taint = rule.meta.annotations, rule.taint
    past = since is not None and taint.time_added is not None and taint.time_added < since
    time = taint.time_added.replace(microsecond=0) if past and taint.time_added else None
    selector = rule.selector
    if selector is not None:
        selector = structs.replace(selector, unknown=tuple(sorted(selector.unknown)))
    who = said.get(EVICT) == "true", said.get(SCOPE, "")
    return rule.meta.name, selector, taint.key, taint.value, taint.effect, *who, time


@given(rules, rules, moments, st.data())
def test_text_of_another_rule_is_none(one: DeviceTaintRule, other: DeviceTaintRule, since: Any, data: Any) -> None:
    """Another in any one respect, or in several."""
    fields = data.draw(st.sets(st.sampled_from(["meta", "selector", "taint"]), min_size=1))
    changed = structs.replace(one, **{field: getattr(other, field) for field in fields})
    assert (of(one, since) == of(changed, since)) is (acts_as(one, since) == acts_as(changed, since))


@given(rules, texts, texts, texts)
def test_key_and_value_do_not_run_into_each_other(rule: DeviceTaintRule, a: str, b: str, c: str) -> None:
    one = structs.replace(rule, taint=structs.replace(rule.taint, key=a + b, value=c))
    other = structs.replace(rule, taint=structs.replace(rule.taint, key=a, value=b + c))
    assume(one != other)
    assert of(one) != of(other)


@given(rules, moments)
def test_worker_takes_what_admission_took(rule: DeviceTaintRule, since: Any) -> None:
    assume(rule.meta.name)
    assert confirms(of(rule, since), rule)
