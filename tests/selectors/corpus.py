"""Expressions, devices, and what Kubernetes makes of them.

`answers.jsonl` has a line for each expression of `expressions.txt`: either `refused` (invalid, internal or too
expensive), or `cost`, the estimate of the worst case, and `outcomes`, a letter a device: T matches, F does not, E has
no answer. `unsupported.json` has the costs of those in `unsupported.txt`. `python -m tests.selectors.corpus` asks
Kubernetes' own code and writes both.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.controlplane.assets import selectors
from tests.controlplane.gobuild import built
from tests.selectors.devices import DEVICES, selected
from webhook.expressions.selectors.faults import FaultKind
from webhook.expressions.selectors.selector import EvaluationError, SelectorFault, compile_selector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.expressions.selectors.selector import SelectedDevice

_HERE: Final = Path(__file__).parent
_ANSWERS: Final = _HERE / "answers.jsonl"
_COSTS: Final = _HERE / "unsupported.json"
_JSON: Final = "json:"
_COST_MAX: Final = 1_000_000

Answer = dict[str, Any]


def expressions(name: str = "expressions") -> list[str]:
    """All expressions, in the order of the file; `unsupported` are those that we only know the cost of."""
    lines = (_HERE / f"{name}.txt").read_text().splitlines()
    spelt = [line for line in lines if line and not line.startswith("# ")]
    return [json.loads(line.removeprefix(_JSON)) if line.startswith(_JSON) else line for line in spelt]


def devices() -> list[SelectedDevice]:
    """All devices."""
    return [selected(each) for each in DEVICES]


def recorded() -> list[Answer]:
    """Kubernetes' answers as they were written down."""
    return [json.loads(line) for line in _ANSWERS.read_text().splitlines()]


def recorded_costs() -> dict[str, int]:
    """The costs of unsupported expressions as they were written down."""
    costs: dict[str, int] = json.loads(_COSTS.read_text())
    return costs


def asked_costs() -> dict[str, int]:
    """The same from the program. Raises: AssetsUnavailableError."""
    texts = expressions("unsupported")
    return {text: result["maxCost"] for text, result in zip(texts, _results(texts, []), strict=True)}


def asked(texts: Sequence[str] | None = None, asked_of: Sequence[dict[str, Any]] = DEVICES) -> list[Answer]:
    """Kubernetes' answers to some texts or all, from the program that is built for that.

    Raises: AssetsUnavailableError.
    """
    return [_answer(result) for result in _results(expressions() if texts is None else texts, asked_of)]


def _results(texts: Sequence[str], asked_of: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    program = built(selectors(), lambda text: print(text, file=sys.stderr)) / "selectors"
    question = json.dumps({"expressions": texts, "devices": asked_of})
    done = subprocess.run([program], input=question, check=True, capture_output=True, text=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _answer(result: dict[str, Any]) -> Answer:
    error = result.get("error")
    if error:
        internal = error.startswith(("program instantiation failed", "panic: "))
        return {"refused": FaultKind.INTERNAL if internal else FaultKind.INVALID}
    if result["maxCost"] > _COST_MAX:
        return {"refused": FaultKind.TOO_EXPENSIVE}
    letters = ["E" if each.get("error") else "T" if each["matches"] else "F" for each in result["outcomes"]]
    return {"cost": result["maxCost"], "outcomes": "".join(letters)}


def ours(expression: str, asked_of: Sequence[SelectedDevice], *, native: bool = True) -> Answer:
    """Our answer; `native` False leaves the short cuts out."""
    selector = compile_selector(expression)
    if isinstance(selector, SelectorFault):
        return {"refused": selector.kind}
    run = selector.matches if native else selector.interpreted
    return {"cost": selector.cost, "outcomes": "".join([_letter(run, device) for device in asked_of])}


def _letter(run: Callable[[SelectedDevice], bool], device: SelectedDevice) -> str:
    try:
        return "T" if run(device) else "F"
    except EvaluationError:
        return "E"


if __name__ == "__main__":
    _ANSWERS.write_text("".join(json.dumps(answer) + "\n" for answer in asked()))
    _COSTS.write_text(json.dumps(asked_costs(), indent=1) + "\n")
