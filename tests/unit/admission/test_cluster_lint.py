"""Advice by the inventory: what is valid and will not do in this cluster what it should."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.builders import (
    DRIVER,
    KEY,
    decoded,
    make_admission_request,
    make_claim,
    make_context,
    make_device,
    make_request,
    make_result,
    make_rule,
    make_slice,
    make_status,
    make_taint,
    make_template,
    make_toleration,
)
from webhook.admission.chain import validate
from webhook.inventory.state import Inventory, Sight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.admission.decision import Decision

POOL: Final = "node-0"
OTHER_KEY: Final = f"{KEY.rpartition('/')[0]}/other"
ELSEWHERE: Final = f"elsewhere.example.org/{KEY.rpartition('/')[2]}"


def held(*manifests: Any) -> Inventory:
    """An inventory of these objects."""
    inventory = Inventory()
    for manifest in manifests:
        value, errors = decoded(manifest)
        assert not errors
        inventory.apply(None, value)
    return inventory


def published(*taints: Any) -> Any:
    """Two devices; the first has the taints."""
    return make_slice([make_device("gpu-0", taints), make_device("gpu-1")])


def rule_for(selector: Any, *, name: str = "new", **taint: Any) -> Any:
    return make_rule(meta={"name": name}, selector=selector, taint=make_taint(**taint))


def answer(manifest: Any, inventory: Inventory | None, old: Any = None) -> Decision:
    return validate(make_admission_request(manifest, old), make_context(sight=Sight(inventory, "not read yet")))


def codes(decision: Decision) -> list[str]:
    return [finding.code for finding in decision.findings if finding.code and finding.code.startswith("DT2")]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param({"driver": DRIVER, "pool": POOL, "device": "gpu-1"}, [], id="a device that is there"),
        pytest.param({"device": "gpu-1"}, [], id="its name alone"),
        pytest.param({"driver": DRIVER, "pool": POOL, "device": "gpu-7"}, ["DT201"], id="another device"),
        pytest.param({"driver": DRIVER, "pool": "node-7"}, ["DT201"], id="another pool"),
        pytest.param({"driver": "other.example.com"}, ["DT201"], id="another driver"),
        pytest.param({"pool": POOL, "device": "gone"}, [], id="a device that is allocated, though not published"),
    ],
)
def test_selector_that_matches_no_device(selector: Any, expected: list[str]) -> None:
    claim = make_claim(status=make_status(make_result(device="gone")))
    decision = answer(rule_for(selector, effect="None"), held(published(), claim))
    assert (decision.allowed, codes(decision)) == (True, expected)


@pytest.mark.parametrize(
    ("stored", "new", "expected"),
    [
        pytest.param({"driver": DRIVER}, {"driver": DRIVER, "pool": POOL}, ["DT203"], id="a wider one"),
        pytest.param({"pool": POOL}, {"pool": POOL}, ["DT203"], id="the same"),
        pytest.param({"pool": POOL}, {"driver": DRIVER}, [], id="a narrower one"),
        pytest.param(None, {"pool": POOL}, [], id="one without selector, which evicts nobody"),
        pytest.param({}, {"pool": POOL}, ["DT203"], id="one for every device"),
    ],
)
def test_rule_that_another_one_covers(stored: Any, new: Any, expected: list[str]) -> None:
    inventory = held(published(), rule_for(stored, name="stored"))
    found = codes(answer(rule_for(new), inventory))
    assert [code for code in found if code == "DT203"] == expected


@pytest.mark.parametrize(
    "taint",
    [
        pytest.param({"key": OTHER_KEY}, id="another key"),
        pytest.param({"value": "other"}, id="another value"),
        pytest.param({"effect": "None"}, id="another effect"),
    ],
)
def test_rule_with_another_taint_covers_nothing(taint: dict[str, Any]) -> None:
    inventory = held(published(), rule_for({}, name="stored", **taint))
    assert "DT203" not in codes(answer(rule_for({"pool": POOL}), inventory))


@pytest.mark.parametrize(("seconds", "expected"), [(-30, ["DT203"]), (30, [])])
def test_rule_that_evicts_later_covers_none_that_evicts_sooner(seconds: int, expected: list[str]) -> None:
    times = {"new": "2026-01-31T12:00:30Z", "stored": f"2026-01-31T12:0{1 if seconds > 0 else 0}:00Z"}
    inventory = held(
        published(),
        rule_for({"pool": POOL}, name="stored", effect="NoExecute", timeAdded=times["stored"]),
    )
    new = rule_for({"pool": POOL}, effect="NoExecute", timeAdded=times["new"])
    assert [code for code in codes(answer(new, inventory)) if code == "DT203"] == expected


def test_rule_does_not_cover_itself() -> None:
    stored = rule_for({"pool": POOL}, effect="None")
    raised = rule_for({"pool": POOL}, effect="NoSchedule")
    assert "DT203" not in codes(answer(raised, held(published(), raised), stored))


@pytest.mark.parametrize(
    ("stored", "selector", "expected"),
    [
        pytest.param([published()], {"driver": DRIVER}, ["DT204"], id="all of its devices"),
        pytest.param([published()], {"pool": POOL}, ["DT204"], id="all pools that it has"),
        pytest.param([published()], {"device": "gpu-1"}, [], id="one of two"),
        pytest.param([published(make_taint())], {"device": "gpu-1"}, ["DT204"], id="the last without a taint"),
        pytest.param([published(make_taint())], {"device": "gpu-0"}, [], id="one that has a taint already"),
        pytest.param(
            [published(make_taint(effect="None"))], {"device": "gpu-1"}, [], id="the other one's taint does nothing"
        ),
        pytest.param(
            [published(), rule_for({"device": "gpu-0"}, name="stored")],
            {"device": "gpu-1"},
            ["DT204"],
            id="the last one that no rule is for",
        ),
    ],
)
def test_driver_left_without_a_free_device(stored: Iterable[Any], selector: Any, expected: list[str]) -> None:
    found = codes(answer(rule_for(selector), held(*stored)))
    assert [code for code in found if code == "DT204"] == expected


@pytest.mark.parametrize("make", [make_claim, make_template])
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param(KEY, [], id="published in a slice"),
        pytest.param(OTHER_KEY, [], id="published by a rule"),
        pytest.param(ELSEWHERE, ["DT202"], id="its name in another domain"),
        pytest.param(f"{KEY[:-1]}", ["DT202"], id="a letter is missing"),
        pytest.param(f"{KEY.rpartition('/')[0]}/another-reason", [], id="its domain with another name"),
        pytest.param("new.example.net/maintenance", [], id="like no other: yet to come"),
        pytest.param("", [], id="every key"),
    ],
)
def test_toleration_of_a_key_that_nobody_publishes(make: Any, key: str, expected: list[str]) -> None:
    rule = rule_for({"pool": POOL}, name="stored", key=OTHER_KEY)
    decision = answer(make([make_toleration(key or None)]), held(published(make_taint()), rule))
    assert codes(decision) == expected


def test_keys_are_compared_with_published_ones_until_there_are_too_many() -> None:
    """R3: each comparison costs as much as judging a small claim."""
    rule = rule_for({"pool": POOL}, name="stored", key=OTHER_KEY)
    keys = [f"strange-{number}.example.net/{number}" for number in range(40)]
    requests = [
        make_request(f"r{at}", [make_toleration(key) for key in part])
        for at, part in enumerate((keys[:10], [ELSEWHERE], keys[10:20], keys[20:30], keys[30:], [f"{ELSEWHERE}x"]))
    ]
    decision = answer(make_claim(requests=requests), held(published(make_taint()), rule))
    assert codes(decision) == ["DT202"]


def test_update_that_changes_nothing_of_it_is_told_nothing() -> None:
    stored = rule_for({"pool": "node-7"}, effect="None")
    noted = make_rule(
        meta={"name": "new", "annotations": {"devicetaint.io/owner": "ops"}},
        selector={"pool": "node-7"},
        taint=make_taint(effect="None"),
    )
    assert codes(answer(noted, held(published()), stored)) == []


def test_cluster_that_nobody_knows_gives_no_advice() -> None:
    assert codes(answer(rule_for({"pool": "node-7"}, effect="None"), None)) == []
