"""The index by keys and values: what it forgets changes no answer. That it finds every rule is a law of its own."""

from __future__ import annotations

from webhook.policy.index import _Texts
from webhook.policy.match import TextSet


def test_text_that_was_forgotten_or_is_too_long_to_be_kept_has_the_same_answer() -> None:
    texts = _Texts([(1, TextSet(["k*"])), (2, TextSet(["k7", "x"]))])
    for _ in range(2):
        for number in range(3000):
            assert texts.rules(f"k{number}") == (3 if number == 7 else 1)
        assert texts.rules("x") == 2
        assert texts.rules("k" * 5000) == 1
