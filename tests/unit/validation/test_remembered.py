"""Answers are remembered for short names only, so that no client can fill the memory with long ones."""

from __future__ import annotations

import pytest

from webhook.api.taints import DeviceTaint, DeviceToleration
from webhook.validation.formats import _remembered
from webhook.validation.releases import NEWEST
from webhook.validation.taints import (
    _names_are_fine,
    _names_of_toleration_are_fine,
    taint_is_fine,
    tolerations_are_fine,
)


@pytest.mark.parametrize(("length", "remembered"), [(1, True), (512, True), (513, False)])
def test_answer_about_a_name_of_512_characters_is_remembered(length: int, remembered: bool) -> None:  # noqa: FBT001 -- a table's
    look_up = _remembered(lambda value: (f"{value} is wrong",))
    first, again = look_up("x" * length), look_up("x" * length)
    assert first == again
    assert (first is again) is remembered


@pytest.mark.parametrize(("length", "remembered"), [(2, 1), (512, 1), (513, 0)])
def test_answer_about_a_taint_of_512_characters_is_remembered(length: int, remembered: int) -> None:
    for key, value in (("k" * (length - 1), "v"), ("k", "v" * (length - 1))):
        _names_are_fine.cache_clear()
        assert taint_is_fine(DeviceTaint(key, value, "None"), NEWEST) is (length == 2)
        assert _names_are_fine.cache_info().currsize == remembered


@pytest.mark.parametrize(("length", "remembered"), [(7, 1), (512, 1), (513, 0)])
def test_answer_about_a_toleration_of_512_characters_is_remembered(length: int, remembered: int) -> None:
    for toleration in (
        DeviceToleration("k" * (length - 5), "Equal"),
        DeviceToleration("", "Equal", "v" * (length - 5)),
        DeviceToleration("", "E" * length),
    ):
        _names_of_toleration_are_fine.cache_clear()
        fine = length == 7 and toleration.operator == "Equal"
        assert tolerations_are_fine([toleration], NEWEST) is fine
        assert _names_of_toleration_are_fine.cache_info().currsize == remembered


@pytest.mark.parametrize(("effect", "fine"), [("", True), ("None", True), ("Evict", False)])
def test_toleration_is_fine_only_with_an_effect_that_there_is(effect: str, fine: bool) -> None:  # noqa: FBT001 -- a table's
    _names_of_toleration_are_fine.cache_clear()
    assert tolerations_are_fine([DeviceToleration("k", "Exists", "", effect)], NEWEST) is fine
    assert _names_of_toleration_are_fine.cache_info().currsize == fine
