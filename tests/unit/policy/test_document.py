from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path as File
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.architecture.policy_reference import PUBLISHED
from tests.builders import NOW
from tests.costs import calls_of
from tests.unit.policy.documents import (
    AT,
    errors_in,
    make_defaults,
    make_document,
    make_entry,
    make_exception,
    policy_of,
)
from webhook.api.field import Path
from webhook.api.meta import LabelRequirement
from webhook.api.taints import DeviceToleration
from webhook.expressions.engine import compile_expression
from webhook.files.yaml_documents import yaml_documents
from webhook.policy.document import TAINT_VARIABLES, TOLERATION_VARIABLES, load
from webhook.policy.lint import expiring
from webhook.policy.model import (
    DEFAULT_LIMITS,
    Action,
    BreakerSettings,
    DefaultTolerations,
    EvictionProfile,
    EvictionWindow,
    ImpactLimits,
    ImpactSettings,
    InTreeEvictor,
    LabelMatch,
    Match,
    NamespaceMatch,
    Pause,
    Policy,
    PolicyException,
    PolicyMode,
    Reaction,
    RequesterMatch,
    Rule,
    Share,
    Softening,
    Subject,
    TaintMatch,
    TolerationMatch,
    UnknownAuthor,
)

NO_TIME = 'must be a time like "2026-01-31T12:00:00Z" (RFC 3339)'
SAMPLES = sorted((File(__file__).parents[3] / "manifests" / "policies").glob("*/policy.yaml"))


# --- what is read -------------------------------------------------------------------------------


def test_empty_document_is_the_built_in_policy_with_a_hash() -> None:
    policy = policy_of()
    assert policy == Policy(hash=policy.hash)
    assert len(policy.hash) == 12
    assert int(policy.hash, 16)


@pytest.mark.parametrize("field", ["mode", "documentedRules"])
def test_switch_that_yaml_read_as_false_is_off(field: str) -> None:
    """R6: the emergency switch works without quotes, and its document is the one with quotes."""
    assert policy_of(**{field: False}) == policy_of(**{field: "off"})
    assert errors_in(**{field: True}) == [
        f'{field}: Unsupported value: true: supported values: "enforce", "off", "warn"'
    ]


def test_switches_are_read() -> None:
    policy = policy_of(
        mode="warn",
        documentedRules="off",
        bumpSliceTimeAdded=True,
        inTreeEvictor="absent",
        generatedClaims="enforce",
        unknownAuthor="deny",
        trustedNamespaceLabels=["a"],
        trustedControllers=["b"],
        taintRulesOnSlices=True,
    )
    assert policy == Policy(
        policy.hash,
        PolicyMode.WARN,
        PolicyMode.OFF,
        bump_slice_time_added=True,
        in_tree_evictor=InTreeEvictor.ABSENT,
        generated_claims=PolicyMode.ENFORCE,
        unknown_author=UnknownAuthor.DENY,
        trusted_namespace_labels=("a",),
        trusted_controllers=("b",),
        taint_rules_on_slices=True,
    )


def test_rules_are_read() -> None:
    source = "request.count <= 4"
    match = {
        "namespaces": {
            "names": ["train-*"],
            "except": ["train-prod"],
            "labels": {"kubernetes.io/metadata.name": "*"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
        },
        "requesters": {"users": ["u"], "groups": ["ml-*"], "serviceAccounts": ["ci/runner"]},
        "deviceClasses": ["c"],
        "drivers": ["d"],
        "tolerations": {"keys": ["k"], "values": [""], "effects": ["NoExecute"], "seconds": {"above": 60}},
        "adminAccess": False,
        "when": source,
    }
    request = make_entry("whole", "audit", subject="request", message="m")
    policy = policy_of(rules=[make_entry(match=match), request])
    assert policy.rules == (
        Rule(
            "example",
            Action.DENY,
            Match(
                NamespaceMatch(
                    ("train-*",),
                    ("train-prod",),
                    (("kubernetes.io/metadata.name", "*"),),
                    (LabelRequirement("tier", "In", ("a", "b")),),
                ),
                RequesterMatch(("u",), ("ml-*",), ("ci/runner",)),
                ("c",),
                ("d",),
                TolerationMatch(("k",), ("",), ("NoExecute",), above=60),
                admin_access=False,
                when=compile_expression(source, TOLERATION_VARIABLES),
            ),
        ),
        Rule("whole", Action.AUDIT, subject=Subject.REQUEST, message="m"),
    )


def test_taint_rules_are_read() -> None:
    source = 'rule.name == "x"'
    match = {
        "requesters": {"groups": ["g"]},
        "drivers": ["d"],
        "pools": ["p"],
        "taints": {"keys": ["k"], "values": ["v"], "effects": ["NoSchedule"]},
        "evict": True,
        "when": source,
    }
    assert policy_of(taintRules=[make_entry(match=match)]).taint_rules == (
        Rule(
            "example",
            Action.DENY,
            Match(
                requesters=RequesterMatch(groups=("g",)),
                drivers=("d",),
                pools=("p",),
                taints=TaintMatch(("k",), ("v",), ("NoSchedule",)),
                evict=True,
                when=compile_expression(source, TAINT_VARIABLES),
            ),
        ),
    )


def test_exceptions_are_read() -> None:
    entry = make_exception(
        notBefore="2026-08-31T23:00:00+02:00",
        owner="o",
        reason="r",
        ticket="t",
        match={"tolerations": {"seconds": {"atMost": 5}}},
    )
    assert policy_of(default="deny", exceptions=[entry]).exceptions == (
        PolicyException(
            "excused",
            ("default",),
            datetime(2026, 9, 1, tzinfo=UTC),
            Match(tolerations=TolerationMatch(at_most=5)),
            "o",
            "r",
            "t",
            datetime(2026, 8, 31, 21, tzinfo=UTC),
        ),
    )


def test_default_tolerations_are_read() -> None:
    entry = make_defaults(key="k", value="v", effect="NoExecute", tolerationSeconds=30)
    entry["match"] = {"deviceClasses": ["c"]}
    assert policy_of(defaultTolerations=[entry]).default_tolerations == (
        DefaultTolerations(
            "added", (DeviceToleration("k", "Equal", "v", "NoExecute", 30),), Match(device_classes=("c",))
        ),
    )


def test_impact_is_read() -> None:
    impact = {
        "limits": [{"requesters": {"users": ["u"]}, "taints": {"keys": ["k"]}, "pods": "5%", "claims": 7}, {}],
        "protectedNamespaces": {"names": ["a"]},
        "window": "1h30m",
        "tolerance": "2.5%",
        "confirmers": {"groups": ["sre"]},
        "breakGlassGroups": ["g"],
        "twoStep": True,
        "unknownImpact": "warn",
    }
    assert policy_of(impact=impact).impact == ImpactSettings(
        (ImpactLimits(RequesterMatch(("u",)), TaintMatch(("k",)), Share(5.0), 7, None, 10), DEFAULT_LIMITS),
        NamespaceMatch(("a",)),
        5400.0,
        2.5,
        RequesterMatch(groups=("sre",)),
        break_glass_groups=("g",),
        two_step=True,
        unknown_impact=Action.WARN,
    )


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, ImpactLimits(pods=50, namespaces=10)),
        ({"confirmable": False}, ImpactLimits(pods=50, namespaces=10, confirmable=False)),
        ({"devices": "5%"}, ImpactLimits(pods=50, devices=Share(5.0), namespaces=10)),
        ({"pendingPods": "5%"}, ImpactLimits(pods=50, namespaces=10, pending_pods=Share(5.0))),
        ({"pendingPods": None}, ImpactLimits(pods=50, namespaces=10)),
        ({"claims": 20}, ImpactLimits(pods=50, claims=20, namespaces=10)),
        ({"pods": None}, ImpactLimits(namespaces=10)),
        ({"pods": 0, "namespaces": None}, ImpactLimits(pods=0)),
        ({"pods": None, "claims": None, "devices": None, "namespaces": None}, ImpactLimits()),
        ({"pods": 1, "claims": 2, "devices": 3, "namespaces": 4}, ImpactLimits(None, None, 1, 2, 3, 4)),
        ({"action": "deny"}, ImpactLimits(pods=50, namespaces=10)),
        ({"action": "soften"}, ImpactLimits(pods=50, namespaces=10, soften=Softening.OVER)),
        ({"action": "soften", "soften": "always"}, ImpactLimits(pods=50, namespaces=10, soften=Softening.ALWAYS)),
    ],
    ids=str,
)
def test_limit_that_an_entry_does_not_name_keeps_its_default_and_null_lifts_it(entry: Any, expected: Any) -> None:
    assert policy_of(impact={"limits": [entry]}).impact.limits == (expected,)


def test_breaker_is_read() -> None:
    acknowledged = [{"driver": "gpu.example.com", "until": "2026-09-01T00:00:00Z"}]
    given = {"devices": 3, "window": "1m", "calm": "2h", "acknowledged": acknowledged}
    assert policy_of(breaker=given).breaker == BreakerSettings(
        3, 60.0, 7200.0, (("gpu.example.com", datetime(2026, 9, 1, tzinfo=UTC)),)
    )
    assert policy_of(breaker={"devices": None}).breaker == BreakerSettings(None)
    acknowledged.append({"driver": "nic.example.com", "until": "tomorrow"})
    assert errors_in(breaker={"devices": "0%", "acknowledged": acknowledged}) == [
        'breaker.devices: Invalid value: "0%": must be greater than 0%',
        f'breaker.acknowledged[1].until: Invalid value: "tomorrow": {NO_TIME}',
    ]


@pytest.mark.parametrize("why", ["", "incident"])
def test_pause_is_read(why: str) -> None:
    pause = {"until": "2026-09-01T00:00:00Z"} | ({"why": why} if why else {})
    assert policy_of(pause=pause).pause == Pause(datetime(2026, 9, 1, tzinfo=UTC), why)
    assert errors_in(pause={**pause, "until": "soon"}) == [f'pause.until: Invalid value: "soon": {NO_TIME}']


def test_window_of_the_breaker_is_longer_than_nothing() -> None:
    assert policy_of(breaker={"window": "1s", "calm": "0s"}).breaker.window_seconds == 1.0
    assert errors_in(breaker={"window": "0s"}) == ['breaker.window: Invalid value: "0s": must be greater than 0s']


def test_impact_that_is_left_out_keeps_its_defaults() -> None:
    assert policy_of(impact={"window": "5m"}).impact == ImpactSettings(window_seconds=300.0)


@pytest.mark.parametrize("nothing", [{}, {"names": []}])
def test_empty_protected_namespaces_protect_none(nothing: Any) -> None:
    """An empty match would be every namespace."""
    assert policy_of(impact={"protectedNamespaces": nothing}).impact.protected_namespaces == NamespaceMatch(
        except_names=("*",)
    )


def test_eviction_profiles_are_read() -> None:
    first = {
        "namespaces": {"names": ["a"]},
        "priority": {"atMost": 5},
        "deviceClasses": ["c"],
        "rate": 0.5,
        "burst": 2,
        "maxPerMinute": 3,
        "perNamespace": 4,
        "perOwnerUnavailable": "25%",
        "overall": 6,
        "deadline": "1m",
        "afterDeadline": "delete",
        "gracePeriodSeconds": 7,
        "grace": "8s",
        "maxHold": "1h",
        "daemonSets": "evict",
        "podLabels": {
            "labels": {"app": "web*"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}],
        },
        "gangLabels": ["example.com/gang", "group"],
        "gang": "owner",
        "gangWindow": "90s",
        "action": "skip",
        "windows": [
            {"schedule": "0 22 * * 1-5", "duration": "8h", "zone": "Europe/Berlin"},
            {"schedule": "0 0 * * 0", "duration": "24h"},
        ],
        "waitForCompletion": "24h",
    }
    assert policy_of(eviction=[first, {"perOwnerUnavailable": None}]).eviction == (
        EvictionProfile(
            NamespaceMatch(("a",)),
            5,
            ("c",),
            0.5,
            2,
            3,
            4,
            Share(25.0),
            6,
            60.0,
            delete_after_deadline=True,
            grace_period_seconds=7,
            grace_seconds=8.0,
            max_hold_seconds=3600.0,
            evict_daemon_sets=True,
            pod_labels=LabelMatch((("app", "web*"),), (LabelRequirement("tier", "In", ("a",)),)),
            gang_labels=("example.com/gang", "group"),
            gang_by_owner=True,
            gang_window_seconds=90.0,
            skips=True,
            windows=(
                EvictionWindow("0 22 * * 1-5", 8 * 3600.0, "Europe/Berlin"),
                EvictionWindow("0 0 * * 0", 24 * 3600.0, "UTC"),
            ),
            wait_for_completion_seconds=24 * 3600.0,
        ),
        EvictionProfile(per_owner_unavailable=None),
    )


@pytest.mark.parametrize(
    ("given", "profile"),
    [
        ({}, EvictionProfile()),
        ({"gang": "none", "gangLabels": [], "gangWindow": "0s"}, EvictionProfile(gang_window_seconds=0.0)),
        ({"podLabels": {}}, EvictionProfile()),
        ({"action": "evict", "windows": [], "waitForCompletion": "0s"}, EvictionProfile()),
        ({"podLabels": {"labels": {}, "matchExpressions": []}}, EvictionProfile()),
    ],
)
def test_gangs_and_labels_of_pods_have_defaults(given: Any, profile: EvictionProfile) -> None:
    assert policy_of(eviction=[given]).eviction == (profile,)


@pytest.mark.parametrize(
    "match",
    [
        {},
        {"namespaces": {}, "requesters": {"users": []}, "tolerations": {"keys": [], "effects": []}, "drivers": []},
        {"namespaces": {"names": [], "labels": {}, "matchExpressions": []}},
    ],
)
def test_what_is_empty_is_not_given(match: Any) -> None:
    assert policy_of(rules=[make_entry(match=match)]).rules == (Rule("example", Action.DENY),)


def test_hash_is_of_the_content() -> None:
    rules = [make_entry()]
    document = make_document(mode="warn", rules=rules)
    turned = json.loads(json.dumps(dict(reversed(document.items()))))
    hashes = [policy.hash for each in (document, turned) if (policy := load(each, AT).policy)]
    assert hashes[0] == hashes[1]
    assert policy_of(mode="off", rules=rules).hash != hashes[0]


def test_errors_stand_below_the_place_of_the_document() -> None:
    at = Path.root().child("data").key("policy.yaml")
    (error,) = load(make_document(rules=[make_entry("default")]), at).errors
    assert error.field == "data[policy.yaml].rules[0].name"


# --- cost ---------------------------------------------------------------------------------------


def cost(document: Any) -> int:
    """Calls of functions to load it."""
    return calls_of(lambda each: load(each, AT), lambda: document)


def test_ten_times_as_many_rules_cost_ten_times_as_much() -> None:
    """A rule costs the same however many stand beside it, so half of a review's time is enough on a slow machine."""
    rules = [
        make_entry(
            f"rule-{number}",
            match={
                "namespaces": {"names": [f"team-{number}-*"], "except": ["x"]},
                "requesters": {"groups": ["a", "b"], "serviceAccounts": ["ci/runner"]},
                "deviceClasses": ["gpu.example.com"],
                "tolerations": {"keys": ["a/*", "b/*"], "effects": ["NoExecute"], "seconds": {"above": number}},
            },
        )
        for number in range(500)
    ]
    assert cost(make_document(rules=rules)) <= 10.5 * cost(make_document(rules=rules[:50]))


def test_thousands_of_wrong_names_cost_hardly_more_than_the_hundred_that_are_reported() -> None:
    """Each is compared with the right ones, so no more are compared than are reported."""
    rules = [make_entry(f"rule-{number}") for number in range(300)]
    wrong = [f"rul-{number}" for number in range(200)]
    exceptions = [make_exception(f"e{number}", wrong) for number in range(20)]
    assert len(errors_in(rules=rules, exceptions=exceptions)) == 100
    one, all_of_them = (make_document(rules=rules, exceptions=exceptions[:count]) for count in (1, 20))
    assert cost(all_of_them) <= 3 * cost(one)


def test_loading_asks_between_entries() -> None:
    asked: list[str] = []
    load(make_document(rules=[make_entry("a"), make_entry("b")]), AT, asked.append)
    assert len(asked) >= 6  # the schema, the parts and the checks, each
    assert set(asked) == {"policy"}


# --- samples ------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", SAMPLES, ids=[file.parent.name for file in SAMPLES])
def test_samples_load_without_errors_or_warnings(file: File) -> None:
    (document,) = yaml_documents(file.read_text())
    loaded = load(document.value, AT)
    assert loaded.errors == ()
    assert loaded.warnings == ()
    assert loaded.policy is not None
    assert list(expiring(loaded.policy, datetime(2026, 11, 1, tzinfo=UTC))) == []


@pytest.mark.parametrize("file", SAMPLES, ids=[file.parent.name for file in SAMPLES])
def test_samples_pass_the_published_schema_as_others_read_it(file: File) -> None:
    (document,) = yaml_documents(file.read_text())
    Draft202012Validator(json.loads(PUBLISHED.read_bytes())).validate(document.value)


def test_samples_are_there() -> None:
    assert len(SAMPLES) == 8


# --- what holds where a document says nothing; the documentation has these numbers ----------------


MINUTE = 60.0
HOUR = 3600.0


@pytest.mark.parametrize("fields", [{}, {"breaker": {}}, {"breaker": {"acknowledged": []}}], ids=str)
def test_breaker_opens_at_a_fifth_of_the_devices_in_five_minutes_and_closes_after_ten(fields: Any) -> None:
    assert policy_of(**fields).breaker == BreakerSettings(Share(20.0), 5 * MINUTE, 10 * MINUTE, ())


@pytest.mark.parametrize("fields", [{}, {"impact": {}}], ids=str)
def test_impact_is_confirmed_by_anybody_and_may_grow_by_a_tenth(fields: Any) -> None:
    assert policy_of(**fields).impact == ImpactSettings(
        (ImpactLimits(pods=50, namespaces=10, soften=Softening.NEVER, confirmable=True),),
        NamespaceMatch(names=("kube-system",)),
        window_seconds=10 * MINUTE,
        tolerance_percent=10.0,
        confirmers=None,
        break_glass_groups=(),
        two_step=False,
        unknown_impact=Action.DENY,
    )


@pytest.mark.parametrize("fields", [{}, {"eviction": [{}]}], ids=str)
def test_evictions_go_on_for_ten_minutes_and_are_stuck_after_five(fields: Any) -> None:
    (profile,) = policy_of(**fields).eviction
    assert profile == EvictionProfile(
        rate=10.0,
        burst=10,
        max_per_minute=None,
        per_namespace=None,
        per_owner_unavailable=1,
        overall=None,
        deadline_seconds=10 * MINUTE,
        delete_after_deadline=False,
        grace_period_seconds=None,
        grace_seconds=0.0,
        max_hold_seconds=24 * HOUR,
        evict_daemon_sets=False,
        stuck_after_seconds=5 * MINUTE,
        gang_by_owner=False,
        gang_window_seconds=MINUTE,
        skips=False,
        wait_for_completion_seconds=0.0,
    )


def test_reaction_waits_for_five_minutes_and_closes_the_device() -> None:
    taint = {"driver": "gpu.example.com", "key": "gpu.example.com/xid"}
    assert policy_of(reactions=[{"when": taint}]).reactions == (
        Reaction(
            taint["key"],
            taint["driver"],
            taint["key"],
            value=None,
            signal_effect="None",
            for_seconds=5 * MINUTE,
            effect="NoSchedule",
            evict=False,
            max_devices=None,
        ),
    )


def test_slices_are_left_to_their_drivers() -> None:
    for policy in (Policy(), policy_of()):
        assert (policy.bump_slice_time_added, policy.taint_rules_on_slices, policy.pause) == (False, False, None)


def test_drivers_are_acknowledged_one_by_one() -> None:
    until = "2026-06-01T12:00:00Z"
    entries = [{"driver": name, "until": until} for name in ("a.example.com", "b.example.com")]
    breaker = policy_of(breaker={"acknowledged": entries}).breaker
    found = [breaker.acknowledged_of(f"{name}.example.com") for name in "abc"]
    assert found == [NOW, NOW, None]
