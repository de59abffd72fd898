"""The clock of the verbs, standing still."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any

from tests.builders import NOW


class Then(datetime):
    """In place of `datetime` in a module that asks for the time; what it makes are plain ones, as msgspec wants."""

    def __new__(cls, *parts: Any, **named: Any) -> datetime:  # type: ignore[misc]
        return datetime.__new__(datetime, *parts, **named)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        del tz
        return NOW
