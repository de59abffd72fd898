"""What is told of a rule before it acts is what the real in-tree controller then does: pod by pod, and when.

All rows are tried first, four at a time; then each is looked at. `-s` prints them as a table.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import pytest

from tests.apiserver.impact.population import Population
from tests.apiserver.impact.rows import ROWS, Row
from tests.apiserver.impact.trial import SLACK_SECONDS, Outcome, Told, Trials, noted_figures
from tests.apiserver.impact.witness import Witness
from tests.apiserver.policy.stage import Stage
from webhook.files.report import table

pytestmark = [pytest.mark.slow, pytest.mark.whole]

PODS_AT_LEAST: Final = 200
ROUNDING: Final = timedelta(seconds=1)
"""The API server cuts timeAdded to full seconds, so pods may be due so much before what was told."""


@pytest.fixture(scope="module")
def outcomes(telling: Stage, population: Population, witness: Witness) -> dict[Row, Outcome]:  # noqa: ARG001 -- the policy
    found = Trials(population, witness).all()
    _print(found, population)
    return found


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_those_told_are_those_evicted(outcomes: dict[Row, Outcome], row: Row) -> None:
    outcome = outcomes[row]
    told = outcome.known
    assert outcome.names(set(outcome.evicted)) == outcome.names(set(told.soon))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_nobody_goes_before_or_long_after_the_time_told(outcomes: dict[Row, Outcome], row: Row) -> None:
    outcome = outcomes[row]
    soon = outcome.known.soon
    wrong = {
        uid: (at, soon.get(uid))
        for uid, at in outcome.evicted.items()
        if uid not in soon or not soon[uid] - ROUNDING <= at <= soon[uid] + timedelta(seconds=SLACK_SECONDS)
    }
    assert not wrong, outcome.names(set(wrong))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_controller_itself_gives_the_same_four_numbers(outcomes: dict[Row, Outcome], row: Row) -> None:
    outcome = outcomes[row]
    assert outcome.known
    assert outcome.theirs == outcome.expected


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_admission_answer_gives_these_numbers(outcomes: dict[Row, Outcome], row: Row) -> None:
    """By the audit annotation: first of the rule without effect, as it would be, then in earnest."""
    outcome = outcomes[row]
    told = outcome.known
    impact = told.impact
    assert outcome.noted_first is not None
    assert noted_figures(outcome.noted_first) == outcome.ours
    assert outcome.noted_first.text.endswith(" simulated")
    assert outcome.noted is not None
    assert outcome.noted_by is not None
    sets = ("claims", "pods", "tolerating", "kept", "namespaces")
    expected = {"unseen": 0} | {name: len(getattr(impact, name)) for name in sets}
    expected |= {"extended": len(impact.extended)} if impact.extended else {}
    expected |= {"devices": impact.devices, "pools": impact.pools, "allocated": impact.allocated, "podGroups": 0}
    # A pod that became due during the request may be counted in either.
    now, now_at_last = len(impact.now), len(told.impact_at(outcome.noted_by).now)
    assert now <= outcome.noted.numbers["now"] <= now_at_last
    expected |= {"now": outcome.noted.numbers["now"], "later": len(impact.pods) - outcome.noted.numbers["now"]}
    assert outcome.noted.numbers == expected


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_controller_still_waits_for_those_who_are_due_later(outcomes: dict[Row, Outcome], row: Row) -> None:
    outcome = outcomes[row]
    assert outcome.known
    assert outcome.message == outcome.expected_message


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_pods_that_only_later_releases_evict_are_told_apart(outcomes: dict[Row, Outcome], row: Row) -> None:
    """Devices that came through an extended resource (E-16)."""
    outcome = outcomes[row]
    extended = outcome.known.impact.extended
    assert not outcome.known.left_alone & outcome.evicted.keys()
    named = {uid for (_, name), uid in outcome.uids.items() if name.startswith("extended-")}
    assert extended <= named
    assert outcome.known.spared.isdisjoint(extended)


def test_nobody_else_was_ever_evicted(outcomes: dict[Row, Outcome], witness: Witness) -> None:
    """Neither between trials nor after them; every pod that came back is another one."""
    expected = sorted(uid for outcome in outcomes.values() for uid in outcome.known.soon)
    assert sorted(each.uid for each in witness.evictions()) == expected


def test_the_rows_are_worth_trying(outcomes: dict[Row, Outcome], population: Population) -> None:
    """So many at least must hit some of the pods on selected devices and spare others, and so on."""
    told = [outcome.known for outcome in outcomes.values()]
    worth = _worth(told)
    print(worth)
    assert sum(len(bench.pods) - len(bench.finished) for bench in population.benches.values()) >= PODS_AT_LEAST
    assert len(told) >= 40
    assert worth["partial"] >= 25
    assert worth["now and later"] >= 10
    assert worth["shared"] >= 5
    assert worth["extended"] >= 5
    assert len({outcome.row.on.count("*") for outcome in outcomes.values()}) == 4


def _worth(told: list[Told]) -> dict[str, int]:
    """How many rules are of each sort."""
    return {
        "partial": sum(bool(each.impact.pods and each.spared) for each in told),
        "now and later": sum(bool(each.impact.now and each.impact.later) for each in told),
        "shared": sum(bool(each.shared) for each in told),
        "extended": sum(bool(each.impact.extended) for each in told),
    }


def _print(outcomes: dict[Row, Outcome], population: Population) -> None:
    columns = ("devices", "alloc", "pods", "ns", "now", "later", "gone", "spared", "extended", "shared", "asked", "s")
    rows = []
    for row, outcome in outcomes.items():
        if outcome.told is None or outcome.ours is None:
            rows.append([row.name, repr(outcome.error), *[""] * (len(columns) - 1)])
            continue
        told = outcome.told
        counts = map(len, (told.impact.now, told.impact.later, outcome.evicted, told.spared, told.impact.extended))
        figures = [*outcome.ours, *counts, len(told.shared), outcome.asked, round(outcome.seconds)]
        rows.append([row.name, *map(str, figures)])
    print(f"set up in {population.settled_seconds:.0f} s")
    print("\n".join(table(rows, headers=("rule", *columns), right=range(1, len(columns) + 1))))
