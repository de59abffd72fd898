from __future__ import annotations

from typing import Any

from tests.tables import table
from webhook.admission.decision import REMOVED, Pointer, apply_patch, patch_for, render


@table(
    "document, edits, operations",
    {
        "a field of an object": ({"a": {}}, [(("a", "b"), 1)], [("add", "/a/b", 1)]),
        "what is there is replaced by add": ({"a": 1}, [(("a",), 2)], [("add", "/a", 2)]),
        "missing parents are made": (
            {},
            [(("a", "b", "c"), 1)],
            [("add", "/a", {}), ("add", "/a/b", {}), ("add", "/a/b/c", 1)],
        ),
        "null parents are made as well": ({"a": None}, [(("a", "b"), 1)], [("add", "/a", {}), ("add", "/a/b", 1)]),
        "a parent is made once": (
            {},
            [(("a", "b"), 1), (("a", "c"), 2)],
            [("add", "/a", {}), ("add", "/a/b", 1), ("add", "/a/c", 2)],
        ),
        "through lists": (
            {"a": [{}, {"b": 1}]},
            [(("a", 1, "b"), 2), (("a", 0, "b"), 3)],
            [("add", "/a/1/b", 2), ("add", "/a/0/b", 3)],
        ),
        "a null entry is replaced, as add would insert": (
            {"a": [1, None, 2]},
            [(("a", 1, "b"), 3)],
            [("replace", "/a/1", {}), ("add", "/a/1/b", 3)],
        ),
        "slashes and tildes are escaped": (
            {"a": {"x/y": {}, "~": {}}},
            [(("a", "x/y", "z"), 1), (("a", "~", "~1"), 2)],
            [("add", "/a/x~1y/z", 1), ("add", "/a/~0/~01", 2)],
        ),
        "nothing to do": ({"a": 1}, [], []),
    },
)
def test_patch_sets_each_pointer(document: Any, edits: list[tuple[Pointer, Any]], operations: list[Any]) -> None:
    expected = tuple({"op": op, "path": path, "value": value} for op, path, value in operations)
    assert patch_for(document, edits) == expected


def test_patch_carried_out_leaves_everything_else_and_the_original_alone() -> None:
    document = {"a": [{"b": 1}, None], "c": {"d/e": 1, "f~": 2}, "g": None}
    edits: list[tuple[Pointer, Any]] = [
        (("a", 0, "x"), 1),
        (("a", 1, "y"), 2),
        (("c", "d/e"), 3),
        (("c", "f~"), 4),
        (("g", "h", "i"), 5),
    ]
    patched = apply_patch(document, patch_for(document, edits))
    assert patched == {"a": [{"b": 1, "x": 1}, {"y": 2}], "c": {"d/e": 3, "f~": 4}, "g": {"h": {"i": 5}}}
    assert document == {"a": [{"b": 1}, None], "c": {"d/e": 1, "f~": 2}, "g": None}


def test_empty_pointer_names_the_document() -> None:
    assert render(()) == ""
    assert apply_patch({"a": 1}, [{"op": "add", "path": "", "value": 2}]) == 2


def test_value_that_is_removed_is_gone_and_its_neighbours_stay() -> None:
    document = {"a": {"b": 1, "c": [{"d": 2, "e": 3}]}, "f": 4}
    patch = patch_for(document, [(("a", "b"), REMOVED), (("a", "c", 0, "d"), REMOVED), (("f",), REMOVED)])
    assert [each["op"] for each in patch] == ["remove"] * 3
    assert apply_patch(document, patch) == {"a": {"c": [{"e": 3}]}}
