"""Documents inside a string of a document, such as the policy in a ConfigMap, and their positions in the file."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.files.read import documents
from webhook.files.spots import Document, Position, Spot, Step, Steps, Unreadable, descend


def with_text_read(spot: Spot, steps: Steps, text: str) -> Spot:
    """`spot` as if the document in the string at `steps` were part of its own document.

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
        return _Grafted(spot, steps, _Point(_moved(found.position, start)))
    return spot


def _moved(position: Position, start: Position) -> Position:
    return Position(start.line + position.line - 1, start.column + position.column - 1)


class _Point(Spot):
    """A single place."""

    def __init__(self, position: Position) -> None:
        self._position = position

    @property
    def position(self) -> Position:
        return self._position


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


class _Grafted(Spot):
    """A spot with another one grafted in where the steps lead."""

    def __init__(self, spot: Spot, steps: Steps, graft: Spot) -> None:
        self._spot = spot
        self._way = steps
        self._graft = graft

    @property
    def position(self) -> Position:
        return self._spot.position

    @property
    def key_position(self) -> Position | None:
        return self._spot.key_position

    def child(self, step: Step) -> Spot | None:
        below = self._spot.child(step)
        if below is None or step != self._way[0]:
            return below
        rest = self._way[1:]
        return _Grafted(below, rest, self._graft) if rest else self._graft

    def steps(self) -> Iterable[Step]:
        return self._spot.steps()
