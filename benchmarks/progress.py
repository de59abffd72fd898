"""What a benchmark is doing, on standard error, with the seconds since it began."""

from __future__ import annotations

import sys
import time
from typing import Final

_STARTED: Final = time.monotonic()


def say(text: str) -> None:
    """One line."""
    print(f"[{time.monotonic() - _STARTED:4.0f} s] {text}", file=sys.stderr, flush=True)
