"""Rules for the hardware of a rule evict no pod once that one has expired, though they name no expiry themselves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.patched import for_hardware
from tests.unit.eviction.test_expired_rules import Refusing
from tests.unit.eviction.world import FakeCluster, World, evicting
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT, HARDWARE, SCOPE, DeviceSelector, DeviceTaintRule, RuleOrigin
from webhook.inventory.targets import rule_name

PART = DeviceSelector(DRIVER, "node-0", "gpu-0-part-1")
SERVERS = pytest.mark.parametrize("cluster", [FakeCluster, Refusing], ids=["taken back", "refused"])
WRITES = pytest.mark.parametrize("delete_expired", [False, True], ids=["downgraded", "deleted"])


def at(seconds: float) -> dict[str, str]:
    return {SCOPE: HARDWARE, EXPIRES_AT: format_time(NOW + timedelta(seconds=seconds))}


def owner(seconds: float) -> DeviceTaintRule:
    return rule("owner", selector=DeviceSelector(DRIVER, "node-0", "gpu-0"), annotations=at(seconds))


def sibling(owner_name: str = "owner", key: str = "") -> DeviceTaintRule:
    """As the controller writes it, unless the owner or the key is another one."""
    fields: dict[str, Any] = {"key": key} if key else {}
    made = rule(rule_name("owner", owner(0).taint, PART), selector=PART, **fields)
    return for_hardware(made, owner_name)


def parts(count: int = 1, **fields: Any) -> list[Any]:
    """Pods on the device of the sibling."""
    names = [f"part-{number}" for number in range(count)]
    return [x for name in names for x in (claim(name, devices=("gpu-0-part-1",)), pod(name, **fields))]


def started(*rules: DeviceTaintRule, **fields: Any) -> World:
    """A leader that finds these rules at the start."""
    world = evicting(**fields)
    for each in (*parts(), *rules):
        world.inventory.apply(None, each)
    world.worker.start()
    return world


@SERVERS
@WRITES
def test_sibling_of_an_expired_rule_evicts_no_pod_for_a_new_leader(
    cluster: type[FakeCluster], *, delete_expired: bool
) -> None:
    world = started(owner(-3600), sibling(), cluster=cluster, delete_expired=delete_expired)
    assert world.after(60) == []
    known = world.rule(sibling().meta.name)
    world.edit(known, meta=structs.replace(known.meta, annotations={"example.com/note": "seen"}))
    assert world.after(60) == []


@SERVERS
@WRITES
def test_sibling_evicts_up_to_the_expiry_of_its_owner(cluster: type[FakeCluster], *, delete_expired: bool) -> None:
    world = evicting(*parts(8), cluster=cluster, delete_expired=delete_expired, rate=0.1, burst=1)
    world.add(owner(35), sibling())
    assert len(world.after(34)) == 4
    assert len(world.after(600)) == 4


@pytest.mark.parametrize("expires", [7200, None], ids=["later", "never"])
def test_sibling_evicts_again_once_its_owner_expires_later(expires: float | None) -> None:
    world = started(owner(-3600), sibling(), cluster=Refusing)
    assert world.after(60) == []
    known = world.rule("owner")
    annotations = {SCOPE: HARDWARE} if expires is None else at(expires)
    world.edit(known, meta=structs.replace(known.meta, annotations=annotations))
    assert world.after(60) == ["part-0"]


@pytest.mark.parametrize(
    "other",
    [sibling("someone"), sibling(key="example.com/other"), structs.replace(sibling(), origin=rule().origin)],
    ids=["of another owner", "with another taint", "without marks"],
)
def test_rule_that_is_not_for_the_hardware_of_an_expired_one_evicts(other: DeviceTaintRule) -> None:
    assert started(owner(-3600), other).after(60) == ["part-0"]


def test_sibling_of_a_rule_that_was_restored_evicts() -> None:
    """A rule that stays restored is acted on, and so are the rules for its hardware."""
    world = started(owner(-3600), sibling())
    assert world.after(60) == []
    known = world.rule("owner")
    world.edit(known, generation=2)
    known = world.rule("owner")
    world.edit(known, generation=3, taint=structs.replace(known.taint, effect="NoExecute"))
    assert world.after(60) == ["part-0"]


@pytest.mark.parametrize("owner_is_there", [True, False])
@pytest.mark.parametrize(
    "origin", [rule().origin, structs.replace(sibling().origin, hardware_of="")], ids=["no marks", "no label"]
)
def test_rule_that_an_admin_takes_over_from_its_expired_owner_evicts(
    origin: RuleOrigin, *, owner_is_there: bool
) -> None:
    world = started(owner(-3600), sibling())
    assert world.after(60) == []
    if not owner_is_there:
        world.remove(world.rule("owner"))
    world.edit(world.rule(sibling().meta.name), origin=origin, generation=5)
    assert world.after(60) == ["part-0"]
