"""Rules of a patch beside many others with filters of their own: each has to be admitted in the end."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final

from tests.builders import DRIVER
from tests.unit.admission.patch_guarding import CREATED_TEXT, FIRST, cel, known, patching, racks
from tests.unit.admission.test_written_rules import judged, stored_patch, written
from webhook.admission.context import Budget
from webhook.patches.filter_memo import FilterMemo

if TYPE_CHECKING:
    from webhook.admission.decision import Decision
    from webhook.patches.patch_reach import KnownPatches

NODES: Final = 30
RIVALS: Final = 100


def crowd(memo: FilterMemo, rivals: int) -> KnownPatches:
    """The patch that rules are written for, and others that take precedence and select nothing."""
    filters = [cel(f"{FIRST} && {number} < 0") for number in range(rivals)]
    others = [
        patching(chosen, name=f"other-{at}", uid=f"u-{at}", created=CREATED_TEXT, priority=1)
        for at, chosen in enumerate(filters)
    ]
    return known([stored_patch(), *others], memo=memo)


def slow() -> Budget:
    """Each look at a pool takes 2 ms."""
    ticks = count()
    return Budget(4.0, lambda: next(ticks) * 0.002)


def ask(patches: KnownPatches, **selector: str) -> Decision:
    rule = written({"driver": DRIVER, "device": "gpu-0", **selector})
    return judged(rule, patches=patches, cluster=CLUSTER, budget=slow())


CLUSTER: Final[Any] = racks(NODES)


def test_rule_of_one_pool_is_checked_by_the_devices_of_that_pool() -> None:
    patches = crowd(FilterMemo(), RIVALS)
    assert ask(patches, pool="node-7").allowed


def test_rule_for_a_whole_driver_is_admitted_in_the_end() -> None:
    patches = crowd(FilterMemo(), RIVALS)
    answers = [ask(patches).allowed for _ in range(20)]
    assert not answers[0]
    assert answers[-1]
