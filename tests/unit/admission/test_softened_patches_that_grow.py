"""Patches that were softened, sent again by their author with NoExecute and more than before."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest

from tests.builders import DRIVER, NOW, NOW_TEXT
from tests.tables import table
from tests.unit.admission.patch_guarding import evicting, patching, send_patch
from tests.unit.admission.softened import OPERATOR, softening
from webhook.api.meta import format_time
from webhook.policy.model import Softening

KEY: Final = evicting()["key"]
NODE: Final = {"driver": DRIVER, "pool": "node-0"}
YESTERDAY: Final = format_time(NOW - timedelta(days=1))
TOMORROW: Final = format_time(NOW + timedelta(days=1))
STORED: Final = patching(NODE, evicting(effect="NoSchedule", time_added=YESTERDAY), softened=KEY)


def untimed(**fields: Any) -> Any:
    """A NoExecute taint as a health operator writes it."""
    taint = evicting(**fields)
    del taint["timeAdded"]
    return taint


def stored_taints(new: Any, **options: Any) -> list[Any]:
    """The taints as they are stored; both webhooks must allow it."""
    _, judged, stored = send_patch(new, STORED, user=OPERATOR, **options)
    assert judged.errors == ()
    return [(each["effect"], each["timeAdded"]) for each in stored["spec"]["devices"]["taints"]]


@pytest.mark.parametrize("when", [Softening.OVER, Softening.ALWAYS])
@table(
    "new",
    {
        "wider": patching({"driver": DRIVER}, untimed()),
        "wider, with the stored time": patching({"driver": DRIVER}, evicting(time_added=YESTERDAY)),
        "higher rate and wider": patching({"driver": DRIVER}, untimed(evictionsPerSecond=100)),
    },
)
def test_patch_that_grows_is_softened_again_with_the_present_time(new: Any, when: Softening) -> None:
    impact = softening(when, pods=3 if when is Softening.OVER else 100)
    assert stored_taints(new, impact=impact) == [("NoSchedule", NOW_TEXT)]


@table(
    "new",
    {
        "the same": patching(NODE, untimed()),
        "fewer devices": patching({**NODE, "device": "gpu-0"}, untimed()),
    },
)
def test_patch_that_does_no_more_keeps_its_time(new: Any) -> None:
    assert stored_taints(new, impact=softening()) == [("NoSchedule", YESTERDAY)]


def test_higher_rate_where_every_patch_is_softened_keeps_the_time() -> None:
    new = patching(NODE, untimed(evictionsPerSecond=100))
    assert stored_taints(new, impact=softening(Softening.ALWAYS, pods=100)) == [("NoSchedule", YESTERDAY)]


def test_later_time_of_the_author_holds_also_where_the_patch_grows() -> None:
    new = patching({"driver": DRIVER}, evicting(time_added=TOMORROW))
    assert stored_taints(new, impact=softening()) == [("NoSchedule", TOMORROW)]
