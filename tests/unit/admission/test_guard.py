"""What the guard refuses, what it only tells, and the way out that it offers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.builders import DRIVER, NOW, decoded, make_scheduler_claim
from tests.tables import table
from tests.unit.admission.guarding import (
    NOWHERE,
    UNKNOWN,
    allowing,
    ask,
    fleet,
    node,
    over,
    refusals,
    tainting,
    text_in,
    told,
)
from tests.unit.cluster.held import held
from tests.unit.inventory.values import claim, group, inventory_of, on, pool_slice
from webhook.api.claims import EXTENDED_RESOURCE, FROM_TEMPLATE
from webhook.api.decode import Reader
from webhook.api.rules import CONFIRM_IMPACT, decode_rule
from webhook.api.servers import facts_of
from webhook.inventory import targets
from webhook.policy.match import KnownNames
from webhook.policy.model import (
    Action,
    ImpactLimits,
    ImpactSettings,
    NamespaceMatch,
    PolicyMode,
    RequesterMatch,
    Share,
    TaintMatch,
)

LONG_AGO = NOW - timedelta(hours=2)
CAREFUL = "oncall"


def limits(*entries: ImpactLimits, **settings: Any) -> ImpactSettings:
    return ImpactSettings(limits=entries or (ImpactLimits(),), **settings)


def at_most(**numbers: Any) -> ImpactSettings:
    return limits(ImpactLimits(**numbers))


# --- messages, whole ------------------------------------------------------------------------------


def test_refusal_names_figures_limit_and_way_out() -> None:
    decision = ask(tainting(), impact=at_most(pods=3))
    text = text_in(decision)
    assert [str(error) for error in decision.errors] == [
        (
            "spec.deviceSelector: Forbidden: hits 8 devices, 4 pods in 1 namespace: the limit is 3 pods; narrow the"
            f' selector, or to go ahead, set annotation devicetaint.io/confirm-impact to "{text}"'
        )
    ]
    assert text.startswith("v1 devices=8 claims=4 pods=4 namespaces=1 of=")
    assert decision.code == 403
    assert decision.assumed is None
    assert decision.annotations == {
        "decision": "denied",
        "rules": "DT204,impact",
        "impact": "devices=8 pools=4 allocated=4 claims=4 pods=4 now=4 later=0 tolerating=0 unseen=0 kept=0"
        " namespaces=1 podGroups=0 over=limit:pods",
    }


def test_under_the_limit_the_same_figures_are_a_warning() -> None:
    decision = ask(tainting(), impact=at_most(pods=4))
    assert decision.warnings[0] == (
        "spec.deviceSelector: selects 8 devices in 4 pools; evicts 4 pods in 1 namespace, all at once (rule impact)"
    )
    assert decision.annotations["impact"].endswith("namespaces=1 podGroups=0")
    assert decision.assumed is not None
    assert decision.assumed.rules[0].meta.name == "unhealthy-gpu"
    assert decision.assumed.impact.pods == {"u-0", "u-1", "u-2", "u-3"}


def test_all_that_is_too_much_is_told_at_once() -> None:
    settings = limits(ImpactLimits(pods=1, claims=2, namespaces=0, devices=7))
    decision = ask(tainting({}, added=LONG_AGO), impact=settings)
    (text,) = refusals(decision)
    assert text.startswith(
        "hits 8 devices, 4 pods in 1 namespace: an empty selector is every device of every driver; timeAdded"
        " 2026-06-01T10:00:00Z is past, so tolerationSeconds may be over; the limit is 7 devices and 2 claims and 1 pod"
        " and 0 namespaces; narrow the selector, or to go ahead, set annotation"
    )
    assert over(decision) == ["empty-selector", "backdated", "limit:devices,claims,pods,namespaces"]


def test_nobody_looks_at_a_cluster_so_nothing_is_guarded() -> None:
    decision = ask(tainting({}), sight=None)
    assert (told(decision), decision.assumed) == ([], None)
    assert "impact" not in decision.annotations


# --- selectors and effects ------------------------------------------------------------------------

EMPTY, UNJUDGED, MISSING = "empty-selector", "unknown-selector", "no-selector"


@pytest.mark.parametrize(
    ("effect", "evict", "wide"),
    [
        ("NoExecute", False, True),
        ("NoSchedule", False, True),
        ("NoSchedule", True, True),
        ("None", True, True),
        ("None", False, False),
    ],
)
@table(
    "selector, reason",
    {
        "empty": ({}, EMPTY),
        "missing": (None, MISSING),
        "unknown field": ({"all": True}, UNJUDGED),
        "R8: unknown field beside known ones": ({**node(0), "orDriver": "b"}, UNJUDGED),
        "class": ({"deviceClassName": "gpu"}, UNJUDGED),
        "CEL": ({"selectors": [{"cel": {"expression": "false"}}]}, UNJUDGED),
    },
)
@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1alpha3"])
def test_selector_that_nothing_narrows_is_always_too_much(
    selector: Any, reason: str, effect: str, *, evict: bool, wide: bool, version: str
) -> None:
    rule = tainting(selector, effect, evict=evict, version=version)
    decision = ask(rule, impact=limits())
    assert decision.allowed is not wide
    assert over(decision) == ([reason] if wide else [])
    if wide:
        confirmed = tainting(selector, effect, evict=evict, version=version, text=text_in(decision))
        assert ask(confirmed, impact=limits()).allowed
    else:
        assert [severity for severity, _ in told(decision)] == ["warn"]
        assert decision.annotations["impact"].endswith(" simulated")


@pytest.mark.parametrize("field", ["driver", "pool", "device"])
@pytest.mark.parametrize("beside", [{}, {"deviceClassName": "gpu"}])
def test_any_name_narrows_a_selector(field: str, beside: Any) -> None:
    value = {"driver": DRIVER, "pool": "node-0", "device": "gpu-0"}[field]
    decision = ask(tainting({field: value, **beside}), impact=limits())
    assert (decision.allowed, over(decision)) == (True, [])


def test_unknown_field_beside_names_that_nothing_has_counts_as_every_device() -> None:
    """R8."""
    decision = ask(tainting({**NOWHERE, "orDriver": DRIVER}), impact=limits())
    assert over(decision) == [UNJUDGED]
    assert decision.annotations["impact"].startswith("devices=8 pools=4 ")
    assert refusals(decision)[0].startswith(
        "hits 8 devices, 4 pods in 1 namespace: the selector has fields that are not known here, so it counts as every"
    )


def test_value_of_an_unknown_field_is_part_of_the_ratchet_and_of_the_text() -> None:
    """R8."""
    first, second = (tainting({**node(0), "future": {"a": each, "b": 1}}) for each in ("x", "y"))
    same = tainting({**node(0), "future": {"b": 1, "a": "x"}})
    assert over(ask(second, first)) == [UNJUDGED]
    assert told(ask(same, first)) == []
    text = text_in(ask(first))
    annotations = {**first["metadata"]["annotations"], CONFIRM_IMPACT: text}
    with_text = [
        {**each, "metadata": {**each["metadata"], "annotations": annotations}} for each in (first, same, second)
    ]
    assert [ask(each).allowed for each in with_text] == [True, True, False]


def test_name_added_beside_an_unknown_field_is_no_narrowing() -> None:
    """R8: what the field makes of the name is not known."""
    future = {"not": True}
    assert over(ask(tainting({**node(0), **future}), tainting({"driver": DRIVER, **future}))) == [UNJUDGED]


def test_missing_selector_is_refused_with_both_readings() -> None:
    (text,) = refusals(ask(tainting(None)))
    assert text.startswith(
        "keeps 8 devices from being allocated: a rule without selector evicts no pod, but servers before 1.37.1"
        " allocate no device while it exists; narrow the selector, or to go ahead"
    )


@pytest.mark.parametrize(
    ("version", "hits", "does"),
    [
        (
            "v1.37.0",
            "keeps 8 devices from being allocated",
            "servers of this version allocate no device while it exists",
        ),
        (
            "v1.37.2",
            "hits no device",
            "a rule without selector selects nothing here; servers before 1.37.1 would allocate no device",
        ),
    ],
)
def test_missing_selector_is_refused_on_every_server_in_its_words(version: str, hits: str, does: str) -> None:
    """And on one that reads it as nothing it closes no device within the window."""
    cluster = inventory_of(*fleet())
    cluster.servers = facts_of([version])
    decision = ask(tainting(None), cluster=cluster, servers=cluster.servers)
    (text,) = refusals(decision)
    assert text.startswith(f"{hits}: ")
    assert does in text
    allowed = ask(tainting(None), cluster=cluster, servers=cluster.servers, mode=PolicyMode.WARN)
    assert allowed.assumed is not None
    assert allowed.assumed.names == (
        (targets.NOWHERE,) if cluster.servers.missing_selects_nothing else (targets.ANYWHERE,)
    )


def test_effect_that_nobody_knows_acts_as_none() -> None:
    """A newer server may have it; field rules refuse it unless it is stored already."""
    decision = ask(tainting({}, "Later"), tainting(node(0), "Later"), impact=limits())
    assert told(decision) == [
        ("warn", "with effect NoExecute selects 8 devices in 4 pools; evicts 4 pods in 1 namespace, all at once")
    ]


# --- limits ---------------------------------------------------------------------------------------


def two_namespaces(number: int) -> str:
    return f"ml-{number % 2}"


@pytest.mark.parametrize(
    ("numbers", "reasons"),
    [
        ({"pods": 4}, []),
        ({"pods": 3}, ["limit:pods"]),
        ({"claims": 4}, []),
        ({"claims": 3}, ["limit:claims"]),
        ({"devices": 8}, []),
        ({"devices": 7}, ["limit:devices"]),
        ({"namespaces": 2}, []),
        ({"namespaces": 1}, ["limit:namespaces"]),
        ({"pods": 0, "claims": 0, "devices": 0, "namespaces": 0}, ["limit:devices,claims,pods,namespaces"]),
        ({}, []),
        ({"pods": Share(50)}, []),
        ({"pods": Share(49)}, ["limit:pods"]),
        ({"claims": Share(49)}, ["limit:claims"]),
        ({"devices": Share(100)}, []),
        ({"devices": Share(99)}, ["limit:devices"]),
        ({"namespaces": Share(99)}, ["limit:namespaces"]),
        ({"namespaces": Share(100)}, []),
        ({"pods": Share(0)}, ["limit:pods"]),
    ],
    ids=str,
)
def test_each_limit_is_a_number_or_a_share_of_what_there_is(numbers: Any, reasons: list[str]) -> None:
    """Half of eight nodes are of the driver, with half of the pods; both halves are in both namespaces.

    A share of devices is of the driver's, the other shares are of all.
    """
    others = [
        each
        for number in range(4)
        for each in (
            pool_slice("gpu-0", "gpu-1", name=f"other-{number}", pool=f"other-{number}", driver="other.example.com"),
            claim(
                f"other-{number}",
                on(pool=f"other-{number}", driver="other.example.com"),
                users=[f"other-{number}"],
                namespace=two_namespaces(number),
            ),
        )
    ]
    cluster = inventory_of(*fleet(4, two_namespaces), *others)
    assert over(ask(tainting(), cluster=cluster, impact=at_most(**numbers))) == reasons


@table(
    "rule, user, reasons",
    {
        "nothing fits but the last": (tainting(), "jane", ["limit:pods"]),
        "requester": (tainting(), "system:serviceaccount:health:operator", []),
        "key": (tainting(key="maint.example.com/window"), "jane", []),
        "effect": (tainting(effect="NoSchedule"), "jane", ["limit:devices"]),
        "effective effect": (tainting(effect="NoSchedule", evict=True), "jane", ["limit:pods"]),
    },
)
def test_first_limits_that_match_requester_and_taint_hold(rule: Any, user: str, reasons: list[str]) -> None:
    settings = limits(
        ImpactLimits(requesters=RequesterMatch(service_accounts=("health/*",)), pods=100),
        ImpactLimits(taints=TaintMatch(keys=("maint.example.com/*",))),
        ImpactLimits(taints=TaintMatch(effects=("NoSchedule",)), devices=1),
        ImpactLimits(pods=1),
    )
    assert over(ask(rule, user=user, impact=settings)) == reasons


# --- protected namespaces -------------------------------------------------------------------------

BY_LABEL = NamespaceMatch(labels=(("tier", "system"),))


@table(
    "match, namespaces, reasons",
    {
        "by name": (NamespaceMatch(names=("m*",)), {}, ["protected"]),
        "another name": (NamespaceMatch(names=("kube-system",)), {}, []),
        "by label": (BY_LABEL, {"ml": {"tier": "system"}}, ["protected"]),
        "another label": (BY_LABEL, {"ml": {"tier": "user"}}, []),
        "no label": (BY_LABEL, {"ml": {}}, []),
        "labels not known": (BY_LABEL, {}, ["protected"]),
        "an exception": (NamespaceMatch(names=("*",), except_names=("ml",)), {}, []),
    },
)
def test_pod_in_a_protected_namespace_is_too_much(match: Any, namespaces: Any, reasons: list[str]) -> None:
    settings = ImpactSettings(protected_namespaces=match)
    assert over(ask(tainting(node(0)), impact=settings, names=KnownNames(namespaces))) == reasons
    assert over(ask(tainting(node(0), "NoSchedule"), impact=settings, names=KnownNames(namespaces))) == []


def test_protected_namespaces_are_named() -> None:
    cluster = inventory_of(*fleet(5, lambda number: f"kube-{number}"))
    settings = limits(protected_namespaces=NamespaceMatch(names=("kube-*",)))
    one, all_of_them = (
        refusals(ask(tainting(each), cluster=cluster, impact=settings)) for each in (node(3), {**NODES})
    )
    assert one[0].startswith("hits 2 devices, 1 pod in 1 namespace: namespace kube-3 is protected; narrow")
    assert ": namespaces kube-0, kube-1, kube-2 and 2 more are protected; narrow" in all_of_them[0]
    cluster = inventory_of(*fleet(2, lambda number: f"kube-{number}"))
    (two,) = refusals(ask(tainting(), cluster=cluster, impact=settings))
    assert ": namespaces kube-0, kube-1 are protected; narrow" in two


NODES = {"driver": DRIVER}

# --- what is not known ----------------------------------------------------------------------------

NOT_KNOWN = "its impact is not known: claims were not read yet"
PAST = "timeAdded 2026-06-01T10:00:00Z is past, so tolerationSeconds may be over"


@pytest.mark.parametrize(
    ("rule", "unknown_impact", "expected"),
    [
        (tainting(), Action.DENY, [("deny", f"{NOT_KNOWN}; try again in a while")]),
        (tainting(), Action.WARN, [("warn", NOT_KNOWN)]),
        (tainting(effect="NoSchedule"), Action.DENY, [("warn", NOT_KNOWN)]),
        (tainting(effect="None"), Action.DENY, []),
        (tainting(effect="None", evict=True), Action.DENY, [("deny", f"{NOT_KNOWN}; try again in a while")]),
        (tainting({}, "None"), Action.DENY, []),
        (
            tainting({}, "NoSchedule"),
            Action.WARN,
            [("deny", f"{NOT_KNOWN}; an empty selector is every device of every driver; try again in a while")],
        ),
        (tainting(added=LONG_AGO), Action.WARN, [("deny", f"{NOT_KNOWN}; {PAST}; try again in a while")]),
    ],
)
def test_unknown_impact(rule: Any, unknown_impact: Action, expected: Any) -> None:
    decision = ask(rule, cluster=UNKNOWN, impact=ImpactSettings(unknown_impact=unknown_impact))
    assert told(decision) == expected
    assert decision.annotations["impact"] == "unknown: claims were not read yet"
    acts = decoded(rule)[0].effective_effect != "None"
    assert (decision.assumed is not None) is (decision.allowed and acts)


def test_unknown_impact_cannot_be_confirmed() -> None:
    text = text_in(ask(tainting(), impact=at_most(pods=0)))
    assert refusals(ask(tainting(text=text), cluster=UNKNOWN))[0] == f"{NOT_KNOWN}; try again in a while"
    hint = f"{NOT_KNOWN}; try again in a while, or as a member of group {CAREFUL} or root"
    settings = ImpactSettings(break_glass_groups=(CAREFUL, "root"))
    assert refusals(ask(tainting(), cluster=UNKNOWN, impact=settings)) == [hint]


HALF_PUBLISHED = inventory_of(pool_slice("gpu-0", count=2), claim("a", on(), users=["u"]))
ONE_GROUP = inventory_of(pool_slice("gpu-0"), claim("a", on(), users=[group("g")]))
PODS_UNKNOWN = inventory_of(pool_slice("gpu-0"), claim("a", on(), users=[group("g"), group("h")]))


def test_first_of_several_half_published_pools_is_named() -> None:
    pools = [pool_slice("d", name=f"slice-{number}", pool=f"node-{number}", count=2) for number in (2, 1, 3)]
    refused = ask(tainting(), cluster=inventory_of(*pools))
    assert f": pool {DRIVER}/node-1 is being published" in refusals(refused)[0]
    warned = ask(tainting(text=text_in(refused)), cluster=inventory_of(*pools))
    assert ("warn", f"devices are not all counted: 3 pools half published, as {DRIVER}/node-1") in told(warned)


@table(
    "cluster, reason, text, warning",
    {
        "half published pool": (
            HALF_PUBLISHED,
            "incomplete",
            f"hits 1 device, 1 pod in 1 namespace: pool {DRIVER}/node-0 is being published, so devices are not all",
            f"devices are not all counted: 1 pool half published, as {DRIVER}/node-0",
        ),
        "PodGroups": (
            PODS_UNKNOWN,
            "pod-groups",
            "hits 1 device, 0 pods in 1 namespace: 2 PodGroups of unknown size use such devices;",
            "in use by 2 PodGroups of unknown size",
        ),
        "a PodGroup": (
            ONE_GROUP,
            "pod-groups",
            "hits 1 device, 0 pods in 1 namespace: 1 PodGroup of unknown size uses such devices;",
            "in use by 1 PodGroup of unknown size",
        ),
    },
)
def test_what_could_not_be_counted(cluster: Any, reason: str, text: str, warning: str) -> None:
    refused = ask(tainting(), cluster=cluster)
    assert over(refused) == [reason]
    assert refusals(refused)[0].startswith(text)
    assert ask(tainting(text=text_in(refused)), cluster=cluster).allowed
    warned = ask(tainting(), cluster=cluster, impact=ImpactSettings(unknown_impact=Action.WARN))
    assert warned.allowed
    assert ("warn", warning) in told(warned)
    assert over(ask(tainting(effect="NoSchedule"), cluster=cluster)) == []


# --- claims that say that the scheduler made them -----------------------------------------------------


@pytest.mark.parametrize("template", [True, False], ids=["put into the template", "and the template's removed"])
def test_forged_annotation_hides_no_pod(*, template: bool) -> None:
    """In-tree eviction does evict the pods of claims that carry the annotation of the scheduler's own."""
    marks = {EXTENDED_RESOURCE: "true", **({FROM_TEMPLATE: "gpu"} if template else {})}
    fields: dict[str, Any] = {"request": "gpu", "annotations": marks}
    claims = [
        make_scheduler_claim(f"train-{number}", f"node-0/gpu-{number}", name=f"train-{number}-gpu-x7k2p", **fields)
        for number in range(60)
    ]
    decision = ask(tainting(), cluster=inventory_of(*map(held, claims)), impact=allowing(pods=50))
    assert over(decision) == ["limit:pods"]
    assert "hits 0 devices, 60 pods in 1 namespace" in refusals(decision)[0]


BY_RELEASE = "the in-tree controller evicts such pods from 1.37.2 on; before, it leaves them alone"


def test_pods_whose_claims_the_scheduler_made_count_and_the_text_says_who_evicts_them() -> None:
    claims = [make_scheduler_claim(f"train-{number}", f"node-0/gpu-{number}") for number in range(60)]
    cluster = inventory_of(*map(held, claims))
    refused = ask(tainting(), cluster=cluster, impact=allowing(pods=50))
    assert over(refused) == ["limit:pods"]
    text = f"60 pods in 1 namespace (of these 60 pods with extended resources: {BY_RELEASE}): the limit is 50 pods"
    assert text in refusals(refused)[0]
    admitted = told(ask(tainting(), cluster=cluster, impact=allowing(pods=60)))
    assert ("warn", f"of these 60 pods with extended resources: {BY_RELEASE}") in admitted
    ours = told(ask(tainting(effect="NoSchedule", evict=True), cluster=cluster, impact=allowing(pods=60)))
    assert not any("extended" in text for _, text in ours)


def test_pods_with_extended_resources_count_in_the_window() -> None:
    """Of a rule of a moment ago, whose pods are others."""
    claims = [make_scheduler_claim(f"train-{number}", f"node-{number % 2}/gpu-{number}") for number in range(60)]
    first = decode_rule(Reader.of(tainting(node(0), name="first"), []))
    cluster = inventory_of(*map(held, claims), first)
    assert over(ask(tainting(node(1)), cluster=cluster, impact=allowing(pods=50))) == ["window:pods"]
