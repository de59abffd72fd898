"""Every loop over the inventory can be stopped."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.builders import NOW
from tests.unit.inventory.values import DRIVER, claim, inventory_of, lets_stay, on, pool_slice, taint
from webhook.admission.recent_impact import limits_in_numbers, totals
from webhook.api.rules import DeviceSelector
from webhook.inventory.impact import Taint, impact_of, impact_on_users
from webhook.inventory.pools import in_steps
from webhook.inventory.targets import DeviceNames, Extent
from webhook.policy.limits import protected_among
from webhook.policy.match import NO_NAMES
from webhook.policy.model import ImpactLimits, NamespaceMatch, Share

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.inventory.pools import Check
    from webhook.inventory.state import Inventory, InventoryObject

MANY = 3500
ACTING = Taint.of_slice(taint(), in_tree=True)
CLUSTER: list[InventoryObject] = [
    *[pool_slice("d", name=f"s-{number}", pool=f"node-{number}") for number in range(MANY)],
    *[
        claim(f"c-{n}", on("d", lets_stay(n), pool=f"node-{n}"), users=[f"u-{n}"], namespace=f"ns-{n}")
        for n in range(MANY)
    ],
]


def test_check_comes_before_every_so_many_items() -> None:
    looks: list[int] = []
    items = in_steps(range(7), lambda: looks.append(1), 3)
    assert [(item, len(looks)) for item in items] == [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 3)]
    assert list(in_steps([], lambda: looks.append(-1))) == []
    assert -1 not in looks


@pytest.mark.untraced
@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(totals, id="totals"),
        pytest.param(lambda all_, check: limits_in_numbers(ImpactLimits(pods=Share(5)), all_, check), id="limits"),
        pytest.param(lambda all_, check: all_.pools.device_count(None, check), id="devices published"),
        pytest.param(lambda all_, check: all_.pools.device_count(DRIVER, check), id="devices of a driver"),
        pytest.param(lambda all_, check: impact_of(all_, None, ACTING, NOW, check), id="what is published"),
        pytest.param(lambda all_, check: impact_of(all_, DeviceSelector(), ACTING, NOW, check), id="impact"),
        pytest.param(
            lambda all_, check: impact_on_users(all_, DeviceSelector(device="gone"), ACTING, NOW, check), id="users"
        ),
        pytest.param(lambda all_, check: all_.usage.claims_on(DRIVER, None, "gone", check), id="claims"),
        pytest.param(lambda all_, check: Extent([DeviceNames(device="d")]).count(all_.pools, None, check), id="extent"),
        pytest.param(
            lambda all_, check: Extent(DeviceNames(None, f"x-{n}", "d") for n in range(MANY)).count(
                all_.pools, DRIVER, check
            ),
            id="extent of many pools",
        ),
        pytest.param(
            lambda all_, check: Extent([DeviceNames(device="d")]).holds_all(DeviceNames(), all_.pools, None, check),
            id="whether an extent has them all",
        ),
        pytest.param(
            lambda all_, check: protected_among(
                NamespaceMatch(names=("x",)),
                {each.meta.namespace for each in all_.claims.values()},
                NO_NAMES.namespace,
                check,
            ),
            id="protected namespaces",
        ),
    ],
)
def test_count_asks_for_every_thousand(ask: Callable[[Inventory, Check], object]) -> None:
    """F7."""
    inventory = inventory_of(*CLUSTER)

    def spent_after(most: int) -> Check:
        looks = count(1)

        def check() -> None:
            if next(looks) > most:
                raise TimeoutError

        return check

    for most in (0, 3):
        with pytest.raises(TimeoutError):
            ask(inventory, spent_after(most))
    ask(inventory, spent_after(40))
