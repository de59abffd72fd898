"""Laws of confirmation codes: only the key makes them, and they hold for what was confirmed, or less, for a while."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.builders import NOW
from webhook.admission.confirmation import (
    CodeSubject,
    CodeTerms,
    ImpactToConfirm,
    Numbers,
    fault_of,
    make_code,
    read_code,
)
from webhook.api.rules import CELSelector, DeviceSelector

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

EXPIRES: Final = NOW + timedelta(hours=72)
ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.= \n\x00\N{SNOWMAN}"

texts: SearchStrategy[str] = st.text(st.characters(codec="utf-8"), max_size=6)
names = st.none() | texts
selectors: SearchStrategy[DeviceSelector] = st.builds(
    DeviceSelector,
    names,
    names,
    names,
    names,
    st.lists(st.builds(CELSelector, names), max_size=2).map(tuple),
    st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
)
abouts: SearchStrategy[CodeSubject] = st.builds(
    CodeSubject,
    texts,
    st.none() | selectors,
    texts,
    texts,
    st.sampled_from(["NoExecute", "NoSchedule"]),
    st.none() | st.integers(0, 10**6).map(lambda seconds: NOW - timedelta(seconds=seconds)),
)
keys = st.binary(min_size=16, max_size=40)
percents = st.integers(0, 300) | st.floats(0, 300, allow_nan=False)
numbers = st.integers(0, 10**6)


@st.composite
def hits(draw: DrawFn, most: int = 45) -> ImpactToConfirm:
    """Any numbers, and namespaces of which some are protected."""
    namespaces = draw(st.frozensets(st.integers(0, most).map(lambda number: f"ns-{number}"), max_size=most))
    protected = draw(st.frozensets(st.sampled_from(sorted(namespaces)), max_size=40)) if namespaces else frozenset()
    return ImpactToConfirm(Numbers(draw(numbers), draw(numbers), draw(numbers), len(namespaces)), namespaces, protected)


@st.composite
def smaller(draw: DrawFn, hit: ImpactToConfirm) -> ImpactToConfirm:
    """Nothing of it is more."""
    namespaces = frozenset(each for each in sorted(hit.namespaces) if draw(st.booleans()))
    protected = frozenset(each for each in sorted(hit.protected & namespaces) if draw(st.booleans()))
    devices, claims, pods = (draw(st.integers(0, number)) for number in hit.numbers[:3])
    return ImpactToConfirm(Numbers(devices, claims, pods, len(namespaces)), namespaces, protected)


def terms(percent: float = 10, after: float = 0, user: str | None = None) -> CodeTerms:
    return CodeTerms(NOW + timedelta(seconds=after), percent, user)


# --- what holds ---------------------------------------------------------------------------------


@given(abouts, hits(), texts, keys, percents, st.data())
def test_code_holds_for_what_was_confirmed_and_anything_smaller(
    about: CodeSubject, hit: ImpactToConfirm, user: str, key: bytes, percent: float, data: Any
) -> None:
    code = make_code(about, hit, user, EXPIRES, key)
    assert fault_of(code, about, hit, terms(percent), key) is None
    assert fault_of(code, about, data.draw(smaller(hit)), terms(percent), key) is None


@given(abouts, hits(), texts, keys)
def test_code_says_what_was_confirmed(about: CodeSubject, hit: ImpactToConfirm, user: str, key: bytes) -> None:
    code = read_code(make_code(about, hit, user, EXPIRES, key))
    assert code is not None
    assert (code.expires, code.numbers) == (EXPIRES, hit.numbers)


@given(abouts, hits(), texts, keys, st.floats(-1e6, 1e6))
def test_code_holds_until_it_expires(
    about: CodeSubject, hit: ImpactToConfirm, user: str, key: bytes, after: float
) -> None:
    code = make_code(about, hit, user, EXPIRES, key)
    fault = fault_of(code, about, hit, terms(after=after), key)
    assert (fault is None) is (NOW + timedelta(seconds=after) < EXPIRES)


@given(abouts, hits(), texts, texts, keys)
def test_second_person_is_anybody_but_the_first(
    about: CodeSubject, hit: ImpactToConfirm, user: str, other: str, key: bytes
) -> None:
    code = make_code(about, hit, user, EXPIRES, key)
    assert (fault_of(code, about, hit, terms(user=other), key) is None) is (user != other)


# --- what does not ------------------------------------------------------------------------------


@given(abouts, hits(), texts, keys, st.data())
def test_code_with_any_character_changed_is_none(
    about: CodeSubject, hit: ImpactToConfirm, user: str, key: bytes, data: Any
) -> None:
    code = make_code(about, hit, user, EXPIRES, key)
    at = data.draw(st.integers(0, len(code) - 1))
    other = data.draw(st.sampled_from(ALPHABET))
    assume(code[at] != other)
    for forged in (f"{code[:at]}{other}{code[at + 1 :]}", f"{code[:at]}{other}{code[at:]}", code[:at] + code[at + 1 :]):
        if forged != code:
            assert fault_of(forged, about, hit, terms(10**6), key) is not None


@given(abouts, hits(), texts, keys, keys)
def test_code_of_another_key_is_none(
    about: CodeSubject, hit: ImpactToConfirm, user: str, key: bytes, other: bytes
) -> None:
    # HMAC fills keys up with zeros; those of the cluster have 32 random bytes.
    assume(key.rstrip(b"\0") != other.rstrip(b"\0"))
    code = make_code(about, hit, user, EXPIRES, other)
    assert fault_of(code, about, hit, terms(), key) is not None


@given(abouts, abouts, hits(), texts, keys, st.data())
def test_code_of_another_rule_is_none(
    about: CodeSubject, others: CodeSubject, hit: ImpactToConfirm, user: str, key: bytes, data: Any
) -> None:
    """Another in any one respect, or in several."""
    fields = data.draw(st.sets(st.sampled_from(CodeSubject._fields), min_size=1))
    other = about._replace(**{field: getattr(others, field) for field in fields})
    assume(other != about)
    assert fault_of(make_code(other, hit, user, EXPIRES, key), about, hit, terms(10**6), key) is not None


@given(abouts, texts, texts, texts, keys)
def test_key_and_value_do_not_run_into_each_other(about: CodeSubject, a: str, b: str, c: str, key: bytes) -> None:
    one, other = about._replace(key=a + b, value=c), about._replace(key=a, value=b + c)
    assume(one != other)
    hit = ImpactToConfirm(Numbers(1, 1, 1, 0), frozenset(), frozenset())
    assert fault_of(make_code(one, hit, "", EXPIRES, key), other, hit, terms(), key) is not None


@given(abouts, hits(), hits(), texts, keys, percents)
def test_number_beyond_the_tolerance_is_refused(
    about: CodeSubject, hit: ImpactToConfirm, now: ImpactToConfirm, user: str, key: bytes, percent: float
) -> None:
    fault = fault_of(make_code(about, hit, user, EXPIRES, key), about, now, terms(percent), key)
    pairs = list(zip(hit.numbers, now.numbers, strict=True))
    if any(after > before + before * percent / 100 for before, after in pairs):
        assert fault is not None


@given(abouts, hits(), hits(), texts, keys, percents)
def test_protected_namespace_that_was_not_hit_is_refused(
    about: CodeSubject, hit: ImpactToConfirm, now: ImpactToConfirm, user: str, key: bytes, percent: float
) -> None:
    fault = fault_of(make_code(about, hit, user, EXPIRES, key), about, now, terms(percent), key)
    if now.protected - hit.namespaces:
        assert fault is not None


@given(abouts, hits(32), hits(32), texts, keys, percents)
def test_strangers_beyond_the_tolerance_are_refused(
    about: CodeSubject, hit: ImpactToConfirm, now: ImpactToConfirm, user: str, key: bytes, percent: float
) -> None:
    assume(len(hit.namespaces) <= 32)
    same = now._replace(numbers=Numbers(*hit.numbers[:3], len(now.namespaces)))
    fault = fault_of(make_code(about, hit, user, EXPIRES, key), about, same, terms(percent), key)
    if len(now.namespaces - hit.namespaces) > len(hit.namespaces) * percent / 100:
        assert fault is not None


# --- hostile ------------------------------------------------------------------------------------

shaped = st.tuples(
    st.sampled_from(["v1", "v2", "", "V1"]),
    *[st.integers(-(10**13), 10**13).map(str) | st.text(max_size=3)] * 5,
    st.text(ALPHABET, max_size=60),
).map(".".join)


@given(st.text(max_size=80) | shaped | st.from_regex(r"v1(\.[0-9]{1,12}){5}\.[A-Za-z0-9_-]{1,60}", fullmatch=True))
def test_any_text_can_be_read(text: str) -> None:
    hit = ImpactToConfirm(Numbers(1, 1, 1, 1), frozenset({"ml"}), frozenset())
    about = CodeSubject("a", None, "", "", "NoExecute", None)
    assert read_code(text) is None or read_code(text.strip()) is not None
    assert fault_of(text, about, hit, terms(), b"k" * 32) is not None
