"""Histories: what happens, drawn from a seed; how one is played; and what is left of one that breaks something.

A history plays its events one by one. Whenever all requests are answered and time has passed, and at its end, it is
looked at (`Checks`); then all that holds pods ends, and at last everything is removed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import structs

from tests.unit.eviction.histories.checks import BrokenError
from tests.unit.eviction.histories.events import (
    GROUP,
    SHARED,
    AllSettles,
    BudgetChanges,
    ClaimChanges,
    ClaimIsFreed,
    Event,
    GroupChanges,
    IdleIsForgotten,
    NamespaceChanges,
    PassGoesOn,
    PauseChanges,
    PodChanges,
    PodComes,
    PodFinishes,
    PodGoes,
    PodTerminates,
    PolicyChanges,
    RequestGoesOn,
    RequestsEnd,
    ReservationChanges,
    RuleChanges,
    RuleGoes,
    ServerWillReply,
    SliceChanges,
    TimePasses,
    UnitIsTaken,
    WatchShows,
    WorkerRestarts,
)
from tests.unit.eviction.histories.played import NAMESPACES, Played, Reply, Setting
from tests.unit.eviction.world import FREE
from webhook.api.pods import ALL, SINGLE
from webhook.policy.model import EvictionProfile, EvictionWindow, Share

NAMES: Final = "abcdef"
_QUARTERS: Final = EvictionWindow("0 * * * *", 900.0)
"""The first quarter of each hour."""
_REPLIES: Final = (Reply.GRANTED, *Reply)
_TIMES: Final = (0.3017, 2.0017, 7.0017, 61.0017)
"""A little off whole seconds, as two things that come at the same moment have no order."""
_JUMPS: Final = (0.01, 1.0, 6.0, 49.0, 61.0, 301.0)


class History(NamedTuple):
    """What happens, under which setting."""

    setting: Setting
    events: tuple[Event, ...]

    def __str__(self) -> str:
        return "\n".join([f"    {each}" for each in (self.setting, *self.events)])


# --- playing -------------------------------------------------------------------------------------


def played(history: History) -> str:
    """What a history breaks; empty if nothing."""
    with history.setting.applied():
        return asyncio.run(_play(history))


async def _play(history: History) -> str:
    run = Played(history.setting)
    try:
        for event in history.events:
            await event.play(run)
            await run.breathe()
            at_rest = event.rests and not run.blocked
            if at_rest and (broken := run.checks.at_rest()):
                return broken
        await run.settle()
        return run.checks.at_rest() or await run.checks.at_end() or await run.checks.leftovers()
    except BrokenError as broken:
        return str(broken)
    except Exception as error:  # noqa: BLE001 -- the worker's own, which a history is to name
        return f"{type(error).__name__}: {error}"
    finally:
        await run.close()


def shrunk(history: History, broken: str) -> tuple[History, str]:
    """A shorter history that breaks the same, and what it says: by events that are left out, many at first."""
    size = max(len(history.events) // 2, 1)
    while size:
        at = 0
        while at < len(history.events):
            shorter = history._replace(events=history.events[:at] + history.events[at + size :])
            said = played(shorter)
            if said.partition(":")[0] == broken.partition(":")[0]:
                history, broken = shorter, said
            else:
                at += size
        size //= 2
    return history, broken


def report(seed: int) -> str:
    """Plays the history of a seed; returns what it breaks, and how, or an empty text."""
    history = drawn(seed)
    broken = played(history)
    if not broken:
        return ""
    shorter, said = shrunk(history, broken)
    return f"seed {seed}: {said}\n{shorter}"


# --- drawing -------------------------------------------------------------------------------------


def drawn(seed: int) -> History:
    """The history of a seed."""
    return _Drawing(seed).history()


class _Drawing:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        draw = self._random
        self._limited = draw.random() < 0.7
        self._together = draw.random() < 0.75
        """Whether pods are in gangs and groups, or share claims."""
        self._changes: dict[Callable[[], Event], int] = {
            self._pod_comes: 3,
            self._pod_is_seen: 7,
            self._claim_is_seen: 3,
            self._group_changes: 1,
            self._rule_changes: 2,
            self._budget_changes: 2,
            lambda: NamespaceChanges(draw.choice(NAMESPACES), held=draw.random() < 0.5): 1,
            lambda: PauseChanges(draw.choice([0.0, 0.0, 30.0, 1000.0])): 1,
            self._policy_changes: draw.choice([0, 1]),
            self._slice_changes: draw.choice([0, 2]),
        }
        """What may happen to the cluster, and how often."""
        self._work: dict[Callable[[], Event], int] = {
            self._time_passes: 5,
            lambda: PassGoesOn(draw.choice([1, 2, 3, 5, 9, 1000])): 4,
            AllSettles: 1,
            UnitIsTaken: 6,
            lambda: RequestGoesOn(draw.randrange(4), draw.randint(1, 3)): 6,
            RequestsEnd: 1,
            self._replies: 2,
            lambda: WatchShows(draw.randint(1, 3)): 1,
            IdleIsForgotten: 1,
            WorkerRestarts: int(draw.random() < 0.3),
        }

    def history(self) -> History:
        draw = self._random
        setting = Setting(
            profiles=self._profiles() if self._limited else (FREE,),
            by_parts=draw.random() < 0.6,
            fine=draw.random() < 0.7,
            follows_late=draw.random() < 0.15,
            lag=draw.choice([0.0, 0.4]),
            lingers=draw.random() < 0.5,
            breaker_devices=draw.choice([None, 1, 2]),
        )
        first: list[Event] = [self._group_changes()]
        first += [self._pod_comes(name) for name in NAMES if draw.random() < 0.7]
        first.append(RuleChanges(0, *self._rule()))
        often, row = self._changes | self._work, list[Event]()
        for _ in range(draw.randint(4, 18)):
            scenes = [self._while_sent, self._while_planned, self._while_waiting]
            row += draw.choice(scenes)() if draw.random() < 0.3 else [self._one_of(often)]
        return History(setting, (*first, *row))

    def _one_of(self, often: dict[Callable[[], Event], int]) -> Event:
        return self._random.choices(list(often), list(often.values()))[0]()

    def _while_sent(self) -> list[Event]:
        """Units are taken, and while their requests are under way, the cluster changes."""
        draw = self._random
        row: list[Event] = [PassGoesOn(), *[UnitIsTaken() for _ in range(draw.randint(1, 2))]]
        for _ in range(draw.randint(1, 3)):
            row += [RequestGoesOn(draw.randrange(4)) for _ in range(draw.randint(0, 3))]
            row.append(self._one_of(self._changes))
        return row

    def _while_planned(self) -> list[Event]:
        """The cluster changes while a pass is under way, and units are taken before it ends."""
        draw = self._random
        row = [draw.choice([self._one_of(self._changes), self._policy_changes()]), PassGoesOn(draw.randint(1, 40))]
        row.append(draw.choice([self._one_of(self._changes), self._policy_changes()]))
        return [*row, *[UnitIsTaken() for _ in range(draw.randint(0, 1))], PassGoesOn(), UnitIsTaken()]

    def _while_waiting(self) -> list[Event]:
        """The cluster changes bit by bit while some pods have found no room."""
        draw = self._random
        row: list[Event] = [RuleChanges(), AllSettles()]
        for _ in range(draw.randint(1, 2)):
            row += [draw.choice([self._one_of(self._changes), self._pod_comes(), self._pod_comes()]), AllSettles()]
        for name in draw.sample(NAMES, 4):
            row += [PodGoes(name), AllSettles()]
        return row

    def _profiles(self) -> tuple[EvictionProfile, ...]:
        draw = self._random
        one = structs.replace(
            FREE,
            overall=draw.choice([None, 1, 2]),
            per_namespace=draw.choice([None, None, 1, 2]),
            per_owner_unavailable=draw.choice([None, 1, 2, Share(50)]),
            rate=draw.choice([0.5, 10_000, 10_000]),
            burst=draw.choice([1, 2, 1000]),
            max_per_minute=draw.choice([None, None, 2, 4]),
            max_hold_seconds=draw.choice([300.0, 1e6]),
            gang_window_seconds=draw.choice([10.0, 60.0]),
            stuck_after_seconds=draw.choice([60.0, 300.0]),
            windows=draw.choice([(), (), (), (), (_QUARTERS,)]),
            deadline_seconds=draw.choice([0.0, 20.0, 600.0]),
            delete_after_deadline=draw.choice([True, False, False]),
            wait_for_completion_seconds=draw.choice([0.0, 0.0, 40.0]),
            grace_seconds=draw.choice([0.0, 0.0, 0.0, 5.0]),
            gang_by_owner=draw.random() < 0.15,
        )
        if draw.random() < 0.7:
            return (one,)
        skips, overall = draw.random() < 0.3, draw.choice([None, 1])
        low = structs.replace(one, priority_at_most=-1, skips=skips, overall=overall, rate=10_000)
        return (low, structs.replace(one, evict_daemon_sets=draw.random() < 0.5))

    # --- the cluster -----------------------------------------------------------------------------

    def _pod_comes(self, name: str = "") -> PodComes:
        draw, together = self._random, self._together
        claims = draw.choice(["own", "own", "own", "shared", "both", "none"]) if together else "own"
        return PodComes(
            name or draw.choice(NAMES),
            namespace=draw.choice(["ml", "ml", "ml", "b"]),
            gang=draw.choice(["", "", "train"]) if together else "",
            group=draw.choice(["", GROUP, GROUP]) if together else "",
            own=claims in ("own", "both"),
            shared=claims in ("shared", "both"),
            seconds=draw.choice([5, 50, 100, -1]) if draw.random() < 0.25 else None,
            device=draw.choice([0, 0, 0, 1, 2]),
            priority=draw.choice([0, 0, 1, -1]),
            owner=draw.choice(["", "", "", "", "x", "x", "x", "x", "y", "daemon"]),
            completes=draw.random() < 0.15,
            ready=draw.random() < 0.85,
        )

    def _pod_is_seen(self) -> Event:
        draw = self._random
        name, yes = draw.choice(NAMES), draw.random() < 0.6
        seen: list[Event] = [PodGoes(name), PodTerminates(name), PodFinishes(name), PodChanges(name, ganged=yes)]
        return draw.choice([*seen, PodChanges(name, ready=yes), PodChanges(name, held=yes), PodChanges(name, held=yes)])

    def _claim_is_seen(self) -> Event:
        draw = self._random
        name = draw.choice([draw.choice(NAMES), SHARED])
        seconds, kept = draw.choice([None, None, None, None, 5, 50, 100, -1]), draw.random() < 0.5
        seen: list[Event] = [ClaimChanges(name, seconds), ClaimIsFreed(name), ReservationChanges(name, kept)]
        return draw.choice(seen)

    def _group_changes(self) -> Event:
        return GroupChanges(self._random.choice([ALL, ALL, SINGLE, ""]))

    def _rule(self) -> tuple[str, str, int, int | None, bool]:
        draw = self._random
        most, rate = draw.choice(["", "", "", "", "1", "2", "3", "5"]), draw.choice(["", "", "1"])
        return most, rate, draw.choice([0, 0, 0, 0, 0, 0, 0, 20]), draw.choice([None, None, 0, 1]), draw.random() < 0.1

    def _rule_changes(self) -> Event:
        number = self._random.choice([0, 0, 1])
        return RuleGoes(number) if self._random.random() < 0.33 else RuleChanges(number, *self._rule())

    def _budget_changes(self) -> Event:
        draw = self._random
        return BudgetChanges(
            draw.choice([0, 1]),
            draw.choice(["", "a", "b"]),
            opened=draw.random() < 0.4,
            status=draw.choice([None, 0, 1, 2, 5]),
            every=draw.choice([0.0, 3.0]),
            always=draw.random() < 0.3,
        )

    def _policy_changes(self) -> Event:
        changes = self._limited or self._random.random() < 0.33
        return PolicyChanges(self._profiles() if changes else (FREE,), self._random.choice([None, 1, 1, 2]))

    def _slice_changes(self) -> Event:
        draw = self._random
        tainted = tuple([each for each in range(3) if draw.random() < 0.4])
        return SliceChanges(tainted, partial=draw.random() < 0.2, generation=draw.choice([1, 1, 2]))

    # --- time, the worker and its requests -------------------------------------------------------

    def _time_passes(self) -> Event:
        if self._random.random() < 0.4:
            return TimePasses(self._random.choice(_JUMPS), jumps=True)
        return TimePasses(self._random.choice(_TIMES))

    def _replies(self) -> Event:
        draw = self._random
        replies = draw.choices(_REPLIES, k=draw.randint(1, 4))
        return ServerWillReply(tuple(replies), refuses=draw.random() < 0.3)
