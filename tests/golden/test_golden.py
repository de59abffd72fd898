"""What the product does is what it did: names, answers, evictions, writes, output and requests, kept as data.

A change that is meant writes the file anew, and says so in the changelog; one that is not is a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.golden.decisions import DECISIONS
from tests.golden.histories import HISTORIES
from tests.golden.surface import SURFACE, surface
from tests.golden.verbs import DUMPS, file_of, golden
from tests.golden.worlds import WORLDS

if TYPE_CHECKING:
    from tests.golden.digests import Digests

PARTS = 4


def test_nothing_that_users_rely_on_by_name_has_changed() -> None:
    """`python -m tests.golden.surface` writes the file anew."""
    assert surface().splitlines() == SURFACE.read_text().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("digests", [DECISIONS, WORLDS, HISTORIES], ids=lambda each: each.file.stem)
def test_nothing_has_changed(digests: Digests, part: int) -> None:
    assert not digests.changed(range(part, digests.seeds, PARTS))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(DUMPS))
def test_verbs_say_and_ask_what_they_did(seed: int) -> None:
    """`python -m tests.golden.verbs` writes the files anew."""
    assert golden(seed).splitlines() == file_of(seed).read_text().splitlines()
