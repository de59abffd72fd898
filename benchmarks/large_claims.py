"""What the largest claims cost in this process: `make benchmark-large-claims`.

A claim of 28,160 tolerations, in each of the shapes that cost most and with documented rules enforced, as warnings and
off, under 999 policy rules. Both passes, from the bytes that come to the bytes that go; processor time, so other
processes on the machine count for little.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Final

from tests.unit.admission.crowded import LARGEST, SHAPES, body_of, policy, reviewed
from webhook.policy.decide import Judge

_MODES: Final = ("enforce", "warn", "off")
_ROUNDS: Final = 11
_MOST_MS: Final = 100.0
"""What the fastest round may take: a review of a small claim may have to wait for it."""


def _round_ms(body: bytes, mode: str) -> float:
    judge = Judge(policy(mode))  # a new one: it remembers what it has decided
    start = time.process_time()
    reviewed(body, judge)
    return (time.process_time() - start) * 1000


def main() -> int:
    """1 if a claim costs more than it may."""
    over = False
    print("| shape | documentedRules | MB | least ms | median ms |\n|---|---|---:|---:|---:|")
    for name, shape in SHAPES.items():
        body = body_of(shape(LARGEST))
        for mode in _MODES:
            taken = [_round_ms(body, mode) for _ in range(_ROUNDS)]
            over |= min(taken) > _MOST_MS
            figures = f"{len(body) / 1e6:.1f} | {min(taken):.1f} | {statistics.median(taken):.1f}"
            print(f"| {name} | {mode} | {figures} |", flush=True)
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
