"""How large the steps are; that they come to the same value is a law (tests/properties/test_stepwise.py)."""

from __future__ import annotations

import msgspec
import pytest

from tests.tables import table
from webhook.admission.review import decode_stepwise


def rests_in(text: bytes, step_bytes: int) -> int:
    """How often other threads get their time while a text is decoded."""
    rests: list[None] = []
    decode_stepwise(text, step_bytes=step_bytes, rest=lambda: rests.append(None))
    return len(rests)


@table(
    "step_bytes, steps",
    {
        "the whole text in one": (31, 0),
        "all six items": (30, 1),
        "all six items and no more": (24, 1),
        "five items and one": (23, 2),
        "three each": (12, 2),
        "two each": (11, 3),
        "two each and no more": (8, 3),
        "one each": (7, 6),
        "less than one, which cannot be split": (3, 6),
    },
)
def test_neighbours_are_decoded_together_as_far_as_a_step_goes(step_bytes: int, steps: int) -> None:
    """Once more for the list, to find its items."""
    assert rests_in(b"[1111,2222,3333,4444,5555,6666]", step_bytes) == 1 + steps


def rests_by_default(text: bytes) -> int:
    rests: list[None] = []
    decode_stepwise(text, rest=lambda: rests.append(None))
    return len(rests)


def test_up_to_64_kib_are_decoded_in_one_step_unless_the_caller_says_otherwise() -> None:
    two = b'["' + b"x" * 32_764 + b'","' + b"y" * 32_765 + b'"]'
    assert len(two) == 64 * 1024
    assert rests_by_default(two) == 1
    assert rests_by_default(two + b" ") == 2  # its two items fit one step


def test_values_are_split_down_to_the_twelfth_level() -> None:
    """Each level reads the text again."""
    assert rests_in(b"[" * 30 + b"]" * 30, 1) == 13
    assert rests_in(b'{"a":' * 30 + b"1" + b"}" * 30, 1) == 13


def test_fault_is_reported_at_its_place_in_the_whole_text() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"^Number out of range - at `\$\[\.\.\.\]\[1\]`$"):
        decode_stepwise(b'{"a":[1,1e999999]}', step_bytes=4)
