from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.builders import (
    NOW,
    decoded,
    make_alternatives,
    make_basic_device,
    make_claim,
    make_device,
    make_patch,
    make_request,
    make_rule,
    make_slice,
    make_taint,
    make_template,
    make_toleration,
)
from tests.tables import table
from webhook.admission.lint import lint
from webhook.api.field import Severity
from webhook.api.meta import format_time
from webhook.api.rules import RULE_ANNOTATIONS
from webhook.api.servers import facts_of
from webhook.commands.shared.codes import codes

# The documentation and earlier policies rely on these numbers, so they are written out.
MAX_SECONDS = 9_223_372_036


def advice(manifest: Any, old: Any = None) -> list[str]:
    """`code field: sentence` of every finding."""
    value, errors = decoded(manifest)
    before = None if old is None else decoded(old)[0]
    assert errors == []
    findings = list(lint(value, before, NOW))
    assert {finding.severity for finding in findings} <= {Severity.WARN}
    return [f"{finding.code} {finding.error.field}: {finding.error.detail}" for finding in findings]


def ago(seconds: int) -> str:
    return format_time(NOW - timedelta(seconds=seconds))


LONG_AGO = make_taint(effect="NoExecute", time_added=ago(9999))


AT = "spec.devices.requests[0].exactly.tolerations[0]"
SECOND = "spec.devices.requests[0].exactly.tolerations[1]"
NO_EFFECT = "is empty: allocation takes that for all effects, but in-tree eviction does not; name NoExecute too"
RESERVED_KEY = "taints of nodes are tolerated in the pod, not in a claim"
NO_TIME = "gives no time: the pod is evicted at once, also beside entries with more seconds"
OVERFLOWS = "overflows in the in-tree controller, which may evict at once; at most 9223372036, or omit it"
A = make_toleration("x.io/a")


@table(
    "tolerations, expected",
    {
        "DT001: no effect": ([make_toleration(effect=None)], [f"DT001 {AT}.effect: {NO_EFFECT}"]),
        "DT002: seconds with NoSchedule": (
            [make_toleration(seconds=5)],
            [f"DT002 {AT}.tolerationSeconds: has no meaning with effect NoSchedule; only NoExecute counts seconds"],
        ),
        "DT003: the same twice": ([A, A], [f"DT003 {SECOND}: repeats entry 0"]),
        "DT004: one that another covers": (
            [make_toleration(key=None), A],
            [f"DT004 {SECOND}: adds nothing to entry 0, which tolerates all that it does"],
        ),
        "DT004: also one that comes later": (
            [A, make_toleration(key=None)],
            [f"DT004 {AT}: adds nothing to entry 1, which tolerates all that it does"],
        ),
        "DT004: of two that say the same, the second": (
            [
                make_toleration("x.io/a", "Equal", effect="NoExecute", seconds=-5),
                make_toleration("x.io/a", "Equal", effect="NoExecute", seconds=0),
            ],
            [
                f"DT010 {AT}.tolerationSeconds: {NO_TIME}",
                f"DT010 {SECOND}.tolerationSeconds: {NO_TIME}",
                f"DT004 {SECOND}: adds nothing to entry 0, which tolerates all that it does",
            ],
        ),
        "DT004: other effects": ([make_toleration("x.io/a", "Equal", "v"), A | {"effect": "NoExecute"}], []),
        "DT005: a key of Kubernetes": (
            [make_toleration("node.kubernetes.io/not-ready")],
            [f"DT005 {AT}.key: is in kubernetes.io: {RESERVED_KEY}"],
        ),
        "DT005: the domain itself": ([make_toleration("k8s.io/x")], [f"DT005 {AT}.key: is in k8s.io: {RESERVED_KEY}"]),
        "DT005: a domain that only ends alike": ([make_toleration("mykubernetes.io/x")], []),
        "DT019: a key that only the taint can change": ([make_toleration("unhealthy")], []),
        "DT009: more seconds than nanoseconds in 64 bits": (
            [make_toleration(effect="NoExecute", seconds=MAX_SECONDS + 1)],
            [f"DT009 {AT}.tolerationSeconds: {OVERFLOWS}"],
        ),
        **{
            f"DT010: {seconds} seconds": (
                [make_toleration(effect="NoExecute", seconds=seconds)],
                [f"DT010 {AT}.tolerationSeconds: {NO_TIME}"],
            )
            for seconds in (0, -1)
        },
        **{
            f"DT009, DT010: {seconds} seconds are some and not too many, also beside other advice": (
                [make_toleration("k8s.io/x", effect="NoExecute", seconds=seconds)],
                [f"DT005 {AT}.key: is in k8s.io: {RESERVED_KEY}"],
            )
            for seconds in (1, MAX_SECONDS)
        },
        "DT010: no time without effect": (
            [make_toleration(effect=None, seconds=0)],
            [f"DT001 {AT}.effect: {NO_EFFECT}", f"DT010 {AT}.tolerationSeconds: {NO_TIME}"],
        ),
        "DT013: effect None": (
            [make_toleration(effect="None")],
            [f"DT013 {AT}.effect: is tolerated by everyone: the entry has no effect"],
        ),
    },
)
def test_advice_on_tolerations(tolerations: Any, expected: list[str]) -> None:
    assert advice(make_claim(tolerations)) == expected


@pytest.mark.parametrize(("version", "codes"), [("v1.37.2", ["DT001", "DT011"]), ("v1.38.0", [])])
def test_later_servers_need_less_advice(version: str, codes: list[str]) -> None:
    """An empty effect protects there, and the server itself warns of an empty selector."""
    servers = facts_of([version])
    objects = decoded(make_claim([make_toleration(effect=None)])), decoded(make_rule(selector={}))
    found = [finding for each, _ in objects for finding in lint(each, None, NOW, servers)]
    assert [each.code for each in found] == codes


def test_advice_on_tolerations_wherever_they_are() -> None:
    odd = [make_toleration(effect=None)]
    requests = [make_request(), make_alternatives([], odd)]
    at = "devices.requests[1].firstAvailable[1].tolerations[0].effect"
    assert advice(make_claim(requests=requests)) == [f"DT001 spec.{at}: {NO_EFFECT}"]
    assert advice(make_template(requests=requests)) == [f"DT001 spec.spec.{at}: {NO_EFFECT}"]
    flat = "spec.devices.requests[0].tolerations[0].effect"
    assert advice(make_claim(odd, version="v1beta1")) == [f"DT001 {flat}: {NO_EFFECT}"]


def test_specs_that_cannot_change_get_no_advice_again() -> None:
    odd = make_claim([make_toleration(effect=None)])
    assert advice(odd, make_claim()) == []
    assert advice(make_template([make_toleration(effect=None)]), make_template()) == []


def test_long_lists_are_not_compared_pair_by_pair() -> None:
    same = [make_toleration(seconds=None)]
    assert len(advice(make_claim(same * 16))) == 15
    assert advice(make_claim(same * 17)) == []


# --- taints -------------------------------------------------------------------------------------

EVERY_DEVICE = "is empty and selects every device of every driver"
UNKNOWN_EFFECT = "is not known and acts as None: nothing is kept away or evicted"
NO_DOMAIN = "has no domain and may clash with others; put one of yours before it, as in example.com/key"
RESERVED = "which is reserved for Kubernetes itself; use a domain of yours"
NO_SELECTOR = "is missing: the rule evicts no pod, but servers before 1.37.1 allocate no device while it exists"
FUTURE = "is in the future: evictions wait until then"
OVER = "tolerationSeconds up to that are already over, and those pods are evicted at once"
UPPER_CASE = "has upper case, which drivers' names should not have; the match is exact"
UNKNOWN_FIELD = "is not known here: what it selects cannot be judged and counts as every device"
LEAVES_EMPTY = ", which leaves an empty selector: every device; use driver, pool, device"
DROPPED = "is dropped by every released server; on a rule use annotation devicetaint.io"
KNOWN = ", ".join(sorted(name.partition("/")[2] for name in RULE_ANNOTATIONS))


@table(
    "taint, expected",
    {
        "DT005: a key of Kubernetes": (
            make_taint(key="gpu.kubernetes.io/x"),
            [f"DT005 spec.taint.key: is in kubernetes.io, {RESERVED}"],
        ),
        "DT005: one of another domain": (make_taint(key="kubernetes.io.example.com/x"), []),
        "DT019: no domain": (make_taint(key="unhealthy"), [f"DT019 spec.taint.key: {NO_DOMAIN}"]),
        "DT006: an unknown effect": (make_taint(effect="Evict"), [f"DT006 spec.taint.effect: {UNKNOWN_EFFECT}"]),
        "DT007: a time to come": (make_taint(time_added=ago(-61)), [f"DT007 spec.taint.timeAdded: {FUTURE}"]),
        "DT007: clocks differ by a minute": (make_taint(time_added=ago(-60)), []),
        "DT008: a time past": (
            make_taint(effect="NoExecute", time_added=ago(3600)),
            [f"DT008 spec.taint.timeAdded: is 3600 s in the past: {OVER}"],
        ),
        "DT008: clocks differ by a minute": (make_taint(effect="NoExecute", time_added=ago(60)), []),
        "DT008: without eviction it does not matter": (make_taint(time_added=ago(3600)), []),
        "DT007, DT008: no time": (make_taint(effect="NoExecute", time_added=None), []),
        "DT017: what no released server has": (
            make_taint(data={}, description="", evictionsPerSecond=1),
            [
                f"DT017 spec.taint.data: {DROPPED}/data",
                f"DT017 spec.taint.description: {DROPPED}/description",
                f"DT017 spec.taint.evictionsPerSecond: {DROPPED}/evictions-per-second",
            ],
        ),
        "DT017: nothing": (make_taint() | {"data": None}, []),
    },
)
def test_advice_on_the_taint_of_a_rule(taint: Any, expected: list[str]) -> None:
    assert advice(make_rule(taint=taint)) == expected


@table(
    "selector, effect, expected",
    {
        "DT011: an empty selector": ({}, "NoSchedule", [f"DT011 spec.deviceSelector: {EVERY_DEVICE}"]),
        "DT011: an empty selector that evicts": (
            {},
            "NoExecute",
            [f"DT011 spec.deviceSelector: {EVERY_DEVICE}; all pods that use one are evicted"],
        ),
        "DT011: one that selects": ({"device": "gpu-0"}, "NoExecute", []),
        "DT012: no selector": (None, "NoExecute", [f"DT012 spec.deviceSelector: {NO_SELECTOR}"]),
        "DT014: upper case in the driver": (
            {"driver": "GPU.example.com"},
            "NoSchedule",
            [f"DT014 spec.deviceSelector.driver: {UPPER_CASE}"],
        ),
        "DT015: an unknown field": ({"all": True}, "NoSchedule", [f"DT015 spec.deviceSelector.all: {UNKNOWN_FIELD}"]),
        "DT016: a retired field beside others": (
            {"deviceClassName": "a", "pool": "b"},
            "NoSchedule",
            ["DT016 spec.deviceSelector.deviceClassName: is dropped by servers from 1.35 on; use driver, pool, device"],
        ),
        "DT016: a retired field alone": (
            {"selectors": [{"cel": {"expression": "true"}}]},
            "NoSchedule",
            [f"DT016 spec.deviceSelector.selectors: is dropped by servers from 1.35 on{LEAVES_EMPTY}"],
        ),
        "no selectors": ({"selectors": []}, "NoSchedule", [f"DT011 spec.deviceSelector: {EVERY_DEVICE}"]),
    },
)
def test_advice_on_the_selector_of_a_rule(selector: Any, effect: str, expected: list[str]) -> None:
    assert advice(make_rule(selector=selector, taint=make_taint(effect=effect))) == expected


def test_eviction_by_us_counts_as_eviction() -> None:
    rule = make_rule(selector={}, annotations={"devicetaint.io/evict": "true"})
    assert advice(rule) == [f"DT011 spec.deviceSelector: {EVERY_DEVICE}; all pods that use one are evicted"]
    back_dated = make_rule(taint=make_taint(time_added=ago(3600)), annotations={"devicetaint.io/evict": "true"})
    assert [each.partition(":")[0] for each in advice(back_dated)] == ["DT008 spec.taint.timeAdded"]


@table(
    "name, expected",
    {
        "DT018: one of ours": ("devicetaint.io/evict", []),
        "DT018: somebody else's": ("example.com/evicts", []),
        "DT018: one that we do not know": (
            "devicetaint.io/evicts",
            [f"DT018 metadata.annotations[devicetaint.io/evicts]: is not known here; known are {KNOWN}"],
        ),
    },
)
def test_advice_on_the_annotations_of_a_rule(name: str, expected: list[str]) -> None:
    assert advice(make_rule(annotations={name: "true"})) == expected


@table(
    "manifest, expected",
    {
        "a reserved key": (
            make_slice(
                [make_device(taints=[make_taint()]), make_device("b", [make_taint(), make_taint(key="k8s.io/x")])]
            ),
            [f"DT005 spec.devices[1].taints[1].key: is in k8s.io, {RESERVED}"],
        ),
        "a key without a domain, which the driver chose": (
            make_slice([make_device(taints=[make_taint(), make_taint(key="ecc", effect="None")])]),
            [],
        ),
        "at the path as written": (
            make_slice([make_basic_device(taints=[make_taint(time_added=ago(-100))])], version="v1beta1"),
            [f"DT007 spec.devices[0].basic.taints[0].timeAdded: {FUTURE}"],
        ),
        "a driver's time may lie back: it publishes again and again": (
            make_slice([make_device(taints=[LONG_AGO])], taints=[{"device": "gpu-1", "taint": LONG_AGO}]),
            [],
        ),
        "what no released server has": (
            make_slice([make_device(taints=[make_taint(description="x")])]),
            [f"DT017 spec.devices[0].taints[0].description: {DROPPED}/description"],
        ),
        "nor does the time matter beside other advice": (
            make_slice([make_device(taints=[LONG_AGO | {"description": "x"}])]),
            [f"DT017 spec.devices[0].taints[0].description: {DROPPED}/description"],
        ),
        "taints beside the devices": (
            make_slice([], taints=[{"device": "a", "taint": make_taint(key="k8s.io/x", effect="Evict")}]),
            [
                f"DT005 spec.taints[0].taint.key: is in k8s.io, {RESERVED}",
                f"DT006 spec.taints[0].taint.effect: {UNKNOWN_EFFECT}",
            ],
        ),
        "a taint of a patch": (
            make_patch(taints=[make_taint(effect="Evict")]),
            [f"DT006 spec.devices.taints[0].effect: {UNKNOWN_EFFECT}"],
        ),
        "an empty filter of a patch": (
            make_patch(filter_={}),
            ["DT011 spec.devices.filter: is empty: the patch applies to every device"],
        ),
    },
)
def test_advice_on_slices_and_patches(manifest: Any, expected: list[str]) -> None:
    assert advice(manifest) == expected


@table(
    "old, new, expected",
    {
        "told before": (make_rule(selector={}), make_rule(selector={}), []),
        "new with this update": (make_rule(), make_rule(selector={}), [f"DT011 spec.deviceSelector: {EVERY_DEVICE}"]),
        "the same advice for another value": (
            make_rule(taint=make_taint(effect="Evict")),
            make_rule(taint=make_taint(effect="Evict2")),
            [f"DT006 spec.taint.effect: {UNKNOWN_EFFECT}"],
        ),
        "put right": (make_rule(selector={}), make_rule(), []),
        "reported before, of a taint that acts only now": (
            make_rule(selector={}, taint=make_taint(effect="None")),
            make_rule(selector={}, taint=make_taint(effect="NoSchedule")),
            [f"DT011 spec.deviceSelector: {EVERY_DEVICE}"],
        ),
    },
)
def test_advice_is_not_repeated(old: Any, new: Any, expected: list[str]) -> None:
    assert advice(new, old) == expected


def test_what_is_no_object_of_ours_gets_no_advice() -> None:
    assert list(lint(object(), None, NOW)) == []


def test_every_code_has_a_title() -> None:
    known = [code for code in codes() if code.startswith("DT0")]
    assert known == [f"DT{number:03}" for number in range(1, len(known) + 1)]
