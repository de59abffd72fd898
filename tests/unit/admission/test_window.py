"""Many small rules are one large one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW, decoded
from tests.unit.admission.guarding import NOWHERE, ask, fleet, node, over, refusals, tainting
from tests.unit.inventory.values import claim, inventory_of, on, pool_slice, taint
from webhook.admission.context import Budget, OutOfTime
from webhook.admission.window import totals
from webhook.api.slices import Device
from webhook.inventory.impact import Impact as Hit
from webhook.inventory.impact import Wave
from webhook.policy.model import Impact, ImpactLimits

if TYPE_CHECKING:
    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.state import Held

NODES = 8


def value(rule: Any) -> DeviceTaintRule:
    found: DeviceTaintRule = decoded(rule)[0]
    return found


def stored(number: int, *, seconds_ago: float = 60, effect: str = "NoExecute", **fields: Any) -> DeviceTaintRule:
    """A rule on one node."""
    added = NOW - timedelta(seconds=seconds_ago)
    return value(tainting(node(number), effect, name=f"stored-{number}", added=added, **fields))


def settings(window_seconds: float = 600, **numbers: Any) -> Impact:
    return Impact(limits=(ImpactLimits(**(numbers or {"pods": 2})),), window_seconds=window_seconds)


def reasons(
    *others: Held, rule: Any = None, old: Any = None, promised: Any = (), victims: Any = (), **options: Any
) -> list[str]:
    """Why a rule on node 0 is too much, with these rules and slices in the cluster."""
    cluster = inventory_of(*fleet(NODES, lambda number: f"ns-{number}"), *others)
    decision = ask(
        rule or tainting(node(0)),
        old,
        cluster=cluster,
        **{"promised": tuple(promised), "victims": tuple(victims), "impact": settings(), **options},
    )
    return over(decision)


WINDOW = ["window:pods"]


def test_refusal_tells_what_all_of_them_hit() -> None:
    cluster = inventory_of(*fleet(NODES), stored(1), stored(2))
    (text,) = refusals(ask(tainting(node(0)), cluster=cluster, impact=settings(pods=2, claims=2)))
    assert text.startswith(
        "hits 2 devices, 1 pod in 1 namespace: with all other taints of the last 10 min it hits 3 claims and 3 pods,"
        " and the limit is 2 claims and 2 pods; narrow the selector, or to go ahead, set annotation"
    )


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param([stored(1)], [], id="two"),
        pytest.param([stored(1), stored(2)], WINDOW, id="three"),
        pytest.param([stored(1), stored(2, seconds_ago=599)], WINDOW, id="just inside"),
        pytest.param([stored(1), stored(2, seconds_ago=661)], [], id="outside"),
        pytest.param([stored(1), stored(2, seconds_ago=-3600)], WINDOW, id="in the future"),
        pytest.param([stored(1), stored(2, effect="NoSchedule")], [], id="one that evicts nobody"),
        pytest.param([stored(1), stored(2, effect="NoSchedule", evict=True)], WINDOW, id="one that asks us to evict"),
        pytest.param([stored(1), structs.replace(stored(1), meta=stored(2).meta)], [], id="one and the same pod"),
        pytest.param([stored(0), structs.replace(stored(0), meta=stored(2).meta)], [], id="the very pod"),
    ],
)
def test_stored_rules_of_the_window_count(others: list[Held], expected: list[str]) -> None:
    assert reasons(*others) == expected
    assert reasons(promised=others) == expected


def test_window_can_be_switched_off() -> None:
    assert reasons(stored(1), stored(2), impact=settings(window_seconds=0)) == []
    assert reasons(stored(1), stored(2), stored(3), impact=settings(window_seconds=0)) == []


def test_short_window_holds_for_times_that_lie_back_a_little() -> None:
    """A minute is not refused as set back, so it must not be a way out of the window."""
    others = [stored(number, seconds_ago=59) for number in (1, 2)]
    assert reasons(*others, impact=settings(window_seconds=5)) == WINDOW


def test_rule_that_is_stored_and_promised_counts_once() -> None:
    assert reasons(stored(1), promised=[stored(1)]) == []
    assert reasons(stored(1), promised=[stored(1), stored(2)]) == WINDOW


def test_newer_form_of_a_promised_rule_is_not_hidden_by_the_promise() -> None:
    newer = structs.replace(stored(2), meta=stored(1).meta)
    assert reasons(newer, promised=[stored(1)]) == WINDOW


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"pods": 3}, []),
        ({"pods": 2}, ["window:pods"]),
        ({"claims": 2}, ["window:claims"]),
        ({"namespaces": 2}, ["window:namespaces"]),
        ({"devices": 6}, []),
        ({"devices": 5}, ["window:devices"]),
        ({"pods": 1, "claims": 3, "namespaces": 1}, ["window:pods,namespaces"]),
    ],
    ids=str,
)
def test_every_limit_holds_for_all_together(numbers: Any, expected: list[str]) -> None:
    assert reasons(stored(1), stored(2), impact=settings(**numbers)) == expected


def test_rule_that_evicts_nobody_is_not_refused_for_its_neighbours() -> None:
    others = [stored(number) for number in range(1, 5)]
    assert reasons(*others, rule=tainting(NOWHERE)) == []
    assert reasons(*others, rule=tainting(node(0), "NoSchedule")) == []
    assert reasons(*others, rule=tainting(node(0), "None")) == []


def test_own_limit_is_told_rather_than_that_of_the_window() -> None:
    assert reasons(stored(1), stored(2), rule=tainting()) == ["limit:pods"]


# --- what moves, and what is gone ------------------------------------------------------------------


def test_rule_that_moves_on_counts_where_it_was() -> None:
    """Else one rule could empty a cluster, node by node."""
    at = NOW - timedelta(seconds=30)
    old = tainting({"driver": DRIVER, "pool": "node-1"}, name="mover", added=at)
    new = tainting(node(0), name="mover")
    assert reasons(value(old), rule=new, old=old, impact=settings(pods=1)) == WINDOW
    assert reasons(value(old), rule=new, old=old) == []
    assert reasons(promised=[value(old)], rule=new, old=old, impact=settings(pods=1)) == WINDOW


def test_rule_that_changes_its_value_counts_its_pods_once() -> None:
    old = tainting(node(0), name="same", added=NOW)
    new = tainting(node(0), name="same", value="fan")
    assert reasons(value(old), rule=new, old=old, impact=settings(pods=1)) == []


def hit(*uids: str, namespace: str = "gone") -> Hit:
    everybody = frozenset(uids)
    return Hit(waves=(Wave(0, everybody, everybody),), namespaces=frozenset({namespace}))


def test_who_is_gone_still_counts() -> None:
    assert reasons(victims=[hit("a")]) == []
    assert reasons(victims=[hit("a"), hit("b")]) == WINDOW
    assert reasons(victims=[hit("a"), hit("a")]) == []
    assert reasons(victims=[hit("a", "b")]) == WINDOW
    assert reasons(stored(1), victims=[hit("u-1")]) == []
    assert reasons(victims=[hit("a", "b")], impact=settings(namespaces=1)) == ["window:namespaces"]


# --- slices ---------------------------------------------------------------------------------------


def tainted(number: int, *, seconds_ago: float = 60, effect: str = "NoExecute", device: str = "gpu-0") -> Held:
    """A node's slice with a taint on one device."""
    added = taint(effect, added=NOW - timedelta(seconds=seconds_ago))
    devices = [Device(name, (added,) if name == device else ()) for name in ("gpu-0", "gpu-1")]
    return pool_slice(*devices, name=f"slice-{number}", pool=f"node-{number}")


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param([tainted(1), tainted(2)], WINDOW, id="taints of drivers"),
        pytest.param([tainted(1), stored(2)], WINDOW, id="one of each"),
        pytest.param([tainted(1), tainted(2, seconds_ago=700)], [], id="an old one"),
        pytest.param([tainted(1), tainted(2, effect="NoSchedule")], [], id="one that evicts nobody"),
        pytest.param([tainted(1), tainted(2, device="gpu-1")], [], id="one on a device that nobody uses"),
        pytest.param([tainted(1), tainted(0)], [], id="one on the very device"),
    ],
)
def test_taints_in_slices_count(others: list[Held], expected: list[str]) -> None:
    assert reasons(*others) == expected


def test_devices_of_slices_are_counted_one_by_one() -> None:
    assert reasons(tainted(1), tainted(2), impact=settings(devices=4)) == []
    assert reasons(tainted(1), tainted(2), impact=settings(devices=3)) == ["window:devices"]


# --- totals and time ------------------------------------------------------------------------------


def test_totals_are_all_that_could_be_hit() -> None:
    cluster = inventory_of(
        pool_slice("gpu-0", "gpu-1", "gpu-2"),
        claim("a", on("gpu-0"), on("gpu-1"), users=["u", "v"], namespace="one"),
        claim("b", on("gpu-2"), users=["u"], namespace="two"),
        claim("idle", on("gpu-9"), namespace="three"),
        claim("pending", users=[], namespace="four"),
    )
    assert totals(cluster) == (3, 2, 2, 2)


def test_out_of_time_is_raised_between_rules() -> None:
    ticks = iter(range(1000))
    with pytest.raises(OutOfTime) as raised:
        reasons(*[stored(number) for number in range(1, 8)], budget=Budget(9, lambda: next(ticks)))
    assert raised.value.phase == "impact of the last taints"
