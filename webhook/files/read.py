"""Manifests from files, folders and standard input, as kubectl would read them, with the position of everything.

Manifests are not interpreted here; only lists are split into their objects. A text in a document, such as the policy
in a ConfigMap, may be read as a document itself (`with_text_read`).
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from webhook.api.meta import GROUP, OWN_GROUP
from webhook.files import STDIN, STDIN_NAME
from webhook.files.json_documents import Lines, NotJSON, json_documents
from webhook.files.spots import NOWHERE, Document, Position, Problem, Spot, Step, Steps, Unreadable, descend
from webhook.files.yaml_documents import yaml_documents

SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
MAX_BYTES: Final = 128 * 1024 * 1024
"""The limit for one file: room for a hundred objects of the largest size that an API server stores."""
YAML_MAX_CHARACTERS: Final = 32 * 1024 * 1024
"""The limit for the YAML in one file. It takes twenty times as long to read as JSON, in which dumps are written."""
_YAML_DOCUMENT_CHARACTERS: Final = 64
"""A document takes as long to read as so much YAML, even if there is nothing in it."""

_DOCUMENT_START: Final = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_JSON_START: Final = re.compile(r"(?:---)?[ \t\r\n]*([\[{])")
_QUOTED_START: Final = re.compile(r"(?:---)?[\[{ \t\r\n]*\"")
_TEMPLATE: Final = re.compile(r"\{\{|\{%|<%")
_ACTION: Final = re.compile(rf"^[^\"'#\n]*(?:{_TEMPLATE.pattern})", re.MULTILINE)
"""What no YAML has: a quoted `{{` is a text."""
_MARK: Final = "\ufeff"
_LEADING_MARK: Final = re.compile(
    r"(\A|(?:^|(?<=\ufeff))---(?:[ \t\r][^\n]*)?\n)((?:[ \t\r]*(?:#[^\n]*)?\n)*)\ufeff", re.MULTILINE
)
"""A byte order mark where a document begins: files that Windows wrote, joined with lines of `---`."""
_OTHER_BOMS: Final = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_LISTS_IN_LISTS: Final = 3
_OUR_GROUPS: Final = (GROUP.encode(), OWN_GROUP.encode())
_TOO_MUCH_YAML: Final = (
    f"has more than {YAML_MAX_CHARACTERS // 1024 // 1024} MiB of YAML, or "
    f"{YAML_MAX_CHARACTERS // _YAML_DOCUMENT_CHARACTERS:,} documents; split it, or write it as JSON"
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file. `document` counts from 1; `steps` lead to it where it is an entry of a list."""

    file: str
    document: int
    value: Any
    spot: Spot
    steps: Steps = ()
    problems: tuple[Problem, ...] = ()
    remarks: tuple[Problem, ...] = ()


@dataclass(slots=True)
class File:
    """The contents of a file. `explicit`: it was named, not found in a folder."""

    name: str
    explicit: bool = True
    size_bytes: int = 0
    manifests: list[Manifest] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    template: bool = False
    """Something cannot be read, and the file looks like a template."""
    foreign: bool = False
    """Something cannot be read, and no API group of ours stands in the file, so no object in it is ours."""


def read(names: Iterable[str], stdin: BinaryIO | None = None) -> Iterator[File]:
    """Read the files of the names, in the folders of the names, and standard input for `-`; one at a time."""
    for name in names:
        if name != STDIN and os.path.isdir(name):  # noqa: PTH112 -- a Path would shorten "./x"; names are shown as given
            yield from _read_folder(name)
        else:
            yield _read_file(name, stdin)


def shown(name: str) -> str:
    """Return a name as reports have it."""
    return STDIN_NAME if name == STDIN else name


def parse(name: str, data: bytes, *, explicit: bool = True) -> File:
    """Read the manifests in the bytes of a file, also if other documents in it cannot be read."""
    file = File(name, explicit, len(data))
    try:
        _add_documents(file, decode_text(data))
    except Unreadable as error:
        file.unreadable.append(error)
    if file.unreadable:
        plain = data.replace(b"\0", b"")  # UTF-16
        file.foreign = not any(group in plain for group in _OUR_GROUPS)
    return file


def _add_documents(file: File, text: str) -> None:
    hint: str | None = None
    for number, found in enumerate(documents(text), 1):
        if isinstance(found, Unreadable):
            if hint is None:  # once: a file may have thousands
                hint, file.template = _template_hint(text), _ACTION.search(text) is not None
            # A new one, without the traceback: it holds on to the document.
            file.unreadable.append(Unreadable(f"{hint} ({found.message})" if hint else found.message, found.position))
            continue
        file.manifests.extend(_flattened(file.name, number, found))


def decode_text(data: bytes) -> str:
    """Decode UTF-8. Raises Unreadable with the offset of the first wrong byte."""
    for mark, encoding in _OTHER_BOMS.items():
        if data.startswith(mark):
            raise Unreadable(f"is {encoding}; manifests must be UTF-8")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode().removeprefix(_MARK)
        position = Position(before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise Unreadable(f"not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}", position) from None


def _read_folder(name: str) -> Iterator[File]:
    found, faults = False, list[OSError]()
    for folder, below, files in os.walk(name, onerror=faults.append):
        below[:] = sorted(entry for entry in below if not entry.startswith("."))
        for entry in sorted(files):
            if not entry.startswith(".") and os.path.splitext(entry)[1].lower() in SUFFIXES:  # noqa: PTH122 -- as above
                found = True
                path = os.path.join(folder, entry)  # noqa: PTH118 -- as above
                if os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110, PTH113 -- reading might never end
                    yield File(path, explicit=False, unreadable=[Unreadable("cannot be read: not a regular file")])
                else:
                    yield _read_file(path, explicit=False)
    for fault in faults:
        path = str(fault.filename)
        yield File(path, explicit=path == name, unreadable=[Unreadable(f"cannot be read: {fault.strerror}")])
    if not found and not faults:
        yield File(name, unreadable=[Unreadable(f"contains no {', '.join(f'*{each}' for each in sorted(SUFFIXES))}")])


def _read_file(name: str, stdin: BinaryIO | None = None, *, explicit: bool = True) -> File:
    if name == STDIN and stdin is None and sys.stdin is None:  # `<&-`; the types do not know of that
        return File(STDIN_NAME, unreadable=[Unreadable("cannot be read: standard input is closed")])
    try:
        if name != STDIN:
            with Path(name).open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
        else:
            data = (stdin or sys.stdin.buffer).read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = (isinstance(error, OSError) and error.strerror) or error
        return File(shown(name), explicit, unreadable=[Unreadable(f"cannot be read: {reason}")])
    if len(data) > MAX_BYTES:
        large = Unreadable(f"is larger than {MAX_BYTES // 1024 // 1024} MiB; split it")
        return File(shown(name), explicit, unreadable=[large])
    return parse(shown(name), data, explicit=explicit)


def documents(text: str) -> Iterator[Document | Unreadable]:
    """Yield each document of a text, or why it cannot be read.

    The text is cut at the lines that start a document before anything is parsed, as kubectl does: a broken
    document does not hide the next. A byte order mark that a document begins with is not part of it.
    """
    if _MARK in text:
        text = _LEADING_MARK.sub(r"\1\2", text)
    lines = Lines(text)
    yaml_left = YAML_MAX_CHARACTERS
    for start, end in _chunks(text):
        not_json: NotJSON | None = None
        if content := _JSON_START.match(text, start, end):
            try:
                yield from list(json_documents(text, lines, content.start(1), end))
                continue
            except NotJSON as error:  # it may still be YAML
                not_json = error if _QUOTED_START.match(text, start, end) else None
            except Unreadable as error:
                yield error
                continue
        yaml_left -= end - start + _YAML_DOCUMENT_CHARACTERS
        if yaml_left < 0:
            # Counted here: the positions of all lines take longer to find than all the rest.
            yield not_json or Unreadable(_TOO_MUCH_YAML, Position(text.count("\n", 0, start) + 1, 1))
            return
        try:
            yield from yaml_documents(text[start:end], lines.position(start).line)
        except Unreadable as error:
            yield not_json or error


def _chunks(text: str) -> Iterator[tuple[int, int]]:
    """Cut the text: yield start and end of each part."""
    start = 0
    for match in _DOCUMENT_START.finditer(text):
        if start or text[: match.start()].strip():
            yield start, match.start()
        start = match.start()
    yield start, len(text)


def _template_hint(text: str) -> str:
    match = _TEMPLATE.search(text)
    if match is None:
        return ""
    line = text.count("\n", 0, match.start()) + 1
    hint = "render templates first: helm template ... | device-taint-webhook check -"
    return f'a template: line {line} has "{match[0]}"; {hint}'


def _flattened(name: str, number: int, document: Document, steps: Steps = ()) -> Iterator[Manifest]:
    """Yield the document, or if it is a list its items, which may leave out what the list says for them."""
    value: Any = document.value
    items = _items(value) if len(steps) < 2 * _LISTS_IN_LISTS else None
    if items is None:
        yield Manifest(name, number, value, document.spot, steps, document.problems, document.remarks)
        return
    inherited = {}
    if value["kind"] != "List":
        inherited = {"apiVersion": value["apiVersion"], "kind": value["kind"].removesuffix("List")}
    problems, remarks = _by_item(document.problems, len(steps)), _by_item(document.remarks, len(steps))
    for position, item in enumerate(items):
        if isinstance(item, dict) and inherited and "kind" not in item and "apiVersion" not in item:
            item = {**inherited, **item}  # noqa: PLW2901 -- the item, made whole
        below: Steps = ("items", position)
        found = Document(item, descend(document.spot, below), tuple(problems[below]), tuple(remarks[below]))
        yield from _flattened(name, number, found, (*steps, *below))


def _by_item(found: Iterable[Problem], depth: int) -> defaultdict[Steps, list[Problem]]:
    """Group what was found in a list at that depth by the steps to its items."""
    groups = defaultdict[Steps, list[Problem]](list)
    for each in found:
        groups[each.steps[depth : depth + 2]].append(each)
    return groups


def _items(value: Any) -> list[Any] | None:
    """Return the items of `v1 List` and `<Kind>List`; None for anything else."""
    if not isinstance(value, dict):
        return None
    kind, items = value.get("kind"), value.get("items")
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(value.get("apiVersion"), str):
        return None
    if items is None and "items" in value:
        return []
    return items if isinstance(items, list) else None


def with_text_read(spot: Spot, steps: Steps, text: str) -> Spot:
    """Return `spot` as if the document in the string at `steps` were part of its own document.

    Where that cannot be read, the text's spot is the place of the fault. Texts that are not literal blocks are
    left alone: their lines are no lines of the file.
    """
    start = descend(spot, steps).text_start
    if start is None:
        return spot
    found = next(iter(documents(text)), None)
    if isinstance(found, Document):
        return _Grafted(spot, steps, _Moved(found.spot, start))
    if isinstance(found, Unreadable) and found.position is not None:
        line, column = found.position  # `NOWHERE` is at 0, 0
        return _Grafted(spot, steps, _Moved(NOWHERE, Position(start.line + line, start.column + column)))
    return spot


def _moved(position: Position, start: Position) -> Position:
    return Position(start.line + position.line - 1, start.column + position.column - 1)


class _Moved(Spot):
    """A spot of a text that begins at another position in the file. Errors in it were explained where it was read."""

    def __init__(self, spot: Spot, start: Position) -> None:
        self._spot = spot
        self._start = start

    @property
    def position(self) -> Position:
        return _moved(self._spot.position, self._start)

    @property
    def key_position(self) -> Position | None:
        key = self._spot.key_position
        return None if key is None else _moved(key, self._start)

    def child(self, step: Step) -> Spot | None:
        below = self._spot.child(step)
        return None if below is None else _Moved(below, self._start)

    def steps(self) -> Iterable[Step]:
        return self._spot.steps()


class _Grafted(_Moved):
    """A spot, where it is, with another one grafted in where the steps lead."""

    def __init__(self, spot: Spot, steps: Steps, graft: Spot) -> None:
        super().__init__(spot, Position(1, 1))
        self._way = steps
        self._graft = graft

    def child(self, step: Step) -> Spot | None:
        below = self._spot.child(step)
        if below is None or step != self._way[0]:
            return below
        rest = self._way[1:]
        return _Grafted(below, rest, self._graft) if rest else self._graft
