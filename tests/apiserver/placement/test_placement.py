"""What is said of evicted pods against the real scheduler: which of them find other devices, and which wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.apiserver.placement.clusters import make_cluster
from tests.apiserver.placement.trial import Outcome, Trials

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.controlplane.plane import ControlPlane

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

FEW: Final = range(60, 65)
ALL: Final = range(60)


def _misses(outcomes: Iterable[Outcome]) -> str:
    return "\n".join(
        f"{outcome.cluster.name}: {group}" for outcome in outcomes for group in outcome.groups if not group.is_exact
    )


def _found_wrongly(outcomes: Iterable[Outcome]) -> float:
    """The share of pods that wait, of those of which it was said that they find a place."""
    groups = [group for outcome in outcomes for group in outcome.groups]
    return sum(group.wrong for group in groups) / max(1, sum(group.found for group in groups))


def _right(outcomes: Iterable[Outcome]) -> list[bool]:
    return [all(group.is_right for group in outcome.groups) for outcome in outcomes]


def test_evicted_pods_find_the_devices_that_they_were_said_to_find(placement_plane: ControlPlane) -> None:
    outcomes = Trials(placement_plane, map(make_cluster, FEW)).run()
    assert any(group.found for outcome in outcomes for group in outcome.groups)
    assert all(_right(outcomes)), _misses(outcomes)


@pytest.mark.whole
def test_in_sixty_clusters_the_pods_wait_that_were_said_to_wait(placement_plane: ControlPlane) -> None:
    outcomes = Trials(placement_plane, map(make_cluster, ALL)).run()
    groups = [group for outcome in outcomes for group in outcome.groups]
    said = [(group.found, group.none) for group in groups]
    assert min(map(sum, zip(*said, strict=True))) >= 20, "there are too few pods of both sorts"
    right = _right(outcomes)
    assert sum(right) >= 0.95 * len(right), _misses(outcomes)
    assert _found_wrongly(outcomes) <= 0.01, _misses(outcomes)
