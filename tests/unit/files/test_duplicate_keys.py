"""Duplicate keys: where they stand, and how much of a text is read for them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tables import table
from webhook.files import json_documents
from webhook.files.json_documents import Lines
from webhook.files.spots import Document


def only(text: str) -> Document:
    (document,) = json_documents.json_documents(text, Lines(text), 0, len(text))
    return document


@table(
    "text, found",
    {
        "after lists and maps": ('{"l": [1, [], {}], "a": 1, "a": {"l": 2}}', [(("a",), 28)]),
        "in an entry after others": ('[[1, 2], "x", {"a": 1, "a": 2}]', [((2, "a"), 24)]),
        "below a key, and after that": ('{"k": {"a": 1, "a": 2}, "k": 3}', [(("k", "a"), 16), (("k",), 25)]),
        "below a key that is there twice": ('{"k": 1, "k": [{"a": 1, "a": 2}]}', [(("k",), 10), (("k", 0, "a"), 25)]),
        "a text like syntax": ('{"k": "\\"a\\": {[,]}", "a" : ":", "a"\n: 1}', [(("a",), 34)]),
        "an escaped key": ('{"\\"": 1, "\\u0022": 2}', [(('"',), 11)]),
        "half a pair": ('{"\\ud83d": 1, "\\ufffd": 2}', [(("\ufffd",), 15)]),
        "none in different maps": ('{"a": [{"a": 1}, {"a": 2}], "b": 1, "b": 2}', [(("b",), 37)]),
    },
)
def test_duplicate_key_is_found_where_it_stands(text: str, found: list[Any]) -> None:
    assert [(each.steps, each.position.column) for each in only(text).problems] == found


def test_text_is_not_read_once_for_each_level_above_a_duplicate_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy of 510 KiB took 10 s."""
    text = '{"a": 1, "a": 2, "k": ' + '[{"b": ' * 40 + "[[], []]" + "}]" * 40 + "}"
    read: list[int] = []
    decode = json_documents._decode

    def counted(text: str, at: int) -> tuple[Any, int]:
        value, after = decode(text, at)
        read.append(after - at)
        return value, after

    monkeypatch.setattr(json_documents, "_decode", counted)
    assert len(only(text).problems) == 1
    assert sum(read) < len(text)
