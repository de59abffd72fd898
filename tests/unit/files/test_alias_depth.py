"""An alias stands for all levels of what it names."""

from __future__ import annotations

import pytest

from tests.tables import table
from webhook.files.spots import Position, Unreadable
from webhook.files.yaml_documents import MAX_DEPTH, yaml_documents


def nested(levels: int, inner: str) -> str:
    return "[" * levels + inner + "]" * levels


@table(
    "start, deeper",
    {
        "an alias": (f"a: &a {nested(50, '1')}\nb: ", "*a"),
        "an alias in an alias": (f"a: &a {nested(30, '1')}\nb: &b {nested(20, '*a')}\nc: ", "*b"),
        "a merge": (f"a: &a {{k: {nested(49, '1')}}}\nb: ", "{<<: *a}"),
    },
)
def test_aliases_nest_no_deeper_than_what_is_written_out(start: str, deeper: str) -> None:
    levels = MAX_DEPTH - 50 - 1
    assert list(yaml_documents(start + nested(levels, deeper)))
    with pytest.raises(Unreadable) as caught:
        list(yaml_documents(start + nested(levels + 1, deeper), first_line=7))
    assert (caught.value.message, caught.value.position) == ("nested more than 100 levels deep", Position(7, 1))
