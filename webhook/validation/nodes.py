"""An object under a cursor, for rules that look at all of it: raw values, each with its path.

What it holds has passed `decoding`, so types are right; what is missing or null reads as Go's zero value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.field import Path, duplicate, too_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.api.field import JSON, FieldError
    from webhook.validation.releases import Release

_NOTHING: Final[dict[str, Any]] = {}


class Node(NamedTuple):
    """An object of the manifest, and where it stands."""

    value: dict[str, JSON]
    path: Path

    @classmethod
    def of(cls, value: JSON) -> Node:
        """The whole of an object."""
        return cls(value if isinstance(value, dict) else _NOTHING, Path.root())

    def at(self, name: str) -> Path:
        """Where a field stands."""
        return self.path.child(name)

    def get(self, name: str) -> JSON:
        """A field's value; None where it is missing."""
        return self.value.get(name)

    def has(self, name: str) -> bool:
        """Whether it is there with a value other than null."""
        return self.value.get(name) is not None

    def text(self, name: str) -> str:
        """A text; missing reads as empty."""
        return self.value.get(name) or ""

    def number(self, name: str) -> int:
        """A number; missing reads as zero."""
        return self.value.get(name) or 0

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        return [entry or "" for entry in self.value.get(name) or ()]

    def child(self, name: str) -> Node:
        """An object below; missing reads as empty."""
        return Node(self.value.get(name) or _NOTHING, self.path.child(name))

    def entries(self, name: str) -> list[Node]:
        """The objects of a list."""
        path = self.path.child(name)
        return [Node(entry or _NOTHING, path.index(at)) for at, entry in enumerate(self.value.get(name) or ())]

    def items(self, name: str) -> list[tuple[str, Node]]:
        """The keys and objects of a map."""
        path = self.path.child(name)
        return [(key, Node(entry or _NOTHING, path.key(key))) for key, entry in (self.value.get(name) or {}).items()]


def list_errors(
    node: Node,
    name: str,
    maximum: int | None,
    judge: Callable[[Node], Iterator[FieldError]],
    release: Release,
    key: str | None = None,
) -> Iterator[FieldError]:
    """A list of objects: how many, each of them, and that no two have the same text in the field `key`.

    The entries of a list that is too long are not looked at from 1.35 on, which also reports a duplicate at the entry
    and no more at its key (validateSet, validateSlice).
    """
    entries = node.entries(name)
    if maximum is not None and len(entries) > maximum:
        yield too_many(node.at(name), len(entries), maximum, declarative=release.declarative)
        if release.long_lists_end_the_look:
            return
    for entry in entries:
        yield from judge(entry)
    if key is not None:
        keys = [entry.text(key) for entry in entries]
        for position in _repeated(keys):
            path = entries[position].path
            at = path if release.long_lists_end_the_look else path.child(key)
            yield duplicate(at, keys[position], declarative=release.declarative)


def text_list_errors(
    node: Node,
    name: str,
    maximum: int,
    judge: Callable[[Path, str], Iterator[FieldError]],
    release: Release,
) -> Iterator[FieldError]:
    """The same for a list of texts, which are their own keys."""
    texts, path = node.texts(name), node.at(name)
    if len(texts) > maximum:
        yield too_many(path, len(texts), maximum, declarative=release.declarative)
        if release.long_lists_end_the_look:
            return
    for position, text in enumerate(texts):
        yield from judge(path.index(position), text)
    for position in _repeated(texts):
        yield duplicate(path.index(position), texts[position], declarative=release.declarative)


def key_path(path: Path, key: str, release: Release) -> Path:
    """Where a wrong key of a map is reported: from 1.36 on at the map."""
    return path if release.minor >= 36 else path.key(key)


def _repeated(keys: list[str]) -> Iterator[int]:
    """The positions of what has been there before."""
    seen: set[str] = set()
    for position, key in enumerate(keys):
        if key in seen:
            yield position
        seen.add(key)
