"""How log records are written: one JSON object a line, or text for people. What to log is said where it happens.

A record's message is constant and in lower case; what varies travels in `extra` and is written as fields.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import Any, Final, TextIO

log = logging.getLogger(__name__)

_OWN_FIELDS: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message"}
"""What every record has; anything else came in through `extra`."""
_FIELD_MOST: Final = 256  # characters of each text, which may be a stranger's
_MESSAGE_MOST: Final = 1024
_ENTRIES_MOST: Final = 64
_TRACE_MOST: Final = 16 * 1024


class LogFormat(StrEnum):
    """The two shapes of a line."""

    JSON = "json"
    TEXT = "text"


def configure(log_format: LogFormat, *, verbose: bool, stream: TextIO | None = None) -> None:
    """Write all records to `stream` (stderr unless given): ours from info, or debug if verbose, others' warnings.

    Records leave out source line, thread and process, which halves the cost of a line.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JSONFormatter() if log_format is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("webhook").setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.captureWarnings(capture=True)
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # The documented way to spare the walk up the stack: https://docs.python.org/3/howto/logging.html#optimization
    logging._srcfile = None  # noqa: SLF001 -- it is the documented way


def switch_verbose() -> bool:
    """Switch our records between level debug and level info; return whether it is debug now."""
    ours = logging.getLogger("webhook")
    verbose = not ours.isEnabledFor(logging.DEBUG)
    ours.setLevel(logging.DEBUG if verbose else logging.INFO)
    return verbose


def warn_of_variables(unknown: Mapping[str, str]) -> None:
    """Log variables with our prefix that nothing reads, each with the most similar known one, if there is one."""
    for name, meant in unknown.items():
        hint = {"hint": f"perhaps {meant}"} if meant else {}
        log.warning("unknown environment variable", extra={"variable": name, **hint})


class JSONFormatter(logging.Formatter):
    """`{"ts": ..., "level": ..., "logger": ..., "msg": ..., <fields>}`; `ts` is RFC 3339 in UTC, milliseconds."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        line: dict[str, Any] = {
            "ts": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": _cut(record.getMessage(), _MESSAGE_MOST),
        }
        line.update(_fields(record))
        trace = _trace(self, record)
        if trace:
            line["trace"] = trace
        return _dumps(line, separators=(",", ":"))


class TextFormatter(logging.Formatter):
    """`<ts> LEVEL logger: msg field=value ...`; values that could be misread are JSON, so a line stays a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end; a traceback follows on lines of its own."""
        fields = "".join(f" {name}={_plain(value)}" for name, value in _fields(record))
        message = _one_line(_cut(record.getMessage(), _MESSAGE_MOST))
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {message}{fields}"
        # Indented, so that no text in it looks like a line of its own.
        return "\n  ".join([line, *map(_one_line, _trace(self, record).splitlines())])


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(record.msecs):03d}Z"


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    for name, value in record.__dict__.items():
        if name not in _OWN_FIELDS:
            yield name, _shortened(value)


def _shortened(value: Any) -> Any:
    """Return a field's value as JSON, with each of its texts and lists cut."""
    if isinstance(value, int | float) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [*map(_shortened, value[:_ENTRIES_MOST]), *["..."] * (len(value) > _ENTRIES_MOST)]
    if isinstance(value, dict):
        return {_cut(str(name)): _shortened(entry) for name, entry in islice(value.items(), _ENTRIES_MOST)}
    return _cut(str(value))


def _cut(text: str, most: int = _FIELD_MOST) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    text = formatter.formatException(record.exc_info) if record.exc_info else ""
    half = _TRACE_MOST // 2 - 3
    # what was raised is named at the end, and what led to it at the beginning
    return text if len(text) <= _TRACE_MOST else f"{text[:half]}\n...\n{text[-half:]}"


def _dumps(value: object, **options: Any) -> str:
    return json.dumps(value, **options).replace("\x7f", "\\u007f")  # the one control character that Python leaves


def _one_line(text: str) -> str:
    return text if text.isprintable() else _dumps(text)


def _plain(value: object) -> str:
    if isinstance(value, str) and value and value.isprintable() and not any(c in ' "=' for c in value):
        return value
    return _dumps(value)
