"""Tests of the tests: small changes to the pure rooms, each of which a test should notice.

`make mutants` takes a sample, SEED=N the same one again, MUTANTS=N a larger or smaller one.
"""

from __future__ import annotations

import argparse
import itertools
import queue
import random
import secrets
import sys
import tempfile
import time
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.mutants.places import ROOMS, Mutant, diff_of, sample_of
from tests.mutants.trials import Copy, NotGreenError, Outcome

ROOT: Final = Path(__file__).parents[2]
ACCEPTED: Final = Path(__file__).parent / "accepted.toml"
FLOOR_PERCENT: Final = 95.0
PROGRESS_EVERY: Final = 10
"""Mutants."""


def accepted_in(path: Path) -> dict[tuple[str, str], str]:
    """Why no test can notice changes of a kind in a function, by function and kind, as mutants name them."""
    entries = tomllib.loads(path.read_text())["mutants"]
    return {(each["function"], kind): each["reason"] for each in entries for kind in each["kinds"]}


def main() -> int:
    """Prints what became of each room's mutants; 0 if enough were noticed, 1 if not, 2 if nothing can be said."""
    options = _parser().parse_args()
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    accepted = accepted_in(ACCEPTED)
    mutants, places = sample_of(ROOT, options.count, random.Random(seed), options.rooms)
    print(f"{len(mutants)} mutants at {places} places, seed {seed}", flush=True)
    excused = [mutant for mutant in mutants if (mutant.function, mutant.kind) in accepted]
    tried = [mutant for mutant in mutants if mutant not in excused]
    try:
        outcomes = _outcomes(tried[options.skip :], options)
    except NotGreenError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return _told(outcomes, len(excused), len(tried[options.skip :]) - len(outcomes))


def _outcomes(mutants: list[Mutant], options: argparse.Namespace) -> list[tuple[Mutant, Outcome]]:
    """What became of the mutants; of those for which there was time. Raises NotGreenError."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        first = Copy(ROOT, Path(folder) / "0")
        first.measure(sorted({mutant.room for mutant in mutants}))
        copies.put(first)
        for number in range(1, options.workers):
            copies.put(first.twin(ROOT, Path(folder) / str(number)))
        began = time.monotonic()
        end = began + options.minutes * 60
        tried = itertools.count(1)

        def one(mutant: Mutant) -> tuple[Mutant, Outcome] | None:
            if time.monotonic() > end:
                return None
            copy = copies.get()
            try:
                outcome = copy.outcome_of(mutant, thorough=not options.quick)
            finally:
                copies.put(copy)
            if outcome is not Outcome.KILLED:
                print(f"{mutant.path}:{mutant.line}: {outcome}", *diff_of(mutant), sep="\n", flush=True)
            if (number := next(tried)) % PROGRESS_EVERY == 0:
                print(f"[{time.monotonic() - began:4.0f} s] {number} of {len(mutants)} tried", flush=True)
            return mutant, outcome

        with ThreadPoolExecutor(options.workers) as pool:
            outcomes = [each for each in pool.map(one, mutants) if each is not None]
        while not copies.empty():
            copies.get().close()
        return outcomes


def _told(outcomes: list[tuple[Mutant, Outcome]], excused: int, left: int) -> int:
    for room in ROOMS:
        counts = Counter(outcome for mutant, outcome in outcomes if mutant.room == room)
        if counts:
            print(f"{room:<12}" + "  ".join(f"{counts[outcome]:4} {outcome}" for outcome in Outcome))
    survivors = [mutant for mutant, outcome in outcomes if outcome is Outcome.SURVIVED]
    for mutant in sorted(survivors):
        print(f"\n{mutant.path}:{mutant.line}", *diff_of(mutant), sep="\n")
    if left:
        print(f"\n{left} were not tried: time was up")
    if not outcomes:
        return 2
    percent = 100 * (len(outcomes) - len(survivors)) / len(outcomes)
    print(f"\n{percent:.1f} % noticed (at least {FLOOR_PERCENT:g} %); {excused} more are accepted as equivalent")
    return 0 if percent >= FLOOR_PERCENT else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="mutants to try; default 300")
    parser.add_argument("--seed", type=int, help="repeat the sample of this seed; default a new one")
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=ROOMS, help="default all that are pure")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time; default 2")
    parser.add_argument(
        "--skip", type=int, default=0, help="leave out the first mutants, which an earlier run has tried"
    )
    parser.add_argument("--quick", action="store_true", help="try only laws, and unit tests that reach the place")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no more after so long; default 60")
    return parser


if __name__ == "__main__":
    sys.exit(main())
