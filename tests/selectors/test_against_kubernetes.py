"""The recorded answers and the declarations of functions are those of Kubernetes' own code.

tests/unit/expressions/selectors compares ours with the recorded ones.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from typing import Any

import pytest

from tests.apiserver.breakage import changed_text
from tests.controlplane.assets import selectors
from tests.controlplane.gobuild import AssetsUnavailableError, built
from tests.selectors import corpus
from tests.selectors.devices import DEVICES, selected
from webhook.expressions.selectors.faults import FaultKind
from webhook.expressions.selectors.functions import functions

EXPRESSIONS = corpus.expressions()
DAMAGED = [600, pytest.param(4000, marks=pytest.mark.whole)]
LEFT_OUT = ("range(", 'version in ["', "distinct()", "timestamp(")
"""What Kubernetes takes minutes for, or panics at; see the decision record on selectors."""


@pytest.fixture(scope="module")
def program() -> list[str]:
    try:
        return [str(built(selectors(), print) / "selectors")]
    except AssetsUnavailableError as error:
        if os.environ.get("CI", "").lower() not in {"", "0", "false"}:
            pytest.fail(f"in CI the program must be there: {error}")
        pytest.skip(f"no compiler of Kubernetes: {error}")


@pytest.mark.apiserver
def test_kubernetes_still_gives_the_recorded_answers(program: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program
    answers = dict(zip(EXPRESSIONS, corpus.asked(), strict=True))
    assert answers == dict(zip(EXPRESSIONS, corpus.recorded(), strict=True))
    assert corpus.asked_costs() == corpus.recorded_costs()
    evaluations = sum(len(answer.get("outcomes", "")) for answer in answers.values())
    with capsys.disabled():
        print(f"\n{len(answers)} selectors, {evaluations} evaluations")


@pytest.mark.apiserver
@pytest.mark.parametrize("damaged", DAMAGED)
def test_damaged_selectors_are_judged_alike(
    damaged: int, program: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program
    rng = random.Random(1)
    sound = [text for text in EXPRESSIONS if not any(part in text for part in LEFT_OUT)]
    texts = [_damaged(sound, rng) for _ in range(damaged)]
    asked_of = [DEVICES[at] for at in (0, 4, 19, 26, 38, 40, 42, 44, 45, 46)]
    unsupported = {"refused": FaultKind.UNSUPPORTED}
    differ, taken = {}, 0
    for text, theirs in zip(texts, corpus.asked(texts, asked_of), strict=True):
        answer = corpus.ours(text, [selected(each) for each in asked_of])
        taken += "cost" in theirs
        if answer not in (theirs, unsupported):
            differ[text] = (answer, theirs)
    with capsys.disabled():
        print(f"\n{damaged} damaged selectors, of which {taken} are right")
    assert differ == {}
    assert taken >= damaged / 5


def _damaged(sound: list[str], rng: random.Random) -> str:
    text = rng.choice(sound)
    for _ in range(rng.randrange(2)):
        text = changed_text(text, rng)
    return text if rng.random() < 0.6 else f"{text} {rng.choice(['&&', '||', '=='])} {rng.choice(sound)}"


@pytest.mark.apiserver
def test_declarations_are_those_of_kubernetes(program: list[str]) -> None:
    listed = subprocess.run([*program, "declarations"], check=True, capture_output=True, text=True, timeout=60).stdout
    theirs: dict[str, set[tuple[Any, ...]]] = {}
    for line in listed.splitlines():
        each = json.loads(line)
        kinds = [_short(kind) for kind in [*(each["args"] or ()), each["result"]]]
        if not any("authorization" in kind for kind in kinds) and each["function"] not in _OLD_NAMES:
            theirs.setdefault(each["function"], set()).add((each["overload"], each["member"], *kinds))
    known = functions().by_name
    ours = {
        name: {
            (each.id, each.method, *[_short(str(kind)) for kind in (*each.arguments, each.result)])
            for each in overloads
        }
        for name, overloads in known.items()
    }
    assert ours == theirs


_OLD_NAMES = frozenset({"in", "_in_", "__not_strictly_false__"})


def _short(kind: str) -> str:
    return kind.replace("<", "").replace(">", "")
