"""Objects that are broken anywhere: what a real API server refuses in them, check refuses, with the same errors (A1).

GENERATED_SEED and GENERATED_OBJECTS choose other ones; both are printed, and so is every sort of difference with its
reason. The rules are those of the newest release, so that is the one asked. All gates of Dynamic Resource Allocation
are on there: a server drops what belongs to a gate that is off, and nothing is said of it then.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import islice

import pytest

from tests.apiserver.breakage import broken_cases, has_selectors, repeats_owners
from tests.apiserver.comparison import Disagreement, Verdict, request_of, their_verdict
from tests.apiserver.generator import NAMESPACE, NAMESPACED, OBJECTS, PLURALS, SEED, Case
from tests.builders import make_context
from tests.controlplane import versions
from tests.controlplane.assets import Assets
from tests.controlplane.client import Client, Reply, path
from tests.controlplane.plane import ControlPlane
from webhook.admission.context import AdmissionContext
from webhook.api.field import Severity
from webhook.commands.shared.manifest_review import whole_verdict_on
from webhook.policy.decide import Judge
from webhook.policy.model import Policy, PolicyMode
from webhook.validation.releases import NEWEST, RELEASES

pytestmark = [pytest.mark.slow, pytest.mark.whole]

BATCH = 500
THREADS = 4
KNOWN_NODE = "node-1"
GATES = (
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
    "DRAListTypeAttributes",
    "DRANodeAllocatableResources",
    "DRAOptionalNodeOperations",
    "DRAPartitionableDevicesType",
    "DRAResourcePoolStatus",
    "NodeDeclaredFeatures",
)
"""Off by default in 1.37; the first six bring fields, the others are what they need."""

CLUSTER = "asks for nodes that the cluster does not have: no file says which it has"
_NODES_WORDS = ("not found for device", "failed to create node selector", "does not support DRANode")
OWNERS = "owner references listed twice: the server drops the second before it counts positions"
WITH_SELECTORS = "with CEL selectors"
PLACES_SEEN = 120
"""Different pairs of a field and a sort of error that the server's answers must cover."""


@pytest.fixture(scope="module")
def everything_on(assets: Assets) -> Iterator[ControlPlane]:
    """A control plane with all gates, where claims may ask for admin access."""
    if versions.minor(assets.version) != NEWEST.minor:
        pytest.skip(f"the rules are those of 1.{NEWEST.minor}, this is {assets.version}")
    with ControlPlane(assets, feature_gates=dict.fromkeys(GATES, True)) as plane:
        label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        assert plane.client.patch("/api/v1/namespaces/default", label).ok
        plane.add_node(KNOWN_NODE)
        features = {"status": {"declaredFeatures": ["DRANodeAllocatableResources"]}}
        assert plane.client.patch(f"/api/v1/nodes/{KNOWN_NODE}/status", features).ok
        yield plane


def _served(version: str) -> dict[str, tuple[str, ...]]:
    rules = versions.rule_versions(version)
    others = tuple(name for name in versions.api_versions(version) if name != "v1alpha3")
    return {kind: rules if kind == "DeviceTaintRule" else others for kind in PLURALS}


def _sent(client: Client, case: Case) -> Reply:
    """The case as a dry run, without a warning for each unknown field: there may be hundreds."""
    namespace = NAMESPACE if case.kind in NAMESPACED else ""
    url = path(case.object["apiVersion"], case.plural, namespace=namespace)
    return client.create(url, case.object, dry_run=True, field_validation="Ignore")


def _answered(client: Client, generated: Iterator[Case]) -> Iterator[tuple[list[Case], list[Reply]]]:
    """Batches with what the server says of them; the next one is on its way while one is judged."""

    def answers(cases: list[Case]) -> list[Reply]:
        return client.each(lambda case: _sent(client, case), cases, threads=THREADS)

    with ThreadPoolExecutor(1) as ahead:
        cases = list(islice(generated, BATCH))
        waiting = ahead.submit(answers, cases)
        while cases:
            following = list(islice(generated, BATCH))
            replies, waiting = waiting.result(), ahead.submit(answers, following)
            yield cases, replies
            cases = following


def _our_verdict(case: Case, context: AdmissionContext) -> Verdict:
    """What check says of it, without the rules that only we have."""
    verdict = whole_verdict_on(request_of(case, None), context)
    refused = [finding.error for finding in verdict.findings if finding.severity is Severity.DENY]
    errors = frozenset((error.field, error.type.value) for error in refused)
    undecodable = verdict.decision.problem is not None or any(kind == "FieldValueTypeInvalid" for _, kind in errors)
    return Verdict(not errors and not undecodable, None if undecodable else errors)


def _reason_to_differ(case: Case, ours: Verdict, theirs: Verdict, reply: Reply) -> str | None:
    """Why a difference is known; None if it is not."""
    if any(words in reply.message for words in _NODES_WORDS):
        return CLUSTER
    if ours.errors is None or theirs.errors is None:
        return None
    differ = ours.errors ^ theirs.errors
    if repeats_owners(case.object) and all(field.startswith("metadata.ownerReferences[") for field, _ in differ):
        return OWNERS
    return None


def test_check_refuses_what_the_api_server_refuses_anywhere_in_an_object(
    everything_on: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = Judge(Policy(documented_rules=PolicyMode.OFF))
    now = datetime.now(UTC)  # noqa: TID251 -- a server's clock cannot be passed in
    context = make_context(now=now, release=RELEASES[NEWEST.minor], judge=judge)
    counts: Counter[str] = Counter()
    places: set[tuple[str, str]] = set()
    unexplained: dict[tuple[object, ...], Disagreement] = {}
    client = everything_on.client
    generated = broken_cases(SEED, _served(everything_on.server_version), OBJECTS)
    for cases, replies in _answered(client, generated):
        for case, reply in zip(cases, replies, strict=True):
            ours, theirs = _our_verdict(case, context), their_verdict(reply)
            counts["accepted"] += theirs.allowed
            counts[WITH_SELECTORS] += has_selectors(case.object)
            counts["undecodable"] += reply.code == 400
            places.update((re.sub(r"\[[^\]]*\]", "[]", field), kind) for field, kind in theirs.errors or ())
            if ours == theirs:
                continue
            reason = _reason_to_differ(case, ours, theirs, reply)
            counts[reason or "unexplained"] += 1
            if reason is None:
                found = Disagreement(case, ours, theirs, reply.message)
                unexplained[found.sort] = found
    with capsys.disabled():
        print(f"\n{OBJECTS} objects (seed {SEED}), errors at {len(places)} places of the API")
        for name, count in counts.most_common():
            print(f"  {count:6} {name}")
    assert unexplained == {}, "\n".join(map(str, list(unexplained.values())[:12]))
    assert counts["accepted"] >= OBJECTS / 5
    assert counts["undecodable"] >= OBJECTS / 50
    assert counts[CLUSTER] + counts[OWNERS] <= OBJECTS / 10
    assert counts[WITH_SELECTORS] >= OBJECTS / 10
    assert len(places) >= min(PLACES_SEEN, OBJECTS / 50)
