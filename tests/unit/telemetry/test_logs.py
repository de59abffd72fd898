"""Log lines, and what must not break them."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.telemetry.logs import LogFormat, configure, warn_of_variables

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("webhook.test")
TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}Z")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """What `configure` changes is the process's; each test gives it back."""
    root, ours = logging.getLogger(), logging.getLogger("webhook")
    before = root.handlers[:], root.level, ours.level, logging._srcfile
    flags = logging.logThreads, logging.logProcesses, logging.logMultiprocessing
    yield
    root.handlers[:], root.level, logging._srcfile = before[0], before[1], before[3]
    ours.setLevel(before[2])
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = flags
    logging.captureWarnings(capture=False)


def configured(log_format: LogFormat, *, verbose: bool = False) -> io.StringIO:
    stream = io.StringIO()
    configure(log_format, verbose=verbose, stream=stream)
    return stream


def test_json_line_has_time_level_logger_message_and_fields() -> None:
    stream = configured(LogFormat.JSON)
    log.info("review refused", extra={"requestUID": "u", "allowed": False, "causes": ["spec: Invalid"], "code": 422})
    line = json.loads(stream.getvalue())
    assert TIME.fullmatch(line.pop("ts"))
    assert line == {
        "level": "info",
        "logger": "webhook.test",
        "msg": "review refused",
        "requestUID": "u",
        "allowed": False,
        "causes": ["spec: Invalid"],
        "code": 422,
    }


def test_text_line_has_the_same_for_people() -> None:
    stream = configured(LogFormat.TEXT)
    log.warning("review refused", extra={"user": "jane", "allowed": False, "object": "", "error": 'no "key"'})
    line = TIME.sub("T", stream.getvalue())
    assert line == 'T WARNING webhook.test: review refused user=jane allowed=false object="" error="no \\"key\\""\n'


@pytest.mark.parametrize("log_format", LogFormat)
def test_values_from_outside_cannot_start_a_line(log_format: LogFormat) -> None:
    stream = configured(log_format)
    log.info("a\nb", extra={"user": "eve\n2026-01-01T00:00:00.000Z INFO webhook: allowed\x1b[2K\u2028"})
    assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize("log_format", LogFormat)
def test_traceback_is_kept(log_format: LogFormat) -> None:
    stream = configured(log_format)
    try:
        json.loads("{}")["spec"]
    except KeyError:
        log.exception("review failed")
    text = stream.getvalue()
    trace = json.loads(text)["trace"] if log_format is LogFormat.JSON else text
    assert "Traceback (most recent call last)" in trace
    assert "KeyError: 'spec'" in trace


CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
TEXTS = st.text(max_size=40) | st.sampled_from(
    ["\x1b[2J", "\x9b31m", "\x7f", "\u202e", "\ud800", "\r", "a=b", '"']
).map(lambda text: text * 300)
VALUES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.binary(max_size=2000) | st.just({"x" * 500}),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3) | st.lists(st.just("y"), min_size=90)
    ),
    max_leaves=6,
)


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        assert len(value) <= 65
        for entry in value:
            yield from texts_in(entry)
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield name
            yield from texts_in(entry)


@given(message=TEXTS, user=VALUES, error=TEXTS)
def test_whatever_a_field_holds_the_line_is_short_and_free_of_control_characters(
    message: str, user: Any, error: str
) -> None:
    written = {}
    for log_format in LogFormat:
        stream = configured(log_format)
        log.error(message, extra={"user": user}, exc_info=ValueError(error))
        written[log_format] = stream.getvalue()
    assert written[LogFormat.JSON].count("\n") == 1
    for line in "".join(written.values()).split("\n"):
        assert not CONTROLS.search(line)
    line = json.loads(written[LogFormat.JSON])
    assert len(line["msg"]) <= 1024
    assert all(len(text) <= 256 for text in texts_in(line["user"]))
    assert len(line["trace"]) <= 16 * 1024
    first, *trace = written[LogFormat.TEXT].rstrip("\n").split("\n")
    assert TIME.match(first)
    assert all(each.startswith("  ") for each in trace)


def test_what_is_cut_says_so() -> None:
    stream = configured(LogFormat.JSON)
    log.info("m" * 2000, extra={"user": "u" * 257, "short": "u" * 256, "rules": ["r"] * 70})
    line = json.loads(stream.getvalue())
    assert (line["msg"], line["user"]) == ("m" * 1021 + "...", "u" * 253 + "...")
    assert (line["short"], line["rules"]) == ("u" * 256, [*["r"] * 64, "..."])


def test_long_traceback_is_cut_in_the_middle() -> None:
    stream = configured(LogFormat.JSON)
    log.error("review failed", exc_info=ValueError("\n".join(map(str, range(50_000)))))
    trace = json.loads(stream.getvalue())["trace"]
    assert (trace[:13], trace[-6:], len(trace)) == ("ValueError: 0", "\n49999", 16 * 1024 - 1)
    assert "\n...\n" in trace


def test_unknown_types_are_written_as_text() -> None:
    stream = configured(LogFormat.JSON)
    log.info("odd", extra={"value": {1}})
    assert json.loads(stream.getvalue())["value"] == "{1}"


@pytest.mark.parametrize(("verbose", "lines"), [(False, ["info"]), (True, ["debug", "info"])])
def test_debug_lines_are_for_the_verbose(lines: list[str], *, verbose: bool) -> None:
    stream = configured(LogFormat.JSON, verbose=verbose)
    log.debug("review allowed")
    log.info("review refused")
    assert [json.loads(line)["level"] for line in stream.getvalue().splitlines()] == lines


def test_others_are_heard_from_warnings_on() -> None:
    stream = configured(LogFormat.JSON, verbose=True)
    logging.getLogger("asyncio").info("chatter")
    logging.getLogger("asyncio").warning("slow")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.warn("old", UserWarning, stacklevel=1)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["logger"] for line in lines] == ["asyncio", "py.warnings"]


def test_configuring_twice_does_not_write_twice() -> None:
    configured(LogFormat.JSON)
    stream = configured(LogFormat.TEXT)
    log.info("once")
    assert stream.getvalue().count("once") == 1


def test_variables_that_nothing_reads_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """L18."""
    warn_of_variables({"A": "B", "C": ""})
    told = [(vars(record)["variable"], vars(record).get("hint")) for record in caplog.records]
    assert told == [("A", "perhaps B"), ("C", None)]
