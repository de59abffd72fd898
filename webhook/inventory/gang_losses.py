"""The gangs that evictions break: how many of their pods go, of how many."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from webhook.inventory.pod_groups import is_leaving
from webhook.inventory.steps import in_steps, unchecked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from webhook.api.pods import Pod
    from webhook.inventory.gangs import Gang
    from webhook.inventory.steps import Check

    GangOf = Callable[[Pod], Gang | None]


class BrokenGang(NamedTuple):
    """A gang of which pods are evicted. `pods`: all of its pods that run, evicted or not."""

    gang: Gang
    evicted: int
    pods: int


def count_gangs(pods: Iterable[Pod], gang_of: GangOf, check: Check = unchecked) -> Counter[Gang]:
    """How many of the pods that are not terminating or finished each gang has."""
    gangs = [gang_of(pod) for pod in in_steps(pods, check) if not is_leaving(pod)]
    return Counter([gang for gang in gangs if gang is not None])


def broken_gangs(lost: Mapping[Gang, int], sizes: Mapping[Gang, int]) -> tuple[BrokenGang, ...]:
    """The gangs that have several pods, those that lose most first. `lost`: how many pods each loses."""
    found = [BrokenGang(gang, evicted, sizes[gang]) for gang, evicted in lost.items()]
    return tuple(sorted([each for each in found if each.pods > 1], key=lambda each: (-each.evicted, each.gang)))
