"""The chart's README: an introduction by hand, and a table made from the comments in values.yaml."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

_CHART: Final = Path(__file__).parents[2] / "manifests" / "helm"
PAGE: Final = _CHART / "README.md"
VALUES: Final = _CHART / "values.yaml"
_MARK: Final = "## Values\n"
_LINE: Final = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z]\w*):(?P<value> .*)?$")


class DocumentedValue(NamedTuple):
    """A value of the chart: its dotted path, its default and what its comment says."""

    path: str
    default: Any
    text: str


def documented(text: str) -> list[DocumentedValue]:
    """The values of values.yaml that have a comment, in its order."""
    defaults = yaml.safe_load(text)
    found: list[DocumentedValue] = []
    parents: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        if line.strip().startswith("#"):
            comment.append(line.strip().removeprefix("#").strip())
            continue
        matched = _LINE.match(line)
        if matched is not None:
            indent = len(matched["indent"])
            parents = [*((depth, key) for depth, key in parents if depth < indent), (indent, matched["key"])]
            if comment:
                keys = [key for _, key in parents]
                found.append(DocumentedValue(".".join(keys), _at(defaults, keys), " ".join(comment)))
        comment = []
    return found


def _at(values: Any, keys: list[str]) -> Any:
    for key in keys:
        values = values[key]
    return values


def page() -> str:
    """The whole page."""
    introduction = PAGE.read_text().partition(_MARK)[0]
    rows = "".join(
        f"| `{each.path}` | `{json.dumps(each.default)}` | {each.text.replace('|', chr(92) + '|')} |\n"
        for each in documented(VALUES.read_text())
    )
    return f"{introduction}{_MARK}\n| value | default | meaning |\n|---|---|---|\n{rows}"
