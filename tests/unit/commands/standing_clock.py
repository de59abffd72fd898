"""The clock of the verbs, standing still."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.builders import NOW

if TYPE_CHECKING:
    from datetime import tzinfo


class Then(datetime):
    """In place of `datetime` in a module that asks for the time; what it makes are plain ones, as msgspec wants."""

    def __new__(cls, *parts: Any, **named: Any) -> datetime:  # type: ignore[misc]
        return datetime.__new__(datetime, *parts, **named)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        del tz
        return NOW
