"""Patterns for names: one, a list of them, and many names compared with them.

Matching a pattern takes time linear in the length of the text times its own, however many stars it has.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from webhook.inventory.pools import Check, in_steps

FEW_TEXTS: Final = 64
"""Up to that many texts are compared with each pattern one by one, which is quicker than sorting them."""


class Glob:
    """A pattern with `*` (any text, also none) and `?` (one character)."""

    __slots__ = ("_first", "_last", "_last_length", "_middle", "longest", "prefix", "suffix")

    def __init__(self, pattern: str) -> None:
        pieces = re.split(r"[*?]", pattern)
        self.prefix = pieces[0]
        """The letters before the first wildcard: every text that matches begins with them."""
        self.suffix = pieces[-1]
        """The letters after the last one: every text that matches ends with them."""
        self.longest = max(pieces, key=len)
        """The longest of all letters between wildcards: every text that matches has them."""
        first, *rest = re.sub(r"\*+", "*", pattern).split("*")
        self._first = _piece(first)
        self._last = _piece(rest[-1]) if rest else None
        self._last_length = len(rest[-1]) if rest else 0
        self._middle = [_piece(piece) for piece in rest[:-1]]

    def matches(self, text: str) -> bool:
        """Whether the whole text fits the pattern. Pieces go as far left as they can: if any places fit, these do."""
        first = self._first.match(text)
        if first is None:
            return False
        at, last = first.end(), self._last
        if last is None:
            return at == len(text)
        for piece in self._middle:
            found = piece.search(text, at)
            if found is None:
                return False
            at = found.end()
        # a piece has a fixed length, so there is only one place where the last one can end the text
        start = len(text) - self._last_length
        return start >= at and last.match(text, start) is not None


def _piece(text: str) -> re.Pattern[str]:
    return re.compile("".join("." if character == "?" else re.escape(character) for character in text), re.DOTALL)


class TextSet:
    """The texts that match one of some patterns. An empty list of patterns stands for every text."""

    __slots__ = ("everything", "exact", "globs")

    def __init__(self, patterns: Iterable[str]) -> None:
        patterns = list(patterns)
        self.everything = not patterns or any(pattern and not pattern.strip("*") for pattern in patterns)
        self.exact = frozenset(pattern for pattern in patterns if "*" not in pattern and "?" not in pattern)
        self.globs = [Glob(pattern) for pattern in patterns if pattern not in self.exact]

    def holds(self, text: str) -> bool:
        """Return whether the text is in the set."""
        return self.everything or text in self.exact or any(glob.matches(text) for glob in self.globs)

    def holds_any(self, texts: Iterable[str]) -> bool:
        """Return whether any of the texts is in the set."""
        return any(self.holds(text) for text in texts)

    def holds_any_of(self, texts: Texts, check: Check) -> bool:
        """Return whether any of many texts is in the set."""
        check()
        if self.everything:
            return bool(texts)
        if not self.exact.isdisjoint(texts.all):
            return True
        return any(glob.matches(text) for glob in self.globs for text in in_steps(texts.like(glob, check), check))


class Texts:
    """Many texts, sorted so that few of them need be compared with a pattern."""

    __slots__ = ("_backwards", "_forwards", "_whole", "all")

    def __init__(self, texts: Iterable[str]) -> None:
        self.all = frozenset(texts)
        self._forwards = sorted(self.all)
        self._backwards = sorted(text[::-1] for text in self.all)
        self._whole = "\n".join(self._forwards)

    def __bool__(self) -> bool:
        return bool(self.all)

    def like(self, glob: Glob, check: Check) -> Iterable[str]:
        """Those that may match a pattern, and always those that do. `check` is called before each look at all texts."""
        if glob.longest not in self._whole:
            return ()
        texts = _beginning(self._forwards, glob.prefix)
        ending = _beginning(self._backwards, glob.suffix[::-1])
        if len(ending) < len(texts):
            texts = [text[::-1] for text in ending]
        if len(texts) > FEW_TEXTS and glob.longest:
            check()
            return [text for text in texts if glob.longest in text]
        return texts


def _beginning(texts: list[str], prefix: str) -> list[str]:
    """Those of some sorted texts that begin with a prefix."""
    if not prefix:
        return texts
    first = bisect_left(texts, prefix)
    # Texts with the prefix stand together.
    last = bisect_left(texts, True, first, key=lambda text: not text.startswith(prefix))  # noqa: FBT003 -- the key's
    return texts[first:last]
