"""The formats of names agree with a second implementation, which looks at one character at a time."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Final

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import decoded, make_rule
from webhook.api.field import Path
from webhook.validation.formats import (
    c_identifier,
    condition_reason,
    dns1123_label,
    dns1123_subdomain,
    driver_name,
    is_driver_name,
    is_pool_name,
    label_key,
    label_value,
    pool_name,
)

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

AT: Final = Path.root()
LOWER: Final = frozenset(string.ascii_lowercase + string.digits)
ALPHANUMERIC: Final = frozenset(string.ascii_letters + string.digits)

_pieces = st.sampled_from(
    [
        "a",
        "Z",
        "9",
        "-",
        "_",
        ".",
        "/",
        "b0",
        "a.b",
        "x-y",
        "\n",
        " ",
        "\u00fc",
        "\u212a",
        "\u0130",
        "a" * 21,
        "b" * 62,
        "c" * 189,
    ]
)
texts: SearchStrategy[str] = st.one_of(
    st.lists(_pieces, max_size=6).map("".join),
    st.text(max_size=6),
    st.builds(lambda piece, count: piece * count, _pieces, st.integers(0, 300)),
)


def size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def is_name(text: str) -> bool:
    middle = ALPHANUMERIC | set("-_.")
    return bool(text) and text[0] in ALPHANUMERIC and text[-1] in ALPHANUMERIC and all(each in middle for each in text)


def is_label(text: str) -> bool:
    middle = LOWER | {"-"}
    return bool(text) and text[0] in LOWER and text[-1] in LOWER and all(each in middle for each in text)


def is_subdomain(text: str) -> bool:
    return size(text) <= 253 and all(is_label(part) for part in text.split("."))


def is_key(text: str) -> bool:
    parts = text.split("/")
    if len(parts) > 2:
        return False
    name = parts[-1]
    return is_name(name) and size(name) <= 63 and (len(parts) == 1 or is_subdomain(parts[0]))


@given(texts)
def test_label_key(text: str) -> None:
    assert (label_key(text) == ()) == is_key(text)


@given(texts)
def test_label_value(text: str) -> None:
    assert (label_value(text) == ()) == (text == "" or (is_name(text) and size(text) <= 63))


@given(texts)
def test_subdomain(text: str) -> None:
    assert (dns1123_subdomain(text) == ()) == is_subdomain(text)


@given(texts)
def test_label(text: str) -> None:
    assert (dns1123_label(text) == ()) == (is_label(text) and size(text) <= 63)


@given(texts)
def test_driver(text: str) -> None:
    simple = {"\u212a": "k", "\u0130": "i"}
    lower = "".join(simple.get(each, each.lower() if len(each.lower()) == 1 else each) for each in text)
    right = size(text) <= 63 and is_subdomain(lower)
    assert (not list(driver_name(AT, text))) == right
    assert is_driver_name(text) == (right and text.isascii())


@given(texts)
def test_pool(text: str) -> None:
    right = size(text) <= 253 and all(is_subdomain(part) for part in text.split("/"))
    assert (not list(pool_name(AT, text))) == right
    assert is_pool_name(text) == right


@given(texts)
def test_identifier(text: str) -> None:
    first = set(string.ascii_letters + "_")
    right = bool(text) and text[0] in first and all(each in first or each in string.digits for each in text)
    assert (c_identifier(text) == ()) == right


@given(st.one_of(texts, st.text(alphabet="aZ9_,:-", max_size=5)))
def test_reason(text: str) -> None:
    inner = ALPHANUMERIC | set("_,:")
    right = (
        bool(text)
        and text[0] in string.ascii_letters
        and text[-1] in ALPHANUMERIC | {"_"}
        and all(each in inner for each in text)
    )
    assert (condition_reason(text) == ()) == right


@given(texts)
def test_answers_do_not_depend_on_what_was_asked_before(text: str) -> None:
    assert label_key(text) == label_key(text)
    assert label_value(text) == label_value(text)
    assert decoded(make_rule(selector={"driver": text})) == decoded(make_rule(selector={"driver": text}))
