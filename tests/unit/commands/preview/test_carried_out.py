"""What a preview says where our worker carries a taint out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.unit.inventory.values import NOW, claim, group, inventory_of, on, pod, pool_slice, rule
from webhook.api.claims import Consumer
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, Pod, PodGroup
from webhook.api.taints import DeviceToleration
from webhook.commands.preview.run import as_our_worker
from webhook.eviction.followed_pods import ProfiledPods
from webhook.inventory.preview import OutcomeReason, PodOutcome, rule_preview
from webhook.policy.model import EvictionProfile

if TYPE_CHECKING:
    from webhook.inventory.preview import Preview
    from webhook.inventory.state import InventoryObject

SLICE = pool_slice("gpu-0", "gpu-1")
RULE = rule(effect="NoSchedule", evict=True)


def previewed(*objects: InventoryObject, mirror: str = "") -> Preview:
    """What RULE does to these; the pod named `mirror` is a mirror pod."""
    mirrored = [
        structs.replace(each, mirror=True) if isinstance(each, Pod) and each.meta.name == mirror else each
        for each in objects
    ]
    inventory = inventory_of(SLICE, RULE, *mirrored)
    preview = rule_preview(inventory, RULE, in_tree=True, now=NOW)
    return as_our_worker(inventory, preview, ProfiledPods(inventory, (EvictionProfile(),)), NOW)


def outcomes(preview: Preview) -> dict[str, tuple[PodOutcome, OutcomeReason | None]]:
    return {row.name: (row.outcome, row.cause.reason) for row in preview.pods}


def ring(uid: str = "ring") -> PodGroup:
    """A PodGroup with the name that `group("ring")` has."""
    return PodGroup(ObjectMeta("group-ring", namespace="ml", uid=uid), ALL)


def user(name: str) -> Consumer:
    return Consumer("", "pods", name, f"uid-of-{name}")


def member(name: str, *claims: str) -> Any:
    return structs.replace(pod(name, *claims), pod_group="group-ring")


def test_pod_that_is_exempt_is_left_alone_for_that_reason_and_the_others_go() -> None:
    found = outcomes(
        previewed(
            claim("a", on("gpu-0"), users=[user("a")]),
            claim("b", on("gpu-1"), users=[user("b")]),
            pod("a", "a"),
            pod("b", "b"),
            mirror="a",
        )
    )
    assert found["a"] == (PodOutcome.LEFT_ALONE, OutcomeReason.MIRROR_POD)
    assert found["b"][0] is PodOutcome.EVICTED


def test_pod_that_tolerates_the_taint_or_is_not_known_stays_as_it_is_in_the_preview() -> None:
    for_ever = DeviceToleration(operator="Exists")
    found = outcomes(
        previewed(
            claim("a", on("gpu-0", for_ever), users=[user("a")]),
            claim("b", on("gpu-1"), users=[user("gone")]),
            pod("a", "a"),
            mirror="a",
        )
    )
    assert found["a"][0] is PodOutcome.TOLERATES
    assert found["gone"][0] is PodOutcome.EVICTED


@pytest.mark.parametrize(
    ("mirror", "reason"),
    [("", OutcomeReason.HELD_BY_POD_GROUP), ("a", OutcomeReason.MIRROR_POD)],
    ids=["kept by its group", "exempt as well"],
)
def test_pod_whose_group_keeps_its_claim_is_left_alone(mirror: str, reason: OutcomeReason) -> None:
    shared = claim("a", on("gpu-0"), users=[group("ring"), user("a")])
    assert outcomes(previewed(shared, ring(), member("a", "a"), mirror=mirror))["a"] == (PodOutcome.LEFT_ALONE, reason)


def test_pods_of_a_group_that_goes_as_one_go_with_it_and_keep_their_devices_in_the_preview() -> None:
    """One goes for the taint, one would go by itself much later, one has no device that is tainted."""
    late = [DeviceToleration(RULE.taint.key, "Exists", "", "", 3600)]
    found = previewed(
        claim("a", on("gpu-0"), users=[user("a")]),
        claim("b", on("gpu-1", *late), users=[user("b")]),
        claim("c", users=[user("c")]),
        ring(),
        *[member(name, name) for name in "abc"],
    )
    rows = {row.name: row for row in found.pods}
    assert {row.outcome for row in rows.values()} == {PodOutcome.EVICTED}
    assert [rows[name].cause.reason for name in "bc"].count(OutcomeReason.WITH_POD_GROUP) >= 1
    assert (len(rows["a"].devices), len(rows["b"].devices), len(rows["c"].devices)) == (1, 1, 0)


def test_member_with_an_eviction_of_its_own_keeps_its_time_and_reason() -> None:
    late = DeviceToleration(RULE.taint.key, "Exists", "", "NoExecute", 3600)
    found = previewed(
        claim("a", on("gpu-0"), users=[user("a")]),
        claim("b", on("gpu-1", late), users=[user("b")]),
        claim("c", users=[user("c")]),
        ring(),
        *[member(name, name) for name in "abc"],
    )
    assert [(row.name, row.seconds, row.cause.reason) for row in found.pods] == [
        ("a", 0, OutcomeReason.NOT_TOLERATED),
        ("c", 0, OutcomeReason.WITH_POD_GROUP),
        ("b", 3600, OutcomeReason.TOLERATED_FOR_SECONDS),
    ]
    assert found.companions == 1


FOR_EVER = DeviceToleration(operator="Exists")


@pytest.mark.parametrize(
    ("mode", "tolerations", "mirror"),
    [
        pytest.param(SINGLE, [], "", id="its pods go one by one"),
        pytest.param(ALL, [FOR_EVER], "", id="no pod of it goes"),
        pytest.param(ALL, [], "c", id="the other is exempt"),
    ],
)
def test_member_stays_where_its_group_takes_it_nowhere(
    mode: str, tolerations: list[DeviceToleration], mirror: str
) -> None:
    found = previewed(
        claim("a", on("gpu-0", *tolerations), users=[user("a")]),
        claim("c", users=[user("c")]),
        structs.replace(ring(), disruption_mode=mode),
        *[member(name, name) for name in "ac"],
        mirror=mirror,
    )
    assert [row.name for row in found.pods] == ["a"]


@pytest.mark.parametrize(
    ("others", "left_alone"),
    [
        pytest.param([ring()], True, id="the group that reserved it"),
        pytest.param([ring("another")], False, id="a later group of the same name"),
        pytest.param([], False, id="no group"),
    ],
)
def test_reservation_of_a_group_holds_while_that_group_exists(others: list[PodGroup], *, left_alone: bool) -> None:
    (row,) = previewed(claim("a", on("gpu-0"), users=[group("ring")]), *others).pod_groups
    assert row.name == "group-ring"
    assert (row.outcome is PodOutcome.LEFT_ALONE) is left_alone
    assert (row.cause.reason is OutcomeReason.HELD_BY_POD_GROUP) is left_alone
    assert (row.seconds is None) is left_alone


@pytest.mark.parametrize("seconds", [10**12, 2**63 - 1])
def test_toleration_beyond_the_calendar_is_shown_as_it_is(seconds: int) -> None:
    late = DeviceToleration(operator="Exists", effect="NoExecute", toleration_seconds=seconds)
    preview = previewed(ring(), claim("a", on("gpu-0", late), users=[user("a")]), member("a", "a"), member("along"))
    assert {row.name: row.seconds for row in preview.pods} == {"a": seconds, "along": seconds}
