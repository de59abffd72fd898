"""Exported default tolerations on the real API server: the same as `/mutate` adds, on generated claims.

MAP_SEED and MAP_POLICIES choose other generated policies; both are printed.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.apiserver.fallbacks.defaulting import Defaulting, expected, lists_of, note_of
from tests.apiserver.test_cases import MINOR
from tests.apiserver.vap_requests import KNOWN, ClaimRequest, claim_policies, claim_requests
from tests.properties.policies import matches, tolerations
from webhook.api.taints import EXISTS, DeviceToleration
from webhook.policy.model import CLAIM_CONTROLLER, DefaultTolerations, Match, Policy
from webhook.policy.ports import Requester
from webhook.policy.vap.export import Coverage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.apiserver.policy.stage import Stage

Json = dict[str, Any]

WITH_MUTATING_POLICIES: Final = 36
pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.skipif(MINOR < WITH_MUTATING_POLICIES, reason="MutatingAdmissionPolicy is served since 1.36"),
]

POLICIES: Final = int(os.environ.get("MAP_POLICIES", "12"))
SEED: Final = int(os.environ.get("MAP_SEED", "1"))
REQUESTS: Final = 40
ENOUGH: Final = 10
GENERATED: Final = settings(
    max_examples=POLICIES,
    phases=[Phase.generate],
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def defaulting(ground: Stage) -> Iterator[Defaulting]:
    using = Defaulting(ground.client)
    yield using
    using.clear()


@st.composite
def _defaulting_policies(draw: st.DrawFn) -> Policy:
    """Those of the other tests, with entries that mostly overlap; half of them say what only the webhook knows."""
    policy = draw(claim_policies)
    plain = draw(st.booleans())
    entries = []
    for position in range(draw(st.integers(1, 4))):
        match = draw(st.one_of(st.just(Match()), matches(allowing=True)))
        if plain or position:
            match = structs.replace(match, drivers=())
        added = tuple(each for each in draw(st.lists(tolerations, min_size=1, max_size=3)) if each.key or each.operator)
        entries.append(DefaultTolerations(f"entry-{position}", added, structs.replace(match, tolerations=None)))
    return structs.replace(policy, default_tolerations=tuple(each for each in entries if each.tolerations))


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
def test_generated_claims_get_what_the_webhook_adds(
    ground: Stage, defaulting: Defaulting, capsys: pytest.CaptureFixture[str]
) -> None:
    counted: Counter[str] = Counter()
    faults: list[str] = []

    @seed(SEED)
    @GENERATED
    @given(_defaulting_policies(), st.lists(claim_requests, min_size=REQUESTS, max_size=REQUESTS))
    def judge(policy: Policy, requests: list[ClaimRequest]) -> None:
        defaulting.use(policy)
        whole = all(each.coverage is Coverage.FULL for each in defaulting.exported.entries)
        counted["whole policies"] += whole
        for each in requests:
            counted["claims"] += 1
            client = ground.client.acting_as(each.requester.username, each.requester.groups)
            reply = client.create(each.collection, each.manifest, dry_run=True)
            if not reply.ok:
                assert "MutatingAdmissionPolicy" not in reply.message, reply.message
                counted["not valid"] += 1
                continue
            wanted = expected(policy, each.manifest, each.requester, KNOWN)
            given_lists, own = lists_of(reply.object), lists_of(each.manifest)
            signed = each.requester.username == CLAIM_CONTROLLER and each.author is not None and not each.template
            counted["signed"] += signed
            counted["given"] += given_lists != own
            if signed:
                fault = given_lists != own
            elif whole:
                fault = (given_lists, note_of(reply.object)) != (lists_of(wanted), note_of(wanted))
                counted["same as the webhook's"] += given_lists != own
            else:  # the webhook adds the rest, and has no other word on what is there
                again = expected(policy, reply.object, each.requester, KNOWN)
                fault = [*map(_as_set, lists_of(again))] != [*map(_as_set, lists_of(wanted))]
                counted["in part"] += given_lists != own
            if fault:
                faults.append(f"{each}\n{given_lists}\n{note_of(reply.object)}\n{lists_of(wanted)}\n{policy}")

    judge()
    with capsys.disabled():
        print(f"\n{POLICIES} policies (seed {SEED}): {dict(counted)}")
    assert faults == [], faults[0]
    assert min(counted["same as the webhook's"], counted["in part"], counted["signed"]) >= ENOUGH


def _as_set(tolerations_of_one: list[Json]) -> list[str]:
    return sorted(map(str, tolerations_of_one))


# --- what was added stays -----------------------------------------------------------------------

ADDED: Final = DeviceToleration("a/x", EXISTS, "", "NoExecute", 300)
OWN: Final = {"key": "b/x", "operator": "Exists"}


@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_manifest_without_what_was_added_is_accepted_again(
    ground: Stage, defaulting: Defaulting, version: str, *, template: bool
) -> None:
    """In every shape: an exact request with a toleration of its own, and alternatives with and without."""
    defaulting.use(Policy(default_tolerations=(DefaultTolerations("added", (ADDED,)),)))
    device = {"deviceClassName": "gpu.example.com"}
    asked = (
        ("exactly", ({**device, "tolerations": [OWN]},)),
        ("firstAvailable", (device, {**device, "tolerations": [OWN]})),
    )
    request = ClaimRequest(Requester("jane"), "infer", version, template, asked, None)
    url = f"{request.collection}/generated"
    try:
        stored = ground.client.create(request.collection, request.manifest).object
        assert [len(each) for each in lists_of(stored)] == [2, 1, 2]
        for change in ({}, {"labels": {"changed": "yes"}}):
            manifest = request.manifest
            manifest["metadata"] |= {"resourceVersion": stored["metadata"]["resourceVersion"], **change}
            reply = ground.client.replace(url, manifest)
            assert reply.ok, reply.message
            assert reply.object["spec"] == stored["spec"]
            assert note_of(reply.object) == note_of(stored)
            stored = reply.object
        manifest = request.manifest
        asked_first = (manifest["spec"]["spec"] if template else manifest["spec"])["devices"]["requests"][0]
        asked_first.get("exactly", asked_first)["tolerations"] = [{**OWN, "key": "c/x"}]
        manifest["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        assert "immutable" in ground.client.replace(url, manifest).message, "another spec stays another one"
    finally:
        ground.client.delete(url)
