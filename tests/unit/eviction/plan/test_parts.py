"""A long plan is kept up to date pod by pod. It says what a plan of all pods would say at that moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pytest

from tests.unit.eviction.findings.turmoil import Turmoil
from webhook.eviction import planner
from webhook.eviction.plan import plan
from webhook.eviction.planner import Planner
from webhook.eviction.pod_plan import EvictionPlan

FEW: Final = 18
"""The histories of `make test`: three of each sort."""


def said(made: EvictionPlan, in_line: Iterable[str]) -> dict[str, object]:
    """Everything of a plan that does not depend on when it was made."""
    return {
        "waits": {uid: (each.reason, each.other, each.cause, each.because) for uid, each in made.waits.items()},
        "going": {uid: (each.key, each.due, each.gang, each.along) for uid, each in made.going.items()},
        "units": {uid: [each.key for each in unit.members] for uid, unit in made.units.items()},
        "hit": made.hit,
        "line": sorted(in_line),
    }


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[EvictionPlan]:
    """Plans in parts, however few pods are hit, and compares each with one of all pods; these."""
    made, plan_part = list[EvictionPlan](), Planner._plan_part

    def planned(worker: Planner, changed: Mapping[str, Iterable[str]]) -> Iterator[None]:
        yield from plan_part(worker, changed)
        core = worker._core
        if not core.current:
            return  # another one follows at once
        whole = plan(core.view, core.ledger, core.deps.pause(), core.moment())
        made.append(whole)
        in_line = [each.uid for unit in whole.eligible for each in unit.members]
        assert said(core.plan, [uid for uid, _ in core.line.pods()]) == said(whole, in_line)

    monkeypatch.setattr(planner, "WHOLE_MOST", -1)
    monkeypatch.setattr(Planner, "_plan_part", planned)
    return made


@pytest.mark.untraced
@pytest.mark.usefixtures("compared")
@pytest.mark.parametrize(
    "seed", [pytest.param(each, marks=() if each < FEW else pytest.mark.whole) for each in range(40)]
)
def test_parts_say_what_the_whole_says(seed: int) -> None:
    turmoil = Turmoil(seed, shares=True, readiness=True, budgets=seed % 2 > 0, together=seed % 3 > 0)
    assert turmoil.stalled() == ""


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_parts_say_what_the_whole_says_in_many_more_histories(first: int, compared: list[EvictionPlan]) -> None:
    for seed in range(first, first + 100):
        turmoil = Turmoil(seed, shares=True, readiness=True, budgets=seed % 2 > 0, together=seed % 3 > 0)
        assert (seed, turmoil.stalled()) == (seed, "")
    assert len(compared) > 100
