"""Advice by the inventory: what is valid and will not do in this cluster what it should."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import structs

from tests.builders import (
    DRIVER,
    KEY,
    NOW,
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
from tests.tables import table
from tests.unit.admission.guarding import fleet, held, tainting
from tests.unit.inventory.values import inventory_of
from webhook.admission.chain import validate
from webhook.admission.cluster_lint import cluster_lint
from webhook.admission.context import Budget, OutOfTime
from webhook.api.meta import format_time
from webhook.api.rules import EVICT, EVICTIONS_PER_SECOND, EXPIRES_AT, NOT_BEFORE, SCOPE
from webhook.inventory.state import Inventory, Sight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.admission.decision import Decision

POOL: Final = "node-0"
OTHER_KEY: Final = f"{KEY.rpartition('/')[0]}/other"
ELSEWHERE: Final = f"elsewhere.example.org/{KEY.rpartition('/')[2]}"


def published(*taints: Any) -> Any:
    """Two devices; the first has the taints."""
    return make_slice([make_device("gpu-0", taints), make_device("gpu-1")])


def rule_for(selector: Any, *, name: str = "new", evict: bool = False, **taint: Any) -> Any:
    """A rule that may ask our worker to evict."""
    annotations = {EVICT: "true"} if evict else {}
    return make_rule(meta={"name": name, "annotations": annotations}, selector=selector, taint=make_taint(**taint))


def answer(manifest: Any, inventory: Inventory | None, old: Any = None) -> Decision:
    """What /validate says; every rule has a resourceVersion, without which an update would be refused at once."""
    new, before = (
        each and {**each, "metadata": {**each["metadata"], "resourceVersion": "7"}} for each in (manifest, old)
    )
    given = (manifest, None) if old is None else (new, before)
    return validate(make_admission_request(*given), make_context(sight=Sight(inventory, "not read yet")))


def codes(decision: Decision) -> list[str]:
    return [finding.code for finding in decision.findings if finding.code and finding.code.startswith("DT2")]


@table(
    "selector, expected",
    {
        "a device that is there": ({"driver": DRIVER, "pool": POOL, "device": "gpu-1"}, []),
        "its name alone": ({"device": "gpu-1"}, []),
        "another device": ({"driver": DRIVER, "pool": POOL, "device": "gpu-7"}, ["DT201"]),
        "another pool": ({"driver": DRIVER, "pool": "node-7"}, ["DT201"]),
        "another driver": ({"driver": "other.example.com"}, ["DT201"]),
        "a device that is allocated, though not published": ({"pool": POOL, "device": "gone"}, []),
    },
)
def test_selector_that_matches_no_device(selector: Any, expected: list[str]) -> None:
    claim = make_claim(status=make_status(make_result(device="gone")))
    decision = answer(rule_for(selector, effect="None"), held(published(), claim))
    assert (decision.allowed, codes(decision)) == (True, expected)


@table(
    "stored, new, expected",
    {
        "a wider one": ({"driver": DRIVER}, {"driver": DRIVER, "pool": POOL}, ["DT203"]),
        "the same": ({"pool": POOL}, {"pool": POOL}, ["DT203"]),
        "a narrower one": ({"pool": POOL}, {"driver": DRIVER}, []),
        "one without selector, which evicts nobody": (None, {"pool": POOL}, []),
        "one for every device": ({}, {"pool": POOL}, ["DT203"]),
    },
)
def test_rule_that_another_one_covers(stored: Any, new: Any, expected: list[str]) -> None:
    inventory = held(published(), rule_for(stored, name="stored"))
    found = codes(answer(rule_for(new), inventory))
    assert [code for code in found if code == "DT203"] == expected


@table(
    "taint",
    {"another key": {"key": OTHER_KEY}, "another value": {"value": "other"}, "another effect": {"effect": "None"}},
)
def test_rule_with_another_taint_covers_nothing(taint: dict[str, Any]) -> None:
    inventory = held(published(), rule_for({}, name="stored", **taint))
    assert "DT203" not in codes(answer(rule_for({"pool": POOL}), inventory))


@table(
    "stored, new",
    {
        "NoExecute, and evict": ({"effect": "NoExecute"}, {"effect": "NoSchedule", "evict": True}),
        "evict, and NoExecute": ({"effect": "NoSchedule", "evict": True}, {"effect": "NoExecute"}),
        "without and with evict": ({"effect": "NoSchedule"}, {"effect": "NoSchedule", "evict": True}),
        "with and without evict": ({"effect": "NoSchedule", "evict": True}, {"effect": "NoSchedule"}),
    },
)
def test_rule_covers_another_only_if_both_are_evicted_by_the_same_controller(stored: Any, new: Any) -> None:
    """NoExecute is for the in-tree controller, and `/evict` for ours."""
    inventory = held(published(), rule_for({}, name="stored", **stored))
    assert "DT203" not in codes(answer(rule_for({"pool": POOL}, **new), inventory))


@pytest.mark.parametrize(("seconds", "expected"), [(-30, ["DT203"]), (0, ["DT203"]), (30, [])])
def test_rule_that_evicts_later_covers_none_that_evicts_sooner(seconds: int, expected: list[str]) -> None:
    new_time = datetime(2026, 1, 31, 12, tzinfo=UTC)
    times = {"new": format_time(new_time), "stored": format_time(new_time + timedelta(seconds=seconds))}
    inventory = held(
        published(), rule_for({"pool": POOL}, name="stored", effect="NoExecute", timeAdded=times["stored"])
    )
    new = rule_for({"pool": POOL}, effect="NoExecute", timeAdded=times["new"])
    assert [code for code in codes(answer(new, inventory)) if code == "DT203"] == expected


def test_rule_does_not_cover_itself() -> None:
    stored = rule_for({"pool": POOL}, effect="None")
    raised = rule_for({"pool": POOL}, effect="NoSchedule")
    assert codes(answer(raised, held(published(), raised), stored)) == ["DT204"]


@table(
    "stored, selector, expected",
    {
        "all of its devices": ([published()], {"driver": DRIVER}, ["DT204"]),
        "all pools that it has": ([published()], {"pool": POOL}, ["DT204"]),
        "one of two": ([published()], {"device": "gpu-1"}, []),
        "the first of two": ([published()], {"device": "gpu-0"}, []),
        "one of two pools": ([published(), make_slice(pool="node-1", meta={"name": "node-1-gpu"})], {"pool": POOL}, []),
        "both pools": (
            [published(), make_slice(pool="node-1", meta={"name": "node-1-gpu"})],
            {"driver": DRIVER},
            ["DT204"],
        ),
        "all of one driver, beside another driver": (
            [published(), make_slice(driver="other.example.com", pool="node-1", meta={"name": "other"})],
            {"pool": POOL},
            ["DT204"],
        ),
        "the last without a taint": ([published(make_taint())], {"device": "gpu-1"}, ["DT204"]),
        "one that has a taint already": ([published(make_taint())], {"device": "gpu-0"}, []),
        "the other one's taint does nothing": ([published(make_taint(effect="None"))], {"device": "gpu-1"}, []),
        "the last one that no rule is for": (
            [published(), rule_for({"device": "gpu-0"}, name="stored")],
            {"device": "gpu-1"},
            ["DT204"],
        ),
        "the other one's rule does nothing": (
            [published(), rule_for({"device": "gpu-0"}, name="stored", effect="None")],
            {"device": "gpu-1"},
            [],
        ),
        "beside a rule without selector, which may be for no device": (
            [published(), rule_for(None, name="stored")],
            {"driver": DRIVER},
            ["DT204"],
        ),
        "a field that is not known here": ([published()], {"driver": DRIVER, "all": True}, []),
    },
)
def test_driver_left_without_a_free_device(stored: Iterable[Any], selector: Any, expected: list[str]) -> None:
    found = codes(answer(rule_for(selector), held(*stored)))
    assert [code for code in found if code == "DT204"] == expected


def test_rule_without_effect_leaves_every_device_free() -> None:
    assert codes(answer(rule_for({"driver": DRIVER}, effect="None"), held(published()))) == []


@pytest.mark.parametrize("make", [make_claim, make_template])
@table(
    "key, expected",
    {
        "published in a slice": (KEY, []),
        "published by a rule": (OTHER_KEY, []),
        "its name in another domain": (ELSEWHERE, ["DT202"]),
        "a letter is missing": (f"{KEY[:-1]}", ["DT202"]),
        "as many letters are missing as may be": (KEY[:-4], ["DT202"]),
        "one letter more is missing": (KEY[:-5], []),
        "as many letters are added as may be": (f"{KEY}-more", ["DT202"]),
        "one letter more is added": (f"{KEY}--more", []),
        "its domain with another name": (f"{KEY.rpartition('/')[0]}/another-reason", []),
        "like no other: yet to come": ("new.example.net/maintenance", []),
        "every key": ("", []),
    },
)
def test_toleration_of_a_key_that_nobody_publishes(make: Any, key: str, expected: list[str]) -> None:
    rule = rule_for({"pool": POOL}, name="stored", key=OTHER_KEY)
    decision = answer(make([make_toleration(key or None)]), held(published(make_taint()), rule))
    assert codes(decision) == expected


def claim_for(keys: Iterable[str]) -> Any:
    names = list(keys)
    parts = [names[at : at + 16] for at in range(0, len(names), 16)]
    return make_claim(requests=[make_request(f"r{at}", map(make_toleration, part)) for at, part in enumerate(parts)])


def spent_after(looks: int) -> Budget:
    """A budget that is spent after that number of looks at the clock."""
    times = count()
    return Budget(looks, lambda: next(times))


def test_keys_are_compared_for_a_bounded_time_however_many_are_published() -> None:
    """F7: 32 unknown keys beside 200 published ones took five seconds."""
    keys = [f"{number:03}{'ab' * 25}.example.com/key" for number in range(240)]
    stored = [rule_for({"pool": POOL}, name=f"stored-{at}", key=f"{key}-{at}") for at, key in enumerate(keys[:200])]
    inventory, claim = held(*stored), decoded(claim_for(keys[208:]))[0]

    def lint(looks: int) -> list[str]:
        context = make_context(sight=Sight(inventory), budget=spent_after(looks))
        return [finding.code or "" for finding in cluster_lint(claim, None, context)]

    with pytest.raises(OutOfTime) as raised:
        lint(20)
    assert raised.value.phase == "lint"
    assert set(lint(100)) <= {"DT202"}


def test_long_keys_are_compared_by_their_names_only() -> None:
    """F7: the time to compare two keys grows with the product of their lengths."""
    domain = ".".join(["a" * 30] * 4)
    stored = rule_for({"pool": POOL}, name="stored", key=f"{domain}.com/stuck")
    assert codes(answer(claim_for([f"{domain}.com/stucks"]), held(stored))) == []
    assert codes(answer(claim_for([f"{domain}.org/stuck"]), held(stored))) == ["DT202"]


@pytest.mark.parametrize("selector", [{"device": "gone"}, {"driver": DRIVER, "pool": "node-1"}, {"driver": DRIVER}])
def test_advice_on_rules_asks_the_budget_for_every_thousand_devices_and_rules(selector: Any) -> None:
    """F7: most of all where another rule keeps every device closed, so that no free one is ever found."""
    pools = [
        make_slice(
            [make_device(f"d-{device}") for device in range(100)], meta={"name": f"s-{number}"}, pool=f"node-{number}"
        )
        for number in range(30)
    ]
    others = [rule_for({"pool": f"p-{number}"}, name=f"r-{number}") for number in range(2000)]
    inventory = held(*pools, *others, rule_for({"driver": DRIVER}, name="all"))
    new = decoded(rule_for(selector, key="other.example.com/x"))[0]

    def lint(looks: int) -> list[str]:
        context = make_context(sight=Sight(inventory), budget=spent_after(looks))
        return [finding.code or "" for finding in cluster_lint(new, None, context)]

    with pytest.raises(OutOfTime):
        lint(8)
    assert "DT204" not in lint(40)


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


@pytest.mark.parametrize(("others", "expected"), [(31, ["DT202"]), (32, [])])
def test_first_32_unknown_keys_are_compared_with_published_ones(others: int, expected: list[str]) -> None:
    rule = rule_for({"pool": POOL}, name="stored", key=OTHER_KEY)
    keys = [f"strange-{number}.example.net/{number}" for number in range(others)]
    tolerations = [make_toleration(key) for key in [*keys, ELSEWHERE]]
    requests = [make_request(f"r{at}", tolerations[at : at + 10]) for at in range(0, len(tolerations), 10)]
    assert codes(answer(make_claim(requests=requests), held(published(make_taint()), rule))) == expected


def test_known_key_is_passed_over_and_the_next_one_compared() -> None:
    rule = rule_for({"pool": POOL}, name="stored", key=OTHER_KEY)
    assert codes(answer(claim_for([KEY, ELSEWHERE]), held(published(make_taint()), rule))) == ["DT202"]


# --- how keys are compared ------------------------------------------------------------------------

NEAR, WANTED = f"{'z' * 20}.example.com/stack", f"{'z' * 20}.example.com/stuck"


def strange_keys(length: int, number: int) -> list[str]:
    """Keys of that length that are like no other, and come first by their alphabet."""
    return [f"{each:02}{'q' * (length - 20)}.example.com/abc{each:02}" for each in range(number)]


def publishing(keys: Iterable[str]) -> Inventory:
    """An inventory with a rule for each key."""
    return held(*(rule_for({"pool": POOL}, name=f"stored-{at}", key=key) for at, key in enumerate(keys)))


def test_three_published_keys_are_named() -> None:
    domains = ["d", "b", "c", "a"]
    decision = answer(claim_for(["x.example.com/stuck"]), publishing(f"{each}.example.org/stuck" for each in domains))
    named = "a.example.org/stuck, b.example.org/stuck, c.example.org/stuck"
    texts = [finding.error.detail for finding in decision.findings if finding.code == "DT202"]
    assert texts == [f"is on no device and in no rule; published are {named}"]


@pytest.mark.parametrize(
    ("published_length", "asked_length", "expected"), [(80, 80, ["DT202"]), (81, 80, []), (80, 81, [])]
)
def test_keys_of_at_most_80_characters_are_compared(
    published_length: int, asked_length: int, expected: list[str]
) -> None:
    stored = f"{'a' * 40}.{'b' * (published_length - 47)}/stuck"
    asked = f"{'a' * 40}.{'b' * (asked_length - 47)}/stack"
    assert (len(stored), len(asked)) == (published_length, asked_length)
    assert codes(answer(claim_for([asked]), publishing([stored]))) == expected


@pytest.mark.parametrize(("others", "expected"), [(49, ["DT202"]), (50, [])])
def test_fifty_pairs_of_keys_are_compared(others: int, expected: list[str]) -> None:
    found = publishing([*strange_keys(len(WANTED), others), WANTED])
    assert codes(answer(claim_for([NEAR]), found)) == expected


@table(
    "asked, expected",
    {
        "nine letters in ten": ("aaaa.com/bcdefghijyz", ["DT202"]),
        "one fewer": ("aaaa.com/bcdefghixyz", []),
        "all of them in another order": ("aaaa.com/lkjihgfedcb", []),
    },
)
def test_keys_are_alike_with_nine_letters_in_ten_in_common(asked: str, expected: list[str]) -> None:
    assert codes(answer(claim_for([asked]), publishing(["aaaa.com/bcdefghijkl"]))) == expected


def test_keys_that_are_too_short_or_too_long_to_be_alike_are_not_compared() -> None:
    """Of the 50 pairs, these take none: a key of 38 letters is like one of 32 to 46 at most."""
    stored = [*strange_keys(31, 60), *strange_keys(47, 60), WANTED, "short.example.com/stuck"]
    assert codes(answer(claim_for([NEAR, "shert.example.com/stucky"]), publishing(stored))) == ["DT202", "DT202"]


# --- rules that cover another (DT203) -------------------------------------------------------------


SOON, LATER = (format_time(NOW + timedelta(days=days)) for days in (1, 7))


def covered(new: dict[str, str], stored: dict[str, str], *, deleting: bool = False) -> bool:
    """Whether advice says so of a rule, by the annotations of both."""
    other, _ = decoded(tainting(effect="NoSchedule", evict=True, name="stored", annotations=stored))
    inventory = inventory_of(*fleet(), structs.replace(other, deleting=deleting))
    request = make_admission_request(tainting(effect="NoSchedule", evict=True, name="new", annotations=new))
    decision = validate(request, make_context(sight=Sight(inventory)))
    return "DT203" in {finding.code for finding in decision.findings}


@table(
    "new, stored, expected",
    {
        "both have nothing more": ({}, {}, True),
        "the stored one waits": ({}, {NOT_BEFORE: LATER}, False),
        "the stored one waits longer": ({NOT_BEFORE: SOON}, {NOT_BEFORE: LATER}, False),
        "the new one waits longer": ({NOT_BEFORE: LATER}, {NOT_BEFORE: SOON}, True),
        "the stored one expires": ({}, {EXPIRES_AT: LATER}, False),
        "the stored one expires earlier": ({EXPIRES_AT: LATER}, {EXPIRES_AT: SOON}, False),
        "both expire": ({EXPIRES_AT: SOON}, {EXPIRES_AT: SOON}, True),
        "the new one expires": ({EXPIRES_AT: SOON}, {}, True),
        "the new one is for the hardware": ({SCOPE: "hardware"}, {}, False),
        "the new one is faster": ({EVICTIONS_PER_SECOND: "1000"}, {}, False),
        "the new one is slower": ({EVICTIONS_PER_SECOND: "1"}, {EVICTIONS_PER_SECOND: "5"}, True),
    },
)
def test_a_rule_adds_nothing_only_to_one_that_does_as_much(new: Any, stored: Any, *, expected: bool) -> None:
    assert covered(new, stored) is expected


def test_a_rule_that_is_being_deleted_covers_nothing() -> None:
    assert not covered({}, {}, deleting=True)
