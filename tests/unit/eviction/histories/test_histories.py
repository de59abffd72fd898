"""Random histories of a cluster and its worker, with passes and requests under way: what they break is in `Checks`.

HISTORIES: how many the long test plays.
"""

from __future__ import annotations

import os
import time
from typing import Final

import pytest
from msgspec import structs

from tests.unit.eviction.histories.events import (
    AllSettles,
    GroupChanges,
    PassGoesOn,
    PodComes,
    PodGoes,
    PodTerminates,
    RuleChanges,
    ServerWillReply,
    UnitIsTaken,
)
from tests.unit.eviction.histories.history import History, drawn, played, report, shrunk
from tests.unit.eviction.histories.played import Reply, Setting
from tests.unit.eviction.world import FREE
from webhook.eviction.sender import Sender

SEEDS: Final = 300
CHUNK: Final = 10
MANY: Final = int(os.environ.get("HISTORIES", "5000"))


@pytest.mark.untraced
@pytest.mark.parametrize(
    "first",
    [pytest.param(each, marks=() if each < SEEDS // 2 else pytest.mark.whole) for each in range(0, SEEDS, CHUNK)],
)
def test_no_history_breaks_anything(first: int) -> None:
    broken = [report(seed) for seed in range(first, first + CHUNK)]
    assert not any(broken), "\n".join(filter(None, broken))


@pytest.mark.slow
@pytest.mark.whole
def test_no_history_of_many_breaks_anything() -> None:
    """Those after the seeds above; the first ten that break something are shown."""
    began, broken = time.process_time(), list[str]()
    for seed in range(SEEDS, SEEDS + MANY):
        broken += filter(None, [report(seed)])
        assert len(broken) < 10, "\n".join(broken)
    milliseconds = (time.process_time() - began) * 1000 / max(MANY, 1)
    print(f"{MANY} histories, {milliseconds:.1f} ms each")
    assert not broken, "\n".join(broken)


FOUND: Final = {
    "count of pods that stand no longer": History(
        Setting(by_parts=True),
        (
            *(PodComes("c"), RuleChanges(most="2"), AllSettles(), PodComes("f"), AllSettles(), PodGoes("f")),
            *(GroupChanges("single"), AllSettles(), PodComes("a"), AllSettles()),
        ),
    ),
    "ceiling that is raised while a pass is made": History(
        Setting(), (PodComes("a"), PodComes("b"), RuleChanges(most="1"), PassGoesOn(8), RuleChanges(), AllSettles())
    ),
    "pod that terminates in line, though its namespace is full": History(
        Setting(profiles=(structs.replace(FREE, per_namespace=1),)),
        (
            *(PodComes("a"), PodComes("b"), RuleChanges(), PassGoesOn(), UnitIsTaken()),
            *(PodTerminates("b"), UnitIsTaken()),
        ),
    ),
    "pods that a pod tied that is gone": History(
        Setting(profiles=(structs.replace(FREE, gang_window_seconds=10.0),), by_parts=True),
        (
            *(PodComes("b", shared=True, seconds=100), PodComes("c", gang="train", shared=True)),
            *(PodComes("f", gang="train", seconds=50), PodTerminates("b"), RuleChanges(), AllSettles()),
            *(PodGoes("b"), AllSettles()),
        ),
    ),
}
"""What broke something once, as short as it gets."""


@pytest.mark.parametrize("history", FOUND.values(), ids=FOUND.keys())
def test_what_was_found_breaks_nothing(history: History) -> None:
    assert played(history) == ""


def test_a_seed_says_what_happens() -> None:
    assert str(drawn(7)) == str(drawn(7))
    assert str(drawn(7)) != str(drawn(8))


def test_a_history_that_breaks_something_is_shrunk_to_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that writes requests without a last look sends them for pods that are held meanwhile."""
    monkeypatch.setattr(Sender, "_wanted", lambda *_: True)
    seed = next(seed for seed in range(SEEDS) if "request" in played(drawn(seed)))
    history = drawn(seed)
    shorter, said = shrunk(history, played(history))
    assert said.startswith("request")
    assert len(shorter.events) <= 8, shorter
    assert any(isinstance(event, PodComes) for event in shorter.events)
    assert report(seed).startswith(f"seed {seed}: request")


def test_answers_that_are_lost_are_no_fault() -> None:
    events = PodComes("a"), RuleChanges(), ServerWillReply((Reply.LATE, Reply.LOST)), AllSettles()
    assert played(History(Setting(), events)) == ""
