"""Generated objects, judged by a real API server and by us: never a disagreement.

GENERATED_SEED and GENERATED_OBJECTS choose other ones; both are printed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from tests.apiserver.changes import update
from tests.apiserver.comparison import Comparison, stored_objects
from tests.apiserver.facts import facts_of, visible_facts
from tests.apiserver.generator import OBJECTS, PLURALS, SEED, Case, creation
from tests.apiserver.stored import store
from tests.controlplane import arguments, versions
from tests.controlplane.assets import Assets
from tests.controlplane.plane import ControlPlane
from webhook.validation.releases import RELEASES

pytestmark = [pytest.mark.slow, pytest.mark.whole]

ENOUGH = 30
"""Objects in which each fact must occur."""


@pytest.fixture(scope="module")
def comparison(assets: Assets) -> Iterator[Comparison]:
    """A control plane of its own: its etcd holds objects that no server would have stored."""
    release = RELEASES[versions.minor(assets.version)]
    gates = {"DRAListTypeAttributes": True} if release.minor >= 36 else {"DRAPartitionableDevices": True}
    with ControlPlane(assets, feature_gates=gates) as plane:
        served = _served(assets.version)
        store(
            plane,
            plane.folder / arguments.ETCD_SOCKET,
            served["DeviceTaintRule"][0],
            served["ResourceSlice"][0],
            class_selectors=release.class_selectors,
        )
        yield Comparison(plane.client, release, stored_objects(plane.client, served))


def _served(version: str) -> Mapping[str, tuple[str, ...]]:
    """For each kind its versions; slices and claims have none in v1alpha3."""
    rules = versions.rule_versions(version)
    others = tuple(name for name in versions.api_versions(version) if name != "v1alpha3")
    return {kind: rules if kind == "DeviceTaintRule" else others for kind in PLURALS}


def _cases(comparison: Comparison, served: Mapping[str, tuple[str, ...]]) -> Iterator[Case]:
    release, rng = comparison.release, random.Random(SEED)
    # Rules are the only kind in v1alpha3; slices and rules have most to be wrong about.
    weights = {"DeviceTaintRule": 6, "ResourceSlice": 6, "ResourceClaim": 6, "ResourceClaimTemplate": 3}
    sorts = [
        (kind, version, updated)
        for kind, weight in weights.items()
        for version in served[kind]
        for updated in (False, True)
        for _ in range(weight + 4 * (version == "v1alpha3"))
    ]
    for _ in range(OBJECTS):
        kind, version, updated = rng.choice(sorts)
        if updated:
            yield update(rng, kind, version, comparison.stored[kind, version], release)
        else:
            yield creation(rng, kind, version, release)


def test_generated_objects_get_the_same_verdict_from_the_api_server_and_from_us(
    assets: Assets, comparison: Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    served = _served(assets.version)
    seen: Counter[str] = Counter()

    for case in _cases(comparison, served):
        verdict, old = comparison.judge(case)
        seen.update(facts_of(case, verdict, old))
    with capsys.disabled():
        _report(comparison, seen)
    assert comparison.disagreements == [], _one_of_each(comparison)
    assert comparison.mutations_differ == []
    assert comparison.accepted >= comparison.count / 3
    assert comparison.updates >= comparison.count / 4
    assert {version: n for version, n in comparison.versions.items() if n < comparison.count / 10} == {}
    assert set(comparison.versions) == set(versions.api_versions(assets.version))
    assert [fact for fact in visible_facts(comparison.release) if seen[fact] < ENOUGH] == []


def _one_of_each(comparison: Comparison) -> str:
    sorts = {each.sort: each for each in comparison.disagreements}
    return "\n".join(map(str, list(sorts.values())[:12]))


def _report(comparison: Comparison, seen: Counter[str]) -> None:
    print(
        f"\n{comparison.count} objects (seed {SEED}): {comparison.accepted} accepted, {comparison.updates} updates, "
        f"{comparison.undecodable} undecodable, {comparison.mutations} mutations compared, "
        f"{len(comparison.disagreements)} disagreements; by version {dict(sorted(comparison.versions.items()))}"
    )
    facts = sorted(seen, key=lambda fact: (fact.split("-")[0], int(fact.split("-")[1])))
    print("  objects per fact: " + "  ".join(f"{fact} {seen[fact]}" for fact in facts))
