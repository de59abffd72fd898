"""Taints of patches where everything runs: which patch sets them, how many there may be, and on what devices."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.apiserver.patches.closing import KEY, SOON_SECONDS, ClosingFleet, large, wait_younger
from tests.apiserver.patches.values import COLLECTION, patch
from tests.conftest import FAKE_NODES
from tests.controlplane.processes import wait_until
from webhook.api.meta import parse_time

Json = dict[str, Any]

pytestmark = pytest.mark.usefixtures("controller")

OTHER: Final = "closed.example.com/other"
DEVICES: Final = [(node, f"gpu-{number}") for node in FAKE_NODES for number in range(4)]
EFFECTS: Final = ("NoSchedule", "NoExecute", "None")


def valued(value: str, key: str = KEY, effect: str = "NoSchedule") -> Json:
    return {"key": key, "value": value, "effect": effect}


def wait_values(fleet: ClosingFleet, values: Mapping[str, str], *more: tuple[str, str, str]) -> None:
    """Until each device of a node has the taint with the node's value, once, and these beside it."""
    expected = {(node, name): sorted([(KEY, values[node], "NoSchedule"), *more]) for node, name in DEVICES}
    wait_until(lambda: fleet.taints() == expected, f"the values are {values}", seconds=SOON_SECONDS, every=0.2)


def everywhere(value: str) -> dict[str, str]:
    return dict.fromkeys(FAKE_NODES, value)


# --- which patch sets them -----------------------------------------------------------------------


def test_highest_priority_wins_and_then_the_older_patch(fleet: ClosingFleet) -> None:
    """P-11, P-22. Names say the contrary of ages. Of the patch that loses a taint its others stay."""
    first = fleet.patch("c-below-zero", [valued("below-zero")], -1, driver=fleet.driver)
    wait_values(fleet, everywhere("below-zero"))
    wait_younger(fleet.client, first)
    older = fleet.patch("b-older", [valued("older")], driver=fleet.driver)
    wait_younger(fleet.client, older)
    more = [valued("y", OTHER), valued("y", KEY, "None")]
    younger = fleet.patch("a-younger", [valued("younger"), *more], 0, driver=fleet.driver)
    assert younger["metadata"]["creationTimestamp"] > older["metadata"]["creationTimestamp"]
    kept = (OTHER, "y", "NoSchedule"), (KEY, "y", "None")
    wait_values(fleet, everywhere("older"), *kept)
    fleet.patch("b-older", [valued("changed")], driver=fleet.driver)
    wait_values(fleet, everywhere("changed"), *kept)
    node, other = FAKE_NODES
    fleet.patch("d-high", [valued("high")], 1, driver=fleet.driver, pool=node)
    wait_values(fleet, {node: "high", other: "changed"}, *kept)
    for patch_name, left in (("d-high", "changed"), ("b-older", "younger")):
        fleet.drop(patch_name)
        wait_values(fleet, everywhere(left), *kept)
    fleet.drop("a-younger")
    wait_values(fleet, everywhere("below-zero"))


def test_of_the_same_priority_and_age_the_first_by_name_wins(fleet: ClosingFleet) -> None:
    """P-14. It is created last, and in the same second as the other one."""
    for number in itertools.count():
        last, first = f"b-{number}", f"a-{number}"
        created = [
            fleet.patch(name, [valued(name)], driver=fleet.driver)["metadata"]["creationTimestamp"]
            for name in (last, first)
        ]
        if len(set(created)) == 1:
            break
        fleet.drop(last)
        fleet.drop(first)
    wait_values(fleet, everywhere(first))
    fleet.drop(first)
    wait_values(fleet, everywhere(last))


# --- how many, and of which kind -----------------------------------------------------------------


def test_sixteen_taints_of_every_effect_are_sixteen_rules_with_a_time(fleet: ClosingFleet) -> None:
    """P-20, P-21 and N-8: a time of its own for each effect."""
    taints = [valued("", f"closed.example.com/{at}", EFFECTS[at % 3]) for at in range(17)]
    refused = fleet.client.create(COLLECTION, patch({"filter": {"driver": fleet.driver}, "taints": taints}, "many"))
    assert (refused.code, refused.causes[0].field) == (422, "spec.devices.taints")
    stored = fleet.patch("many", taints[:16], driver=fleet.driver)
    fleet.wait_expanded(stored)
    rules = fleet.rules(stored["metadata"]["uid"])
    assert len(rules) == 16
    assert all(parse_time(each["spec"]["taint"]["timeAdded"]) for each in rules)
    wanted = sorted((each["key"], "", each["effect"]) for each in taints[:16])
    assert fleet.taints() == dict.fromkeys(DEVICES, wanted)


# --- on what devices -----------------------------------------------------------------------------


def test_patch_without_a_filter_is_for_every_device_and_all_that_a_filter_names_must_hold(fleet: ClosingFleet) -> None:
    """P-2."""
    fleet.wait_known(len(DEVICES))
    fleet.patch("every", [valued("every")])
    wait_values(fleet, everywhere("every"))
    fleet.drop("every")
    names = {"driver": fleet.driver, "pool": FAKE_NODES[0], "deviceClassName": fleet.name}
    stored = fleet.patch("some", selectors=large(fleet), **names)
    fleet.wait_expanded(stored)
    assert fleet.closed(stored["metadata"]["uid"]) == {(FAKE_NODES[0], "gpu-0"), (FAKE_NODES[0], "gpu-2")}
    stored = fleet.patch("some", selectors=large(fleet), device="gpu-1", **names)
    fleet.wait_expanded(stored)
    assert fleet.rules(stored["metadata"]["uid"]) == []


def test_taint_holds_for_the_device_of_that_name_whether_there_is_one_and_whichever_slice_lists_it(
    fleet: ClosingFleet,
) -> None:
    """N-4, N-6, where such taints are rules: the device comes later, in the second slice of its pool."""
    node = FAKE_NODES[0]
    fleet.publish(node, 2, "", 2, **{"gpu-0": 80})
    stored = fleet.patch("early", driver=fleet.driver, pool=node, device="gpu-9")
    fleet.wait_expanded(stored)
    assert len(fleet.rules(stored["metadata"]["uid"])) == 1
    assert fleet.taints() == {}
    fleet.publish(node, 2, "-b", 2, **{"gpu-9": 80})
    assert fleet.taints() == {(node, "gpu-9"): [(KEY, "", "NoSchedule")]}
    assert fleet.wait_for_devices(fleet.pod(node)) == {(node, "gpu-0")}
    waiting = fleet.pod_without_device(node)
    fleet.drop("early")
    assert fleet.wait_for_devices(waiting) == {(node, "gpu-9")}
