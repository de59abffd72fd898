"""What a request to the admission port leads to; how its connection fares is in tests/https."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import encoded, make_claim, make_review, make_rule, make_slice
from tests.https.serving import post
from tests.unit.policy.documents import judge_of, make_entry
from tests.unit.server.asking import CLAIM, DRIVERS, NO_TEAM, ONLY_GPUS, Cluster, ask, reviewed
from webhook.admission.context import OutOfTime
from webhook.api.field import Path, required
from webhook.policy.decide import PolicyStore
from webhook.policy.document import Loaded
from webhook.policy.match import KnownNames
from webhook.server.http import Reviews, check_names, timeout_seconds
from webhook.server.responses import RequestRefused
from webhook.server.settings import ReviewSettings
from webhook.server.state import Misses, ReviewState
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable

API_SERVERS = frozenset({"kube-apiserver", "api.example.com"})
SHOWN = "'" + "n" * 64 + "', '\\n', 'c'"


def certificate(*common_names: str, dns: tuple[str, ...] = (), address: str = "") -> dict[str, Any]:
    """A certificate as `ssl` gives it."""
    subject = ((("organizationName", "kube-apiserver"),), *[(("commonName", name),) for name in common_names])
    alternatives = (*[("DNS", name) for name in dns], *([("IP Address", address)] if address else []))
    return {"subject": subject, "subjectAltName": alternatives, "version": 3}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        pytest.param(certificate("kube-apiserver"), None, id="by its common name"),
        pytest.param(certificate("x", dns=("y", "api.example.com")), None, id="by one of its DNS names"),
        pytest.param({"subject": (), "subjectAltName": (("DNS", "kube-apiserver"),)}, None, id="without a subject"),
        pytest.param(certificate("system:node:node-1"), "'system:node:node-1'", id="of a kubelet"),
        pytest.param(certificate("Kube-APIserver"), "'Kube-APIserver'", id="in other capitals"),
        pytest.param(certificate("kube-apiserver.example"), "'kube-apiserver.example'", id="that begins alike"),
        pytest.param(certificate("kube-apiserver\x00.a"), "'kube-apiserver\\x00.a'", id="with a zero byte after it"),
        pytest.param(certificate("x", dns=("*.example.com",)), "'x', '*.example.com'", id="with a wildcard"),
        pytest.param(certificate("x", address="kube-apiserver"), "'x'", id="in another kind of name"),
        pytest.param(certificate(), "no name", id="in the organization only"),
        pytest.param({}, "no name", id="without names"),
        pytest.param(None, "no name", id="that is not there"),
        pytest.param(certificate("n" * 1000, "\n", "c", "d"), SHOWN, id="with much that is not repeated"),
    ],
)
def test_certificate_is_let_in_by_its_names(given: dict[str, Any] | None, shown: str | None) -> None:
    """R2: with a CA of the whole cluster, every kubelet has a certificate."""
    if shown is None:
        check_names(given, API_SERVERS)
        return
    with pytest.raises(RequestRefused) as refused:
        check_names(given, API_SERVERS)
    told = f"the client certificate is for {shown}, which is not in --client-names: only API servers send reviews here"
    assert (refused.value.code, str(refused.value)) == (403, told)


class Late(ReviewState):
    """ReviewState that is looked at when the time is over, and notes how much there was."""

    noted: list[float]

    def context(self, *arguments: Any, **_: Any) -> Any:
        self.noted = [arguments[1].seconds_left]
        raise OutOfTime("policy")


@pytest.mark.parametrize(
    ("target", "seconds"),
    [
        ("/validate", 8.0),
        ("/validate?timeout=5s", 4.0),
        ("/validate?timeout=1h", 24.0),
        ("/mutate?dryRun=x&timeout=5s&timeout=9s", 4.0),
        ("/mutate?timeouts=5s", 8.0),
    ],
)
def test_target_leads_to_a_route_with_four_fifths_of_the_callers_patience(target: str, seconds: float) -> None:
    state = Late()
    reviews = Reviews(ReviewSettings(), Metrics(version="0", resources=()), state)
    reviews._clock = lambda: 7.0
    _, answer = asyncio.run(ask(reviews, post(encoded(CLAIM), target)))
    assert (state.noted, answer["response"]["allowed"]) == ([seconds], target.startswith("/mutate"))


@pytest.mark.parametrize("start", ["POST /", "POST /Validate", "POST /validate/", "POST //validate", "OPTIONS *"])
def test_other_targets_lead_nowhere(start: str) -> None:
    reviews = Reviews(ReviewSettings(), Metrics(version="0", resources=()))
    request = post(encoded(CLAIM), "target").replace(b"POST target", start.encode())
    status, answer = asyncio.run(ask(reviews, request))
    assert (status, answer["message"]) == (404, "no such path: send reviews to /validate or /mutate")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10.0),
        ("1m30s", 90.0),
        ("1h0m0s", 3600.0),
        ("1.5s", 1.5),
        ("500ms", 0.5),
        ("1m0.25s", 60.25),
        ("7µs", 7e-6),
        ("0s", None),
        ("", None),
        ("10", None),
        ("s", None),
        ("-1s", None),
        ("1s ", None),
        ("٣s", None),
        ("9" * 33 + "s", None),
    ],
)
def test_timeouts_are_read_as_go_writes_them(text: str, seconds: float | None) -> None:
    assert timeout_seconds(f"a=b&timeout={text}") == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("review", "known", "found", "rules", "allowed", "asked"),
    [
        pytest.param(CLAIM, {}, ({"ml": {}}, DRIVERS), (NO_TEAM, ONLY_GPUS), True, 1, id="found, so decided again"),
        pytest.param(CLAIM, {}, (), (NO_TEAM,), False, 1, id="unknown to all, asked for once"),
        pytest.param(CLAIM, {"ml": {}}, (), (NO_TEAM, ONLY_GPUS), True, 0, id="known before"),
        pytest.param(CLAIM, {}, (), (), True, 0, id="no rule needs them"),
        pytest.param(make_review(make_rule()), {}, (), (), True, 0, id="no rule needs them for a taint rule"),
        pytest.param(make_review(make_rule()), {}, (), (NO_TEAM,), True, 0, id="a taint rule has none"),
    ],
)
def test_names_are_asked_for_where_a_rule_needs_them(
    review: Any, known: Any, found: tuple[Any, ...], rules: Any, *, allowed: bool, asked: int
) -> None:
    cluster = Cluster(*found)
    if known:
        cluster.state.names = KnownNames(known, DRIVERS)
    if rules:
        cluster.state.policies.use(judge_of(*rules, default="deny" if ONLY_GPUS in rules else "allow"))
    answer = reviewed(cluster.state, review)
    assert answer["allowed"] is allowed
    assert allowed or "no-team" in answer["status"]["message"]
    assert cluster.asked == [({"ml"}, {"gpu.example.com"}, 0.5)] * asked


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
def test_documents_are_read_beside_the_loop_with_the_reviews_own_budget(*, look_up: bool) -> None:
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


class Broken(ReviewState):
    """ReviewState that cannot be looked at."""

    def context(self, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError


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


def test_mutation_that_fails_leaves_the_object_alone() -> None:
    state = ReviewState(PolicyStore(judge_of(NO_TEAM)))
    state.authors_unproved = lambda: 1 / 0  # type: ignore[assignment,return-value]
    answer = reviewed(state, CLAIM, path="/mutate")
    assert answer["allowed"]
    assert "patch" not in answer
    assert reviewed(state, CLAIM)["status"]["code"] == 500
