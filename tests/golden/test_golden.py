"""What the product does is what it did: names, answers, evictions, writes, output and requests, kept as data.

If you meant the change, rewrite the file, and say so in the changelog. If not, it is a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.golden.daemons import DAEMONS, daemons
from tests.golden.decisions import DECISIONS
from tests.golden.histories import HISTORIES
from tests.golden.surface import SURFACE, surface
from tests.golden.verbs import DUMPS, file_of, golden
from tests.golden.worlds import WORLDS
from tests.golden.wrong_flags import WRONG_FLAGS, wrong_flags

if TYPE_CHECKING:
    from tests.golden.digests import Digests

PARTS = 5
"""`make test` compares all parts of the decisions, and one of the others; `make test-whole` compares the rest."""
FEW = 10
"""The dumps whose verbs `make test` compares; `make test-whole` compares those of the rest."""


def test_nothing_that_users_rely_on_by_name_has_changed() -> None:
    """`python -m tests.golden.surface` rewrites the file."""
    assert surface().splitlines() == SURFACE.read_text().splitlines()


def test_long_running_processes_are_made_of_what_they_were() -> None:
    """`python -m tests.golden.daemons` rewrites the file."""
    assert daemons().splitlines() == DAEMONS.read_text().splitlines()


def test_daemons_say_what_they_did_about_wrong_flags() -> None:
    """`python -m tests.golden.wrong_flags` rewrites the file."""
    assert wrong_flags().splitlines() == WRONG_FLAGS.read_text().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("digests", "part"),
    [
        pytest.param(
            digests,
            part,
            id=f"{digests.file.stem}-{part}",
            marks=pytest.mark.whole if part and digests is not DECISIONS else (),
        )
        for digests in (DECISIONS, HISTORIES, WORLDS)
        for part in range(PARTS)
    ],
)
def test_nothing_has_changed(digests: Digests, part: int) -> None:
    assert not digests.changed(range(part, digests.seeds, PARTS))


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [pytest.param(each, marks=() if each < FEW else pytest.mark.whole) for each in range(DUMPS)]
)
def test_verbs_say_and_ask_what_they_did(seed: int) -> None:
    """`python -m tests.golden.verbs` rewrites the files."""
    assert golden(seed).splitlines() == file_of(seed).read_text().splitlines()
