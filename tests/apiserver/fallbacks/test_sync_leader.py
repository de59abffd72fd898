"""Who keeps admission policies in sync, and who only says what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.apiserver.accounts import asked_for
from tests.apiserver.fallbacks.syncing import API, FAST_SECONDS, POLICY, TAINTS, exported, plural, url_of
from tests.apiserver.test_cases import MINOR
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.apiserver.fallbacks.syncing import Syncing

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.skipif(
        MINOR < 37, reason="rules have another version, and policies that add are not served everywhere"
    ),
]

STATES: Final = "device_taint_webhook_fallback_objects"


@pytest.fixture
def sync(syncing: Syncing) -> Iterator[Syncing]:
    syncing.write(POLICY)
    yield syncing
    syncing.clear()


def test_next_leader_goes_on_where_the_last_one_stopped(sync: Syncing) -> None:
    (first, _), (second, _) = sync.process("apply"), sync.process("apply")
    with first, second:
        wait_until(lambda: sync.equals(POLICY), "one of them has written")
        wait_until(lambda: first.lines("ready") != [] and second.lines("ready") != [], "both are up")
        leader, other = (first, second) if first.lines("working") else (second, first)
        assert other.lines("admission policies written") == []
        assert leader.process.stop() == 0
        other.wait_working()
        sync.use(TAINTS)
        wait_until(lambda: other.lines("admission policies written") != [], "its log says so", seconds=FAST_SECONDS)


def test_report_writes_nothing_and_says_what_differs(sync: Syncing) -> None:
    for each in exported(POLICY):
        assert sync.client.create(path(API, plural(each["kind"])), each).ok
    told = len(sync.events("AdmissionPoliciesDiffer"))
    process, token = sync.process("report")
    with process:
        process.wait_working()
        count = len(exported(POLICY))
        wait_until(lambda: process.metric(STATES).get('{state="in_sync"}') == count, "the same", seconds=FAST_SECONDS)
        assert sync.client.delete(url_of("ValidatingAdmissionPolicyBinding", "tolerations")).ok
        wait_until(lambda: process.metric(STATES)['{state="missing"}'] == 1, "reported", seconds=FAST_SECONDS)
        wait_until(lambda: len(sync.events("AdmissionPoliciesDiffer")) > told, "an Event", seconds=FAST_SECONDS)
        assert process.lines("admission policies differ from the policy")
    verbs = {right.verb for right in asked_for(token.events()) if right.group == "admissionregistration.k8s.io"}
    assert verbs == {"list", "watch"}
