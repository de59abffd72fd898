"""`device-taint-webhook` that writes the lengths of everything the worker keeps to a file, at each signal `ASKS`.

It also writes a line for each look at a pod as its request is written. Run as
`python -m tests.apiserver.eviction.sized <folder> evict ...`. What is kept of idle budgets for ten minutes is kept
for seconds only, so that a test need not wait for the end of that.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec

from webhook.cli import main
from webhook.daemons import evict
from webhook.eviction import upkeep
from webhook.eviction.planner import Planner
from webhook.eviction.pod_plan import Going, Unit

SIZES, LOOKS = "sizes.json", "looks.jsonl"
ASKS: Final = signal.SIGRTMIN
"""SIGUSR1 and SIGUSR2 have a meaning already."""
BUDGETS_KEPT_SECONDS: Final = 20.0
_COUNTED: Final = (dict, list, set, deque, Mapping)
_NAMES: Final = ("._claim_pods[]", ".usage._users[][]")
"""Paths where each value is a tuple or a dict (`inventory.usage`), by how many names it had before."""


def lengths_of(root: object) -> dict[str, int]:
    """The lengths of all containers that can be reached from our objects, summed up by the path of attributes.

    Values such as objects of the cluster are not looked into. What can be reached on two paths counts on the shorter.
    """
    found: Counter[str] = Counter()
    seen: dict[int, object] = {}
    waiting = deque([("", root)])
    while waiting:
        path, known = waiting.popleft()
        if id(known) in seen:
            continue
        seen[id(known)] = known  # kept, so that no other object gets its id meanwhile
        if isinstance(known, _COUNTED) or (isinstance(known, tuple) and path.endswith(_NAMES)):
            found[path] += len(known)
        waiting.extend(_below(path, known))
    return dict(found)


def _below(path: str, known: object) -> Iterator[tuple[str, object]]:
    if isinstance(known, Mapping):
        yield from ((f"{path}[]", value) for value in list(known.values()))
    elif isinstance(known, list | deque | tuple | set):
        yield from ((f"{path}[]", value) for value in list(known))
    elif type(known).__module__.startswith("webhook.") and not isinstance(known, msgspec.Struct):
        slots = [name for each in type(known).__mro__ for name in getattr(each, "__slots__", ())]
        for name in [*getattr(known, "__dict__", {}), *slots]:
            if hasattr(known, name):
                yield f"{path}.{name}", getattr(known, name)


def write_at_signals(file: Path) -> None:
    """From here on; the file appears whole."""
    workers: list[evict.Worker] = []
    stages = evict.Worker.stages

    def known(self: evict.Worker) -> Any:
        workers.append(self)
        return stages(self)

    def write(_signal: int, _frame: FrameType | None) -> None:
        sizes = {**lengths_of(workers[0]), "tasks": len(asyncio.all_tasks())}
        part = file.with_suffix(".part")
        part.write_text(json.dumps(sizes))
        os.replace(part, file)  # noqa: PTH105 -- one call, as `Path.replace`

    evict.Worker.stages = known  # type: ignore[method-assign]
    signal.signal(ASKS, write)


def write_looks(file: Path) -> None:
    """From here on: when, the uids of the pods, and whether they go."""
    goes, goes_alone = Planner.goes, Planner.goes_alone

    def note(planner: Planner, pods: list[str], *, go: bool) -> bool:
        at = planner._deps.clock.now().isoformat()
        with file.open("a") as lines:
            lines.write(json.dumps({"at": at, "pods": pods, "go": go}) + "\n")
        return go

    def unit(self: Planner, unit: Unit) -> bool:
        return note(self, [each.uid for each in unit.members], go=goes(self, unit))

    def alone(self: Planner, each: Going) -> bool:
        return note(self, [each.uid], go=goes_alone(self, each))

    Planner.goes, Planner.goes_alone = unit, alone  # type: ignore[method-assign]


if __name__ == "__main__":
    upkeep._BUDGET_SECONDS = BUDGETS_KEPT_SECONDS  # type: ignore[misc]
    folder = Path(sys.argv.pop(1))
    write_at_signals(folder / SIZES)
    write_looks(folder / LOOKS)
    sys.exit(main())
