"""The trace that an API server's call belongs to, for log lines; nothing is traced or sent here.

API servers send the header as W3C Trace Context defines it (https://www.w3.org/TR/trace-context/#traceparent-header);
the fields have the names that OpenTelemetry gives them in logs
(https://opentelemetry.io/docs/specs/otel/compatibility/logging_trace_context/).
"""

from __future__ import annotations

import re
from typing import Final

TRACEPARENT: Final = "traceparent"
_VERSION_0: Final = "00"
# Later versions may add fields behind a dash; version ff is not one.
_HEADER: Final = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def trace_fields(header: str) -> dict[str, str]:
    """`trace_id`, `span_id` and `trace_flags`, in lower-case hexadecimal; nothing if the header is not valid."""
    found = _HEADER.fullmatch(header.strip(" \t"))
    if found is None or (found[1] == _VERSION_0 and found[5]):
        return {}
    return {"trace_id": found[2], "span_id": found[3], "trace_flags": found[4]}
