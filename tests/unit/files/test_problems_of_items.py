"""Each item of a list has its own problems and remarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from webhook.files import read
from webhook.files.read import parse
from webhook.files.spots import NOWHERE, Document, Position, Problem

if TYPE_CHECKING:
    import pytest

POD = {"apiVersion": "v1", "kind": "Pod"}


def test_items_have_the_problems_and_remarks_below_them() -> None:
    pod, inner = '{"apiVersion": "v1", "kind": "Pod", "a": 1, "a": 2}', '{"apiVersion": "v1", "kind": "List", "items": '
    text = f'{inner}[{pod}, {inner}[{{}}, {pod}]}}], "b": 1, "b": 2}}'
    found = parse("x.json", text.encode()).manifests
    assert [(each.steps, [problem.steps for problem in each.problems]) for each in found] == [
        (("items", 0), [("items", 0, "a")]),
        (("items", 1, "items", 0), []),
        (("items", 1, "items", 1), [("items", 1, "items", 1, "a")]),
    ]
    yaml = b"apiVersion: v1\nkind: List\nitems:\n- {yes: 1}\n- {a: 1}\n- {on: 1}\n"
    assert [[each.steps[:2] for each in found.remarks] for found in parse("x", yaml).manifests] == [
        [("items", 0)],
        [],
        [("items", 2)],
    ]


def test_problem_is_looked_at_once_not_for_each_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the time grows with the square of the items."""
    looked: list[Any] = []

    class Steps(tuple[Any, ...]):
        __slots__ = ()

        def __getitem__(self, key: Any) -> Any:
            looked.append(key)
            return super().__getitem__(key)

    problems = tuple(Problem(Steps(("items", number, "a")), Position(1, 1), "m") for number in range(50))
    document = Document({"apiVersion": "v1", "kind": "List", "items": [POD] * 50}, NOWHERE, problems, problems)
    monkeypatch.setattr(read, "documents", lambda _: [document])
    manifests = parse("x", b"").manifests
    assert [(*each.problems, *each.remarks) for each in manifests] == [(each, each) for each in problems]
    assert len(looked) == 100
