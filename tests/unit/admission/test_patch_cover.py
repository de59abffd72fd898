"""Patches that hit nothing as long as something else stands before them, or as long as they cannot be evaluated."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.builders import KEY, make_taint
from tests.unit.admission.guarding import allowing, over
from tests.unit.admission.patch_guarding import CREATED_TEXT, ask_patch, evicting, known, patching

CLOSING: Final = make_taint()


def before(*taints: Any, name: str = "before", **fields: Any) -> Any:
    """A stored patch that takes precedence."""
    return patching("default", *taints, name=name, created=CREATED_TEXT, priority=10, **fields)


@pytest.mark.parametrize("old", [None, patching("default", CLOSING)])
def test_patch_that_evicts_counts_although_one_that_only_closes_wins(old: Any) -> None:
    """Nothing is asked when the other patch goes, and then all pods would be evicted."""
    stored = [before(CLOSING), *([] if old is None else [old])]
    emptying = patching("default", CLOSING, softened=KEY)
    assert over(ask_patch(emptying, old, patches=known(stored), impact=allowing(pods=3))) == ["limit:pods"]
    assert ask_patch(emptying, old, patches=known(stored), impact=allowing(pods=4)).allowed


@pytest.mark.parametrize(
    ("new", "stored"),
    [
        pytest.param(patching("default", CLOSING, softened=KEY), before(CLOSING, softened=KEY), id="softened, too"),
        pytest.param(patching(), before(evicting(value="v")), id="NoExecute, too"),
        pytest.param(patching("default", CLOSING), before(CLOSING, softened=KEY), id="it only closes"),
    ],
)
def test_patch_counts_not_where_one_wins_that_does_as_much(new: Any, stored: Any) -> None:
    assert ask_patch(new, patches=known([stored]), impact=allowing(pods=0, devices=0)).allowed
