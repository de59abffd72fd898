"""The header that names the trace of an API server's call; the rows come from the W3C's specification."""

from __future__ import annotations

import pytest

from webhook.server.review_log import trace_fields

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
FIELDS = {"trace_id": TRACE, "span_id": SPAN, "trace_flags": "01"}


@pytest.mark.parametrize(
    "header",
    [
        f"00-{TRACE}-{SPAN}-01",
        f" 00-{TRACE}-{SPAN}-01\t",
        f"cc-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like",
    ],
)
def test_a_valid_header_has_three_fields_with_the_names_of_opentelemetry(header: str) -> None:
    assert trace_fields(header) == FIELDS


def test_a_trace_that_is_not_sampled_is_named_too() -> None:
    assert trace_fields(f"00-{TRACE}-{SPAN}-00") == FIELDS | {"trace_flags": "00"}


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"cc-{TRACE}-{SPAN}-01more",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"0\N{ARABIC-INDIC DIGIT ZERO}-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-{'x' * 100_000}",
    ],
)
def test_a_malformed_header_is_ignored(header: str) -> None:
    assert trace_fields(header) == {}
