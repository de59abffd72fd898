"""Selectors mean here what they mean to Kubernetes: what compiles, what it costs, and which devices it selects."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.selectors import corpus
from webhook.expressions.selectors.faults import FaultKind
from webhook.expressions.selectors.selector import SelectorFault, compile_selector

EXPRESSIONS = corpus.expressions()
RECORDED = dict(zip(EXPRESSIONS, corpus.recorded(), strict=True))
DEVICES = corpus.devices()
UNSUPPORTED_REASONS = {
    "'%s'.format(), which writes any value as a text": ("format()",),
    "messages of protobuf": ("messages",),
    "durations and timestamps": ("duration()", "timestamp()"),
    "IP addresses, URLs and named formats": ("ip()", "isIP()", "cidr()", "url()", "isURL()", "format."),
}
"""Why the API server may take what we do not, with the beginnings of what our fault names."""


def unsupported_reason(detail: str) -> str | None:
    named = detail.removeprefix("not supported here: ")
    return next((reason for reason, starts in UNSUPPORTED_REASONS.items() if named.startswith(starts)), None)


def test_there_are_enough_of_both() -> None:
    assert len(RECORDED) == len(EXPRESSIONS) >= 400
    assert len(DEVICES) == 50
    sorts = Counter("refused" if "refused" in answer else "taken" for answer in RECORDED.values())
    assert min(sorts.values()) >= 150
    assert {letter for answer in RECORDED.values() for letter in answer.get("outcomes", "")} == set("TFE")


@pytest.mark.untraced
@pytest.mark.parametrize("native", [True, False], ids=["short cuts", "interpreted"])
def test_every_answer_is_the_one_that_kubernetes_gave(native: bool) -> None:  # noqa: FBT001 -- a parameter
    differ = {}
    unsupported = Counter[str]()
    for expression, theirs in RECORDED.items():
        answer = corpus.ours(expression, DEVICES, native=native)
        if answer == {"refused": FaultKind.UNSUPPORTED}:
            fault = compile_selector(expression)
            assert isinstance(fault, SelectorFault)
            reason = unsupported_reason(fault.detail)
            assert reason is not None, (expression, fault)
            unsupported[reason] += 1
        elif answer != theirs:
            differ[expression] = (answer, theirs)
    assert differ == {}
    assert set(unsupported) == set(UNSUPPORTED_REASONS)
    assert sum(unsupported.values()) <= len(RECORDED) / 40
