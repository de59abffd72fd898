"""A clock that a test sets, and a transport that remembers what was written to it."""

from __future__ import annotations

from typing import Any


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Transport:
    def __init__(self, *, closing: bool = False) -> None:
        self.written = b""
        self.aborted = False
        self.closing = closing

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.aborted = True

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default
