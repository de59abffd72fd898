"""What of the admission port can be judged without a connection; the rest is in tests/https."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.builders import (
    encoded,
    make_claim,
    make_meta,
    make_review,
    make_rule,
    make_slice,
    make_toleration,
)
from tests.unit.admission.guarding import fleet, tainting
from tests.unit.inventory.values import inventory_of
from tests.unit.policy.documents import judge_of, make_entry, policy_of
from webhook.admission.context import Budget, OutOfTime
from webhook.api.field import Path, required
from webhook.inventory.state import Sight
from webhook.policy.decide import Judge
from webhook.policy.document import Loaded
from webhook.policy.model import ImpactLimits, ImpactSettings, Policy, PolicyMode
from webhook.policy.ports import KnownNames
from webhook.policy.store import PolicyStore
from webhook.server.http import Reviews
from webhook.server.settings import ReviewSettings
from webhook.server.state import Misses, ReviewState
from webhook.telemetry.metrics import Metrics
from webhook.telemetry.reviews import PolicyMetrics

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def reviews() -> Reviews:
    return Reviews(ReviewSettings(), Metrics(version="0", resources=()))


@pytest.mark.parametrize(
    ("target", "path", "seconds"),
    [
        ("/validate", "/validate", 8.0),
        ("/validate?timeout=5s", "/validate", 4.0),
        ("/validate?timeout=1h", "/validate", 24.0),
        ("/mutate?dryRun=x&timeout=5s&timeout=9s", "/mutate", 4.0),
        ("/mutate?timeouts=5s", "/mutate", 8.0),
    ],
)
def test_target_leads_to_a_route_with_four_fifths_of_the_callers_patience(
    reviews: Reviews, target: str, path: str, seconds: float
) -> None:
    route = reviews._route_to(target)
    assert route is not None
    assert (route.path, route.seconds) == (path, seconds)


@pytest.mark.parametrize("target", ["/", "/Validate", "/validate/", "//validate", "*", ""])
def test_other_targets_lead_nowhere(reviews: Reviews, target: str) -> None:
    assert reviews._route_to(target) is None


# --- policy, names and ConfigMaps ---------------------------------------------------------------


class Cluster:
    """A cluster that is asked for names: it says what it knows, and remembers what it was asked."""

    def __init__(self, namespaces: Any = None, device_classes: Any = None) -> None:
        self._facts = (namespaces or {}, device_classes or {})
        self.names = KnownNames()
        self.state = ReviewState(look_up=self.look_up)
        self.state.names = self.names
        self.asked: list[tuple[set[str], set[str], float]] = []
        self.when_asked: Callable[[], None] = lambda: None

    async def look_up(self, namespaces: frozenset[str], device_classes: frozenset[str], seconds: float) -> bool:
        self.asked.append((set(namespaces), set(device_classes), seconds))
        self.when_asked()
        self.state.names = KnownNames(*self._facts)
        return any(self._facts)


def reviewed(
    state: ReviewState,
    review: Any,
    *,
    path: str = "/validate",
    seconds: float = 30.0,
    clock: Callable[[], float] = time.monotonic,
    settings: ReviewSettings = ReviewSettings(),  # noqa: B008 -- frozen
) -> dict[str, Any]:
    """What is answered to a review, with the samples of its metrics under "metrics".

    By default it has the longest time that a caller can give, since machines may be slow, and coverage slows them down.
    """
    metrics = Metrics(version="0", resources=("resourceclaims", "resourceslices", "devicetaintrules", "configmaps"))
    policy = state.policies.active.policy
    metrics.policy.use([rule.name for rule in policy.rules], ["candidate-rule"])
    reviews = Reviews(settings, metrics, state)
    route = reviews._route_to(f"{path}?timeout={seconds}s")
    assert route is not None
    budget = Budget(route.seconds, clock)
    outcome = asyncio.run(reviews._review(route, encoded(review), budget))
    answer = reviews._finish(outcome, 0.0, "")
    samples = {
        (sample.name.removeprefix("device_taint_webhook_"), *sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
    }
    response: dict[str, Any] = json.loads(answer._body)["response"]
    return response | {"metrics": samples}


ONLY_GPUS = make_entry("gpus-only", "allow", {"drivers": ["gpu.example.com"]})
NO_TEAM = make_entry("no-team", "deny", {"namespaces": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}})
CLAIM = make_review(make_claim([make_toleration()]))
DRIVERS = {"gpu.example.com": frozenset({"gpu.example.com"})}


def test_names_that_are_not_known_are_asked_for_and_the_review_is_decided_anew() -> None:
    cluster = Cluster({"ml": {}}, DRIVERS)
    cluster.state.policies.use(judge_of(NO_TEAM, ONLY_GPUS, default="deny"))
    assert reviewed(cluster.state, CLAIM)["allowed"]
    assert cluster.asked == [({"ml"}, {"gpu.example.com"}, 0.5)]


def test_what_nobody_knows_is_refused_after_it_was_asked_for_once() -> None:
    cluster = Cluster()
    cluster.state.policies.use(judge_of(NO_TEAM))
    answer = reviewed(cluster.state, CLAIM)
    assert not answer["allowed"]
    assert "no-team" in answer["status"]["message"]
    assert len(cluster.asked) == 1


def test_names_that_are_known_are_not_asked_for() -> None:
    cluster = Cluster()
    cluster.state.names = KnownNames({"ml": {}}, DRIVERS)
    cluster.state.policies.use(judge_of(NO_TEAM, ONLY_GPUS, default="deny"))
    assert reviewed(cluster.state, CLAIM)["allowed"]
    assert cluster.asked == []


def test_names_that_no_rule_needs_are_not_asked_for() -> None:
    cluster = Cluster()
    assert reviewed(cluster.state, CLAIM)["allowed"]
    assert reviewed(cluster.state, make_review(make_rule()))["allowed"]
    assert cluster.asked == []


def test_asking_takes_at_most_half_of_the_time_that_is_left() -> None:
    cluster = Cluster({"ml": {}})
    cluster.state.policies.use(judge_of(NO_TEAM))
    reviewed(cluster.state, CLAIM, seconds=0.5, clock=lambda: 0.0)
    [(_, _, seconds)] = cluster.asked
    assert seconds <= 0.2


def test_policy_that_comes_while_names_are_asked_for_decides() -> None:
    cluster = Cluster({"ml": {}}, DRIVERS)
    cluster.state.policies.use(judge_of(NO_TEAM))

    def swap() -> None:
        cluster.state.policies.use(judge_of(make_entry("nobody", "deny")))

    cluster.when_asked = swap
    assert "rule nobody" in reviewed(cluster.state, CLAIM)["status"]["message"]


def test_misses_are_noted_once_and_empty_names_never() -> None:
    misses = Misses(KnownNames({"known": {}}, {"any": None, "gpu": frozenset({"d"})}))
    assert not misses.found
    assert misses.namespace("") is None
    assert misses.drivers("") is None
    assert misses.namespace("known") is not None
    assert misses.drivers("gpu") == frozenset({"d"})
    assert not misses.found
    for _ in range(2):
        assert misses.namespace("new") is None
        assert misses.drivers("any") is None
    assert (misses.found, misses.namespaces, misses.device_classes) == (True, {"new"}, {"any"})


def config_map_review(**data: str) -> Any:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policy", "namespace": "ns"}}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    review = make_review(make_claim())
    review["request"] |= {
        "resource": resource,
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "object": {**manifest, "data": {name.replace("_", "."): text for name, text in data.items()}},
    }
    return review


@pytest.mark.parametrize("look_up", [False, True], ids=["standalone", "in a cluster"])
def test_documents_are_read_beside_the_loop_with_the_reviews_own_budget(look_up: bool) -> None:  # noqa: FBT001 -- a table's
    threads: list[bool] = []

    def read(text: str, at: Path, check: Callable[[str], None]) -> Loaded:
        threads.append(threading.current_thread() is threading.main_thread())
        check("policy")
        return Loaded(None, (required(at.child("kind"), text),))

    state = ReviewState(read_policy=read)
    if look_up:
        state.look_up = Cluster().look_up
    answer = reviewed(state, config_map_review(policy_yaml="some text"))
    assert threads == [False]
    [cause] = answer["status"]["details"]["causes"]
    assert (cause["field"], cause["message"]) == ("data[policy.yaml].kind", "Required value: some text")
    assert answer["metrics"]["reviews_total", "/validate", "configmaps", "CREATE", "422"] == 1


def test_document_that_takes_too_long_is_refused_and_names_the_phase() -> None:
    now = [100.0]

    def read(_text: str, _at: Path, check: Callable[[str], None]) -> Loaded:
        for _ in range(100):
            check("policy")
            now[0] += 1
        raise AssertionError("the budget was never spent")

    answer = reviewed(ReviewState(read_policy=read), config_map_review(policy_yaml="x"), clock=lambda: now[0])
    assert not answer["allowed"]
    assert answer["status"]["code"] == 504
    assert "before policy" in answer["status"]["message"]


def test_document_that_breaks_its_reader_is_refused_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    def read(_text: str, _at: Path, _check: Callable[[str], None]) -> Loaded:
        raise ZeroDivisionError

    answer = reviewed(ReviewState(read_policy=read), config_map_review(policy_yaml="x"))
    assert answer["status"]["code"] == 500
    assert answer["metrics"]["panics_total", "configmaps"] == 1
    assert [record.getMessage() for record in caplog.records] == ["review failed"]


def test_rules_that_matched_are_counted_and_so_is_what_a_candidate_would_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = ReviewState(
        PolicyStore(
            judge_of(make_entry("noted", "audit"), make_entry("told", "warn"), make_entry("fine", "allow")),
            judge_of(make_entry("candidate-rule", "deny")),
        ),
    )
    with caplog.at_level(logging.INFO, logger="webhook.server.http"):
        answer = reviewed(state, CLAIM)
    metrics = answer["metrics"]
    assert answer["allowed"]
    found = {labels: value for labels, value in metrics.items() if labels[0] == "policy_decisions_total"}
    assert found == {
        ("policy_decisions_total", "noted", "audit"): 1,
        ("policy_decisions_total", "told", "warn"): 1,
        ("policy_decisions_total", "fine", "allow"): 1,
    }
    assert metrics["policy_candidate_differences_total", "candidate-rule", "denied"] == 1
    [record] = caplog.records
    assert record.getMessage() == "review answered with warnings"
    assert vars(record)["rules"] == ["noted", "told"]
    where = "spec.devices.requests[0].exactly.tolerations[0]"
    assert vars(record)["candidate"] == [f"{where}: denied by candidate-rule"]


class Broken(ReviewState):
    """ReviewState that cannot be looked at."""

    def context(self, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError


class Late(ReviewState):
    """ReviewState that is looked at when the time is over."""

    def context(self, *_: Any, **__: Any) -> Any:
        raise OutOfTime("policy")


FAULTS = [
    pytest.param(Broken(), 500, "fault", "not judged: internal error: the webhook's log has the traceback", id="fault"),
    pytest.param(
        Late(), 504, "deadline", "not judged: time ran out before policy: try again, or send less", id="deadline"
    ),
]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@pytest.mark.parametrize(("state", "code", "reason", "warning"), FAULTS)
def test_slice_that_we_fail_to_judge_passes_with_a_warning_and_is_counted(
    state: ReviewState, code: int, reason: str, warning: str, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    """H4."""
    answer = reviewed(state, make_review(make_slice(version=version)))
    assert (answer["allowed"], answer["warnings"]) == (True, [warning])
    assert answer["metrics"]["reviews_passed_unjudged_total", "resourceslices", reason] == 1
    assert answer["metrics"]["panics_total", "resourceslices"] == (reason == "fault")
    assert answer["metrics"]["reviews_total", "/validate", "resourceslices", "CREATE", str(code)] == 1
    [record] = caplog.records
    assert vars(record)["allowed"] is True


@pytest.mark.parametrize("manifest", [make_claim(), make_rule()], ids=["claim", "rule"])
@pytest.mark.parametrize(("state", "code", "reason", "_warning"), FAULTS)
def test_what_else_we_fail_to_judge_is_refused(
    state: ReviewState, code: int, reason: str, _warning: str, manifest: Any
) -> None:
    """H4: a fault that admits could be provoked."""
    answer = reviewed(state, make_review(manifest))
    assert (answer["allowed"], answer["status"]["code"]) == (False, code)
    counted = {key[1:]: value for key, value in answer["metrics"].items() if key[0] == "reviews_passed_unjudged_total"}
    assert set(counted.values()) == {0.0}, reason


def test_faults_and_slices_that_pass_are_counted_from_zero() -> None:
    """H4: Prometheus sees an increase only of a series that was there before."""
    answer = reviewed(ReviewState(), CLAIM)
    zeros = {key for key, value in answer["metrics"].items() if value == 0.0}
    assert zeros >= {("panics_total", resource) for resource in ("resourceslices", "devicetaintrules", "other")}
    assert zeros >= {("reviews_passed_unjudged_total", "resourceslices", why) for why in ("fault", "deadline")}


# --- findings -----------------------------------------------------------------------------------

LEFT_OUT = make_claim([make_toleration(key=None, operator="Equal", value=None)])
GUARDED = Policy(impact=ImpactSettings(limits=(ImpactLimits(pods=1),), break_glass_groups=("oncall",)))


def guarded(mode: PolicyMode) -> ReviewState:
    """Four nodes with a pod each, one of which may go."""
    sight = Sight(inventory_of(*fleet()))
    return ReviewState(PolicyStore(Judge(structs.replace(GUARDED, mode=mode))), sight=lambda: sight)


def ruled(mode: PolicyMode) -> ReviewState:
    """A policy that denies every toleration."""
    return ReviewState(PolicyStore(Judge(policy_of(mode=mode, rules=[make_entry("no-team", "deny")]))))


def found(answer: dict[str, Any]) -> dict[tuple[str, str], float]:
    """The findings that were counted, by rule and severity."""
    return {key[1:]: value for key, value in answer["metrics"].items() if key[0] == "findings_total" and value}


@pytest.mark.parametrize(
    ("state", "manifest", "rule"),
    [
        pytest.param(ruled, make_claim([make_toleration()]), "no-team", id="policy"),
        pytest.param(
            lambda mode: ReviewState(PolicyStore(Judge(Policy(mode=mode)))),
            LEFT_OUT,
            "documented",
            id="documented rule",
        ),
        pytest.param(guarded, tainting(), "impact", id="guard"),
    ],
)
def test_mode_warn_counts_what_mode_enforce_refuses(
    state: Callable[[PolicyMode], ReviewState], manifest: Any, rule: str, caplog: pytest.LogCaptureFixture
) -> None:
    """M2: requests and findings alike."""
    with caplog.at_level(logging.INFO, logger="webhook.server.http"):
        warned, refused, off = (
            reviewed(state(mode), make_review(manifest))
            for mode in (PolicyMode.WARN, PolicyMode.ENFORCE, PolicyMode.OFF)
        )
    resource = make_review(manifest)["request"]["resource"]["resource"]
    assert [answer["allowed"] for answer in (warned, refused, off)] == [True, False, True]
    assert [answer["metrics"]["reviews_turned_down_total", resource] for answer in (warned, refused, off)] == [1, 0, 0]
    assert found(warned)[rule, "would_deny"] == found(refused)[rule, "deny"] == 1
    assert (rule, "would_deny") not in found(refused)
    assert not {severity for _, severity in found(off)} & {"deny", "would_deny"}
    told, denied = caplog.records[:2]
    assert (rule in vars(told)["rules"], vars(told)["turnedDown"]) == (True, True)
    assert (rule in vars(denied)["rules"], "turnedDown" in vars(denied)) == (True, False)


GENERATED = {"resource.kubernetes.io/pod-claim-name": "gpu"}


@pytest.mark.parametrize("generated", ["warn", "enforce"])
def test_what_mode_enforce_would_let_pass_as_well_is_not_counted_as_refused(generated: str) -> None:
    """M2: a claim made from a template is only warned of unless generatedClaims says otherwise."""
    claim = make_claim([make_toleration()], meta=make_meta("c", namespace="ml", annotations=GENERATED))
    review = make_review(claim, user="system:serviceaccount:kube-system:resource-claim-controller")
    state = ReviewState(
        PolicyStore(Judge(policy_of(mode="warn", generatedClaims=generated, rules=[make_entry("no-team", "deny")])))
    )
    counted = reviewed(state, review)["metrics"]["reviews_turned_down_total", "resourceclaims"]
    assert counted == (generated == "enforce")


def test_broken_glass_has_a_log_line_and_a_number_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """M2."""
    with caplog.at_level(logging.INFO, logger="webhook.server.http"):
        answer = reviewed(guarded(PolicyMode.ENFORCE), make_review(tainting(), groups=["oncall"], user="jane"))
    assert answer["allowed"]
    assert found(answer)["break-glass", "warn"] == 1
    assert answer["metrics"]["reviews_turned_down_total", "devicetaintrules"] == 0
    review, glass = caplog.records
    assert (glass.levelname, glass.getMessage()) == (
        "WARNING",
        "impact limits bypassed by a member of a break-glass group",
    )
    assert (vars(glass)["user"], vars(glass)["object"]) == ("jane", "unhealthy-gpu")
    assert vars(glass)["impact"] == vars(review)["impact"]
    assert vars(glass)["impact"].endswith(" break-glass")


def test_findings_are_counted_under_rules_in_use_and_names_of_our_own_only() -> None:
    """M2."""
    policy = PolicyMetrics()
    policy.use(["known"], [])
    for name in ("known", "DT001", "impact", "gone", "DT1", "DT0001", "impactful"):
        policy.count_finding(name, "warn")
    policy.use([], [])
    counted = {
        (sample.labels["rule"], sample.labels["severity"]): sample.value
        for family in policy.collect()
        for sample in family.samples
        if sample.name == "device_taint_webhook_findings_total" and sample.value
    }
    assert counted == {("DT001", "warn"): 1, ("impact", "warn"): 1, ("other", "warn"): 4}


def test_mutation_that_fails_leaves_the_object_alone() -> None:
    state = ReviewState(PolicyStore(judge_of(NO_TEAM)))
    state.authors_unproved = lambda: 1 / 0  # type: ignore[assignment,return-value]
    answer = reviewed(state, CLAIM, path="/mutate")
    assert answer["allowed"]
    assert "patch" not in answer
    assert reviewed(state, CLAIM)["status"]["code"] == 500
