"""The clock of the verbs, standing still."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from tests.builders import NOW

if TYPE_CHECKING:
    from datetime import tzinfo


class Then(datetime):
    """In place of `datetime` in a module that asks for the time."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Then:
        del tz
        return cls.fromtimestamp(NOW.timestamp(), NOW.tzinfo)
