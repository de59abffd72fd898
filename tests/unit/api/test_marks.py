"""The table of marks has every annotation, label, condition type and manager that the code names."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from webhook.api.marks import MARKS
from webhook.api.meta import OWN_GROUP

PACKAGE: Final = Path(__file__).parents[3] / "webhook"
NAMES: Final = [name for mark in MARKS for name in mark.names]
KEY: Final = re.compile(r"^(?:[a-z0-9-]+\.)+(?:io|com|dev)/(?!v[0-9])[A-Za-z][A-Za-z0-9.-]*$")
"""What looks like the name of an annotation, and not like the version of an API."""
NO_MARKS: Final = {
    f"{OWN_GROUP}/degraded": "the key of a taint",
    f"{OWN_GROUP}/drain": "the key of a taint",
    "devicetaint.k8s.io/doctor": "the key of a taint",
    f"{OWN_GROUP}/device-taint-webhook": "who reports Events",
    "app.kubernetes.io/name": "a label that is only written",
    "app.kubernetes.io/component": "a label that is only written",
    "app.kubernetes.io/part-of": "a label that is only written",
    "app.kubernetes.io/managed-by": "a label that is only written",
}


def texts_of(path: Path) -> set[str]:
    """The texts in a module that look like keys; in f-strings the own group is filled in."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = [
                part.value
                if isinstance(part, ast.Constant)
                else OWN_GROUP
                if isinstance(part, ast.FormattedValue) and getattr(part.value, "id", "") == "OWN_GROUP"
                else "{}"
                for part in node.values
            ]
            found.add("".join(map(str, parts)))
    return {text for text in found if KEY.match(text) or text in NAMES}


@cache
def texts_of_all() -> dict[Path, set[str]]:
    return {path: texts_of(path) for path in PACKAGE.rglob("*.py") if path.name != "marks.py"}


def test_every_key_in_the_code_has_a_row_or_is_no_mark() -> None:
    unknown = {
        f"{path.relative_to(PACKAGE)}: {text}"
        for path, texts in texts_of_all().items()
        for text in texts
        if text not in NAMES and text not in NO_MARKS
    }
    assert unknown == set()


def test_scan_finds_texts_of_either_form(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('A = f"{OWN_GROUP}/new"\nB = "new.example.com/key"\nC = "text/html"\nD = f"{OTHER}/x"\n')
    assert texts_of(module) == {f"{OWN_GROUP}/new", "new.example.com/key"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_row_is_of_a_text_that_the_code_has(name: str) -> None:
    if name == "ownerReferences":
        assert hasattr(import_module("webhook.api.rules"), "RuleOrigin")
        return
    assert name in {text for texts in texts_of_all().values() for text in texts}


def test_no_mark_has_two_rows() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert all(all(part and not part.endswith(".") for part in mark[1:]) for mark in MARKS)
