"""Digests that are kept in a file, one for each seed, and what to say where they differ."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

_SHOWN_MOST: Final = 10
_ON_A_LINE: Final = 12


class Digests(NamedTuple):
    """The file, how many seeds there are, and what comes of some of them, as text."""

    file: Path
    seeds: int
    told: Callable[[Iterable[int]], Iterable[str]]

    def of(self, seeds: Sequence[int]) -> dict[int, str]:
        """What they come to now."""
        found = [hashlib.sha256(text.encode()).hexdigest()[:8] for text in self.told(seeds)]
        return dict(zip(seeds, found, strict=True))

    def changed(self, seeds: Sequence[int]) -> str:
        """Those that differ from the file, the first ten with what comes of them; empty if none does."""
        stored, now = self.file.read_text().split(), self.of(seeds)
        changed = [seed for seed in seeds if now[seed] != stored[seed]]
        if not changed:
            return ""
        shown = "\n\n".join(
            f"seed {seed}:\n{text}" for seed, text in zip(changed, self.told(changed[:_SHOWN_MOST]), strict=False)
        )
        module = f"python -m tests.golden.{self.file.stem}"
        how = f"`{module} SEED` prints what it was if run at the commit before. `{module}` rewrites the file."
        return f"{len(changed)} of {len(seeds)} have changed: {changed[:_SHOWN_MOST]}\n{how}\n\n{shown}"

    def main(self, arguments: Sequence[str]) -> None:
        """Write the file, or print what comes of some seeds."""
        for text in self.told([int(each) for each in arguments]):
            print(text)
        if not arguments:
            found = list(self.of(range(self.seeds)).values())
            lines = [" ".join(found[at : at + _ON_A_LINE]) for at in range(0, len(found), _ON_A_LINE)]
            self.file.write_text("\n".join(lines) + "\n")
