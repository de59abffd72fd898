"""Rules that evict at a later time: judged for what they will do, and again if that is to be sooner."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, KEY, NOW, decoded
from tests.tables import table
from tests.unit.admission.guarding import allowing, ask, fleet, node, over, refusals, tainting, told
from tests.unit.admission.recently import reasons, settings, stored
from tests.unit.inventory.values import claim, inventory_of, lets_stay, on, pool_slice
from webhook.api.claims import DeviceRequest, ExactRequest
from webhook.api.meta import format_time
from webhook.api.rules import NEVER, NOT_BEFORE, not_before_of
from webhook.inventory.impact import Taint
from webhook.inventory.pools import Evictor
from webhook.inventory.rule_delta import asks_for_more
from webhook.policy.model import (
    EvictionProfile,
    EvictionWindow,
    ImpactLimits,
    ImpactSettings,
    InTreeEvictor,
    NamespaceMatch,
)

HOUR = 3600.0
WINDOW = ["window:pods"]


def at(seconds: float | None) -> dict[str, str]:
    return {} if seconds is None else {NOT_BEFORE: format_time(NOW + timedelta(seconds=seconds))}


def asked(seconds: float | None = None, *, text: str = "", **options: Any) -> Any:
    """A rule that asks our worker to empty devices from some seconds after now on."""
    annotations = {NOT_BEFORE: text} if text else at(seconds)
    return tainting(effect="NoSchedule", evict=True, annotations=annotations, **options)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (asked(60), NOW + timedelta(seconds=60)),
        (asked(), None),
        (asked(text="tomorrow"), NEVER),
        (asked(text="2026-06-01"), NEVER),
    ],
)
def test_time_of_a_rule(rule: Any, expected: Any) -> None:
    assert not_before_of(decoded(rule)[0]) == expected


@table(
    "rule, in_tree, expected",
    {
        "asked": (asked(60), True, NOW + timedelta(seconds=60)),
        "no time": (asked(text="tomorrow"), True, None),
        "the in-tree controller does not read it": (tainting(annotations=at(60)), True, None),
        "our worker does": (tainting(annotations=at(60)), False, NOW + timedelta(seconds=60)),
        "and no time is none": (tainting(annotations={NOT_BEFORE: "x"}), False, None),
    },
)
def test_taint_begins_at_that_time(rule: Any, *, in_tree: bool, expected: Any) -> None:
    assert Taint.of_rule(decoded(rule)[0], in_tree=in_tree).not_before == expected


@pytest.mark.parametrize(
    ("grace", "seconds", "expected"), [(0, 60, 60), (90, 60, 90), (30, 60, 60), (0, -60, 0), (0, 0.5, 1), (0, None, 0)]
)
def test_pods_are_due_at_the_later_of_both(grace: int, seconds: float | None, expected: int) -> None:
    start = None if seconds is None else NOW + timedelta(seconds=seconds)
    added = decoded(asked())[0].taint
    assert Taint(added, Evictor.OURS, not_before=start).due_seconds(grace, NOW) == expected


@table(
    "before, after, more",
    {
        "earlier": (asked(60), asked(59), True),
        "the same": (asked(60), asked(60), False),
        "later": (asked(60), asked(61), False),
        "gone": (asked(60), asked(), True),
        "new": (asked(), asked(60), False),
        "a time instead of none": (asked(text="tomorrow"), asked(60), True),
        "no time, so never": (asked(60), asked(text="tomorrow"), False),
        "never instead of now": (asked(), asked(text="tomorrow"), False),
        "evicts no pod": (tainting(effect="NoSchedule", annotations=at(60)), tainting(effect="NoSchedule"), False),
    },
)
def test_earlier_time_asks_for_more(before: Any, after: Any, *, more: bool) -> None:
    new, old = (decoded(each)[0] for each in (after, before))
    assert asks_for_more(new, old, ()) is more


def test_earlier_time_is_judged_like_a_new_rule() -> None:
    large = inventory_of(*fleet(100))
    decision = ask(asked(HOUR), asked(2 * HOUR), cluster=large, impact=allowing(pods=50))
    assert over(decision) == ["limit:pods"]
    assert not decision.allowed
    later = ask(asked(3 * HOUR), asked(2 * HOUR), cluster=large, impact=allowing(pods=50))
    assert (later.allowed, told(later)) == (True, [])


def test_figures_say_from_when_on_pods_are_evicted() -> None:
    [(_, text)] = told(ask(asked(HOUR)))
    assert text == "selects 8 devices in 4 pools; evicts 4 pods in 1 namespace, from 2026-06-01T13:00:00Z on"
    [(_, text)] = told(ask(asked(-HOUR)))
    assert text == "selects 8 devices in 4 pools; evicts 4 pods in 1 namespace, all at once"


def test_rule_that_the_in_tree_controller_carries_out_gets_a_warning() -> None:
    early = "delays our worker only: the in-tree controller evicts at once; use effect NoSchedule with /evict"
    delayed = tainting(annotations=at(HOUR))
    assert [text for _, text in told(ask(delayed))][1:] == [early]
    assert len(told(ask(delayed, in_tree_evictor=InTreeEvictor.ABSENT))) == 1
    assert len(told(ask(asked(HOUR)))) == 1
    assert len(told(ask(tainting()))) == 1
    assert len(told(ask(tainting(effect="None", annotations=at(HOUR))))) == 1


def of_last_week(number: int, seconds: float | None, effect: str = "NoSchedule") -> Any:
    evict = effect == "NoSchedule"
    return stored(number, seconds_ago=7 * 24 * HOUR, effect=effect, evict=evict, annotations=at(seconds))


@table(
    "seconds, expected",
    {
        "begins next week": (7 * 24 * HOUR, WINDOW),
        "has begun in the window": (-600, WINDOW),
        "as old as clocks may differ": (-660, WINDOW),
        "began before it": (-661, []),
        "began last week": (None, []),
    },
)
def test_rules_that_are_yet_to_begin_count(seconds: float | None, expected: list[str]) -> None:
    others = [of_last_week(number, seconds) for number in (1, 2)]
    assert reasons(*others) == expected
    assert reasons(assumed=others) == expected


def test_rules_of_the_in_tree_controller_have_begun() -> None:
    others = [of_last_week(number, HOUR, "NoExecute") for number in (1, 2)]
    assert reasons(*others) == []
    assert reasons(*others, in_tree_evictor=InTreeEvictor.ABSENT) == WINDOW


@pytest.mark.parametrize(
    ("seconds", "words"), [(HOUR, "min and rules yet to begin it hits"), (0, "min it hits"), (-60, "min it hits")]
)
def test_refusal_names_rules_that_are_yet_to_begin(seconds: float, words: str) -> None:
    cluster = inventory_of(*fleet(8), of_last_week(1, seconds), of_last_week(2, seconds))
    [text] = refusals(ask(tainting(node(0)), cluster=cluster, impact=settings(pods=2)))
    assert f"with all other taints of the last 10 {words} 3 pods" in text


def test_devices_are_closed_at_once() -> None:
    """The time is about pods: a device that is closed for a week is no news."""
    others = [of_last_week(number, HOUR) for number in (1, 2)]
    assert reasons(*others, rule=tainting({"driver": DRIVER, "pool": "node-0"}), impact=settings(devices=2)) == []


# --- windows beside the figures -------------------------------------------------------------------


NIGHTLY = EvictionWindow("0 22 * * *", 30 * 60.0, "Europe/Berlin")
WAIT = "wait for the window that opens at 2026-06-01T22:00:00+02:00 (Europe/Berlin)"
SLOW = EvictionProfile(windows=(NIGHTLY,), max_per_minute=10)
MANY = ImpactSettings(limits=(ImpactLimits(),))


def by_us(**annotations: str) -> Any:
    return tainting(effect="NoSchedule", evict=True, annotations=annotations)


def said(rule: Any, *profiles: EvictionProfile, nodes: int = 4, apart: bool = False, **options: Any) -> list[str]:
    """What the guard says beside the figures."""
    cluster = inventory_of(*fleet(nodes, (lambda number: f"ns-{number}") if apart else (lambda _: "ml")))
    decision = ask(rule, cluster=cluster, eviction=profiles, impact=MANY, **options)
    assert decision.allowed
    return [text for _, text in told(decision)][1:]


def test_rule_that_asks_our_worker_gets_the_window() -> None:
    assert said(by_us(), SLOW) == [f"4 pods {WAIT}"]


def test_rule_that_begins_at_the_end_of_the_calendar_gets_no_window() -> None:
    assert said(by_us(**{NOT_BEFORE: "9999-12-31T00:00:00Z"}), SLOW) == []


def test_window_is_looked_for_from_when_the_rule_begins() -> None:
    later = format_time(NOW + timedelta(days=1))
    [text] = said(by_us(**{NOT_BEFORE: later}), SLOW)
    assert text == "4 pods wait for the window that opens at 2026-06-02T22:00:00+02:00 (Europe/Berlin)"
    past = format_time(NOW - timedelta(days=1))
    assert said(by_us(**{NOT_BEFORE: past}), SLOW) == [f"4 pods {WAIT}"]


def test_window_is_looked_for_from_when_pods_are_due() -> None:
    """A pod that tolerates the taint for nine hours is due after tonight's window."""
    patient = [
        claim(
            f"patient-{number}", on("gpu-1", lets_stay(9 * 3600, key=KEY), pool=f"node-{number}"), users=[f"p-{number}"]
        )
        for number in range(3)
    ]
    decision = ask(by_us(), cluster=inventory_of(*fleet(4), *patient), eviction=(SLOW,), impact=MANY)
    assert [text for _, text in told(decision)][1:] == [
        f"4 pods {WAIT}",
        "3 pods wait for the window that opens at 2026-06-02T22:00:00+02:00 (Europe/Berlin)",
    ]
    slow = EvictionProfile(windows=(NIGHTLY,), grace_seconds=9 * 3600.0)
    assert said(by_us(), slow) == ["4 pods wait for the window that opens at 2026-06-02T22:00:00+02:00 (Europe/Berlin)"]


@table(
    "rule",
    {
        "the in-tree controller knows no windows": tainting(),
        "evicts no pod": tainting(effect="NoSchedule"),
        "does nothing": tainting(effect="None"),
    },
)
def test_other_rules_get_none(rule: Any) -> None:
    assert said(rule, SLOW) == []


def test_every_rule_gets_it_where_there_is_no_in_tree_controller() -> None:
    assert said(tainting(), SLOW, in_tree_evictor=InTreeEvictor.ABSENT) == [f"4 pods {WAIT}"]


def test_policy_without_windows_has_none() -> None:
    assert said(by_us(), EvictionProfile()) == []


def test_pods_are_counted_by_the_profile_of_their_namespace() -> None:
    first = EvictionProfile(namespaces=NamespaceMatch(("ns-1", "ns-2")), skips=True)
    assert said(by_us(), first, SLOW, apart=True) == [
        "the worker leaves 2 pods alone (action: skip)",
        f"2 pods {WAIT}",
    ]


@pytest.mark.parametrize("device_class", ["large.example.com", "small.example.com"])
def test_pods_are_counted_by_the_profile_of_any_class_that_they_use(device_class: str) -> None:
    claims = [
        structs.replace(
            claim(f"claim-{name}", on(device), users=["u"]),
            requests=(DeviceRequest("gpu", ExactRequest(device_class_name=f"{name}.example.com")),),
        )
        for name, device in (("large", "gpu-0"), ("small", "gpu-1"))
    ]
    of_class = EvictionProfile(device_classes=(device_class,), skips=True)
    cluster = inventory_of(pool_slice("gpu-0", "gpu-1"), *claims)
    decision = ask(by_us(), cluster=cluster, eviction=(of_class, SLOW), impact=MANY)
    assert [text for _, text in told(decision)][1:] == ["the worker leaves 1 pod alone (action: skip)"]


def test_pods_of_a_profile_that_is_not_known_are_not_counted() -> None:
    """`serve` reads no pods, so it knows neither priorities nor labels."""
    unknown = EvictionProfile(namespaces=NamespaceMatch(("ns-1",)), priority_at_most=0)
    assert said(by_us(), unknown, SLOW, nodes=5, apart=True) == [f"4 pods {WAIT}"]


def test_rule_that_is_refused_gets_no_figures() -> None:
    decision = ask(by_us(), eviction=(SLOW,), impact=ImpactSettings(limits=(ImpactLimits(pods=1),)))
    assert not any("window that opens" in text for _, text in told(decision))
