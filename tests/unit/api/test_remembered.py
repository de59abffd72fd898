"""Answers about texts are remembered for short ones only, so that no client can fill the memory with long ones."""

from __future__ import annotations

import pytest

from webhook.api.remembered import TEXT_MAX, remembered
from webhook.api.taints import DeviceToleration
from webhook.validation.releases import NEWEST
from webhook.validation.taints import tolerations_are_fine


@pytest.mark.parametrize(("length", "kept"), [(2, True), (TEXT_MAX, True), (TEXT_MAX + 1, False)])
@pytest.mark.parametrize("first", [0, 1], ids=["in the last text", "in the first text"])
def test_answers_are_kept_up_to_so_many_characters_of_all_texts(length: int, first: int, kept: bool) -> None:  # noqa: FBT001 -- a table's
    look_up = remembered(4)(lambda one, other: [one, other])
    texts = ("x" * (length - 1), "y") if first else ("x", "y" * (length - 1))
    assert look_up(*texts) == list(texts)
    assert (look_up(*texts) is look_up(*texts)) is kept


def test_the_answers_used_last_are_kept() -> None:
    look_up = remembered(2)(lambda text: [text])
    first = look_up("a")
    look_up("b")
    assert look_up("a") is first
    look_up("c")
    assert look_up("a") is first
    look_up("d")
    look_up("e")
    assert look_up("a") is not first


@pytest.mark.parametrize(("effect", "fine"), [("", True), ("None", True), ("Evict", False)])
def test_toleration_is_fine_only_with_an_effect_that_there_is(effect: str, fine: bool) -> None:  # noqa: FBT001 -- a table's
    for _ in range(2):
        assert tolerations_are_fine([DeviceToleration("k", "Exists", "", effect)], NEWEST) is fine
