"""The index by keys and values: what it remembers is bounded. That it finds every rule is a law (tests/properties)."""

from __future__ import annotations

from webhook.policy.index import _Texts
from webhook.policy.patterns import TextSet


def test_text_of_512_characters_is_remembered_and_a_longer_one_is_not() -> None:
    texts = _Texts([(1, TextSet(["k*"]))])
    for length in (512, 513):
        assert texts.rules("k" * length) == 1
    assert list(texts._remembered) == ["k" * 512]


def test_full_memory_of_4096_texts_begins_again() -> None:
    texts = _Texts([(1, TextSet(["k*"])), (2, TextSet(["k7", "x"]))])
    for number in range(4096):
        assert texts.rules(f"k{number}") == (3 if number == 7 else 1)
    assert len(texts._remembered) == 4096
    assert texts.rules("k7") == 3
    assert texts.rules("x") == 2
    assert texts._remembered == {"x": 2}
