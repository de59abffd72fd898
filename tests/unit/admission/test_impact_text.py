"""An impact in words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import decoded
from tests.tables import table
from tests.unit.admission.guarding import tainting
from webhook.admission.impact_text import (
    annotation_of,
    figures_of,
    first_names,
    measured_in,
    on_extended_resources,
    places_figures,
    slice_figures_of,
    summary_of,
)
from webhook.api.claims import Demand, Wish
from webhook.api.servers import UNKNOWN
from webhook.inventory.impact import Impact, Taint, Wave
from webhook.inventory.placement import PodPlacement, PodShape, Seeker

# The documentation and earlier policies rely on these numbers, so they are written out.
WARNING_MAX = 256

DEVICES = "4 devices in 2 pools"


def uids(number: int, prefix: str = "u") -> frozenset[str]:
    return frozenset(f"{prefix}{each}" for each in range(number))


def impact_of(*waves: tuple[int, int], devices: int = 4, pools: int = 2, namespaces: int = 1, **fields: Any) -> Impact:
    """Waves as seconds and pods."""
    made = tuple(Wave(seconds, uids(pods, f"{seconds}-"), uids(pods, f"{seconds}-")) for seconds, pods in waves)
    return Impact(devices, pools, 1, devices, made, namespaces=uids(namespaces, "ns-"), **fields)


def figures(impact: Impact, rule: Any = None, *, in_tree: bool = True) -> list[str]:
    value = decoded(rule or tainting())[0]
    return list(figures_of(impact, value, UNKNOWN, Taint.of_rule(value, in_tree=in_tree).not_before))


@pytest.mark.parametrize(
    ("impact", "text"),
    [
        (impact_of(namespaces=0), "evicts 0 pods in 0 namespaces"),
        (impact_of((0, 1)), "evicts 1 pod in 1 namespace, all at once"),
        (impact_of((0, 3), namespaces=2), "evicts 3 pods in 2 namespaces, all at once"),
        (impact_of((0, 2), (300, 1)), "evicts 3 pods in 1 namespace: 2 at once, 1 after 5 min"),
        (impact_of((90, 2)), "evicts 2 pods in 1 namespace: 0 at once, 2 after 90 s"),
        (impact_of((0, 1), (5, 2), (86400, 3)), "evicts 6 pods in 1 namespace: 1 at once, 5 after 5 s to 1 d"),
        (impact_of((0, 1), (5, 2), (60, 1), (86400, 3)), "evicts 7 pods in 1 namespace: 1 at once, 6 after 5 s to 1 d"),
        (impact_of((7200, 1)), "evicts 1 pod in 1 namespace: 0 at once, 1 after 2 h"),
    ],
)
def test_waves(impact: Impact, text: str) -> None:
    assert figures(impact) == [f"selects 4 devices in 2 pools; {text}"]


@table(
    "impact, shown",
    {
        "nothing": (Impact(), False),
        "a device that is not allocated": (Impact(devices=1, pools=1, drivers=1), True),
        "a device that is allocated, though not published": (Impact(allocated=1), True),
        "a pool that is being published": (Impact(incomplete_pools=(("gpu.example.com", "p"),)), True),
    },
)
def test_figures_are_of_something(impact: Impact, *, shown: bool) -> None:
    assert bool(figures(impact)) is shown


def test_one_of_each_is_not_a_plural() -> None:
    impact = impact_of(
        (0, 1),
        devices=1,
        pools=1,
        tolerating=uids(1, "t"),
        extended=uids(1, "x"),
        pod_groups=uids(1, "g"),
        incomplete_pools=(("gpu.example.com", "node-0"),),
    )
    assert figures(impact) == [
        "selects 1 device in 1 pool; evicts 1 pod in 1 namespace, all at once",
        f"of these 1 pod with extended resources: {on_extended_resources(UNKNOWN)}",
        "tolerated by 1 pod on such devices",
        "in use by 1 PodGroup of unknown size",
        "devices are not all counted: 1 pool half published, as gpu.example.com/node-0",
    ]
    assert list(slice_figures_of(impact, UNKNOWN)) == [
        "new NoExecute taints on 1 device; they evict 1 pod in 1 namespace, all at once",
        f"of these 1 pod with extended resources: {on_extended_resources(UNKNOWN)}",
        "tolerated by 1 pod on such devices",
        "in use by 1 PodGroup of unknown size",
    ]


@pytest.mark.parametrize(
    ("rule", "impact", "expected"),
    [
        (tainting(effect="NoSchedule"), impact_of(), "keeps 4 devices in 2 pools from being allocated"),
        (
            tainting(effect="NoSchedule"),
            impact_of(kept=uids(2)),
            "keeps 4 devices in 2 pools from being allocated; no harm to 2 pods on them",
        ),
        (
            tainting(None, "NoExecute"),
            impact_of(),
            "without a selector it evicts no pod, but keeps 4 devices in 2 pools from being allocated",
        ),
        (
            tainting(None, "None"),
            impact_of(),
            f"with effect NoExecute and no selector it evicts no pod, but keeps {DEVICES} from being allocated",
        ),
        (
            tainting(effect="None"),
            impact_of((0, 1)),
            "with effect NoExecute selects 4 devices in 2 pools; evicts 1 pod in 1 namespace, all at once",
        ),
        (
            tainting(effect="NoSchedule", evict=True),
            impact_of((0, 1)),
            "selects 4 devices in 2 pools; evicts 1 pod in 1 namespace, all at once",
        ),
    ],
)
def test_effects_are_told_apart(rule: Any, impact: Impact, expected: str) -> None:
    assert figures(impact, rule) == [expected]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (tainting(), "hits 4 devices, 3 pods in 1 namespace"),
        (tainting(effect="NoSchedule", evict=True), "hits 4 devices, 3 pods in 1 namespace"),
        (tainting(effect="NoSchedule"), "hits 4 devices in 2 pools"),
        (tainting(None), "keeps 4 devices from being allocated"),
    ],
)
def test_summary_is_a_clause(rule: Any, expected: str) -> None:
    assert summary_of(impact_of((0, 2), (5, 1)), decoded(rule)[0], UNKNOWN) == expected


def test_annotation_has_every_figure_by_name() -> None:
    impact = impact_of((0, 2), (5, 1), tolerating=uids(3, "t"), extended=uids(3, "p"), pod_groups=uids(6, "g"))
    figures = (
        "devices=4 pools=2 allocated=4 claims=3 pods=3 now=2 later=1 tolerating=3 unseen=0 kept=0 namespaces=1"
        " podGroups=6 extended=3"
    )
    assert annotation_of(impact, acts=True, over=[]) == figures
    assert annotation_of(impact, acts=False, over=[]) == f"{figures} simulated"
    assert annotation_of(impact, acts=True, over=["a", "b:c"]) == f"{figures} over=a;b:c"


@pytest.mark.parametrize("acts", [True, False])
@pytest.mark.parametrize(
    ("over", "reasons"),
    [
        ([], ()),
        (["protected"], ("protected",)),
        (["limit:devices,pods", "backdated"], ("limit:devices", "limit:pods", "backdated")),
    ],
)
def test_what_the_audit_log_says_can_be_read_again(over: list[str], reasons: tuple[str, ...], *, acts: bool) -> None:
    impact = impact_of((0, 2), (9, 1), tolerating=uids(3, "t"))
    text = annotation_of(impact, acts=acts, over=over)
    read = measured_in(text)
    assert {name: read.figures[name] for name in ("devices", "claims", "pods", "namespaces", "tolerating")} == {
        "devices": 4,
        "claims": 3,
        "pods": 3,
        "namespaces": 1,
        "tolerating": 3,
    }
    assert (read.over, read.confirmed) == (reasons, False)


def test_the_audit_log_says_which_impact_is_confirmed() -> None:
    text = annotation_of(impact_of((0, 2)), acts=True, over=["limit:pods"])
    assert measured_in(f"{text} confirmed") == measured_in(text)._replace(confirmed=True)
    assert measured_in(f"{text} break-glass") == measured_in(text)


def test_the_audit_log_says_which_driver_has_too_much_closed() -> None:
    """F13."""
    text = annotation_of(impact_of((0, 2)), acts=True, over=["limit:devices", "backdated"], driver="gpu.example.com")
    assert text.endswith(" over=limit:devices;backdated driver=gpu.example.com")
    read = measured_in(f"{text} confirmed")
    assert (read.driver, read.over, read.confirmed) == ("gpu.example.com", ("limit:devices", "backdated"), True)
    assert annotation_of(impact_of((0, 2)), acts=True, over=[], driver="gpu.example.com").endswith("podGroups=0")


def test_an_unknown_impact_has_no_figures() -> None:
    assert measured_in("unknown: pods=3 were not read yet").figures == {}


def test_sentences_fit_into_a_warning() -> None:
    """Numbers of the largest clusters; names of pools may be cut off, as they can have 253 characters."""
    many = 1_234_567
    longest = figures(
        impact_of((0, 1), (61, 1), (3601, 1), devices=many, pools=many, namespaces=12345), tainting(effect="None")
    )
    assert [len(text) < WARNING_MAX - len("spec.deviceSelector:  (rule impact)") for text in longest] == [True]


def test_names() -> None:
    assert first_names({"b"}) == "b"
    assert first_names({"c", "b", "a"}) == "a, b, c"
    assert first_names({"d", "c", "b", "a"}) == "a, b, c and 1 more"


FEWER = "1 needs b, 0 free; 1 needs c, 0 free; and 1 other need"


def placed(
    needs: str, none: int, pods: int = 4, *, unknown: int = 0, free: int = 0, never: bool = False
) -> PodPlacement:
    """Pods `needs-0` and so on that ask for a class; the rest find devices."""
    demand = Demand(((Wish("gpu", needs),),))
    seekers = tuple([Seeker("ml", f"{needs}-{each}", ()) for each in range(pods)])
    return PodPlacement(PodShape((demand,), "", 0), seekers, pods - none - unknown, none, "too slow", never, free)


@pytest.mark.parametrize(
    ("places", "said"),
    [
        pytest.param((), [], id="no pod is evicted"),
        pytest.param((placed("small", 0),), [], id="all find one"),
        pytest.param(
            (placed("small", 1, 1),), ["1 of 1 pod finds no other device: 1 needs small, 0 free"], id="the only one"
        ),
        pytest.param(
            (placed("small", 1, free=2), placed("large", 2)),
            ["3 of 8 pods find no other device: 2 need large, 0 free; 1 needs small, 2 free"],
            id="the largest need first",
        ),
        pytest.param(
            (placed("small", 2), placed("small", 1, free=7)),
            ["3 of 8 pods find no other device: 3 need small, 0 free"],
            id="pods with the same words in one",
        ),
        pytest.param(
            tuple([placed(each, 1, 1) for each in "abcd"]),
            [f"4 of 4 pods find no other device: 1 needs a, 0 free; {FEWER}"],
            id="no more than three",
        ),
        pytest.param(
            (placed("small", 1, never=True), placed("large", 1)),
            [
                "2 of 8 pods find no other device: 1 needs small, 0 free; 1 needs large, 0 free",
                "1 pod cannot come back while the taint stands: ml/small-3",
            ],
            id="only some can never come back",
        ),
        pytest.param(
            (placed("small", 1, unknown=2),),
            [
                "1 of 4 pods finds no other device: 1 needs small, 0 free",
                "it is not known whether 2 pods would find other devices: too slow",
            ],
            id="some are not known",
        ),
    ],
)
def test_places_are_told_by_what_pods_need(places: tuple[PodPlacement, ...], said: list[str]) -> None:
    assert list(places_figures(impact_of(places=places))) == said


def test_only_who_was_asked_is_in_the_audit_log() -> None:
    asked, unasked = impact_of(places=(placed("small", 3), placed("large", 0))), impact_of()
    assert annotation_of(asked, acts=True, over=[]).endswith(" podGroups=0 pendingPods=3")
    assert "pendingPods" not in annotation_of(unasked, acts=True, over=[])
    assert measured_in(annotation_of(asked, acts=True, over=["limit:pendingPods"])).figures["pendingPods"] == 3
