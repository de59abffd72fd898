"""What an expression of a policy costs, in this process."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webhook.expressions.engine import compile_expression
from webhook.policy.document import TOLERATION_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable

EXPRESSIONS = (
    "request.count <= 4",
    'toleration.effect == "NoExecute" && !has(toleration.tolerationSeconds)',
    'requester.groups.exists(g, g.startsWith("ml-")) || "gpu.example.com" in drivers',
)
_ROUNDS = 7
_EVALUATIONS = 300
_VARIABLES: dict[str, Any] = {
    "toleration": {"key": "gpu.example.com/xid", "operator": "Exists", "value": "", "effect": "NoSchedule"},
    "request": {
        "name": "gpu",
        "deviceClassName": "gpu.example.com",
        "count": 8,
        "allocationMode": "ExactCount",
        "adminAccess": False,
        "alternative": False,
    },
    "requester": {
        "username": "jane@example.com",
        "serviceAccount": "",
        "groups": ["system:authenticated", "a", "b", "c", "d", "e", "f", "g"],
    },
    "drivers": ["cpu.example.com", "gpu.example.com"],
}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One expression."""

    source: str
    compile_ms: float
    evaluate_us: float


def measure() -> list[Evaluation]:
    """Medians over some rounds."""
    compile_expression(EXPRESSIONS[0], TOLERATION_VARIABLES)  # the library is imported on first use
    found = []
    for source in EXPRESSIONS:
        expression = compile_expression(source, TOLERATION_VARIABLES)
        compiled = [_seconds(lambda: compile_expression(source, TOLERATION_VARIABLES)) for _ in range(_ROUNDS)]  # noqa: B023 -- called at once
        evaluated = [_seconds(lambda: _many(expression.evaluate)) / _EVALUATIONS for _ in range(_ROUNDS)]  # noqa: B023 -- likewise
        found.append(Evaluation(source, statistics.median(compiled) * 1e3, statistics.median(evaluated) * 1e6))
    return found


def _many(evaluate: Callable[[Any], bool]) -> None:
    for _ in range(_EVALUATIONS):
        evaluate(_VARIABLES)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
