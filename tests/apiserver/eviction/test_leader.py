"""Two replicas on one real API server: a leader that is paused for longer than its lease has lost it for good.

Each replica is a user of its own, so the audit log says which of them asked for what.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

import pytest

from tests.apiserver.evicting import EvictProcess, Ward
from tests.apiserver.eviction.bench import now
from tests.apiserver.eviction.play import NO_CEILING
from tests.apiserver.eviction.witness import AUDIT_POLICY, Deletion, Witness
from tests.apiserver.policy.stage import RestartablePlane
from tests.controlplane import versions
from tests.controlplane.assets import Assets
from tests.controlplane.processes import wait_until
from webhook.cluster.leader import LeaderSettings

pytestmark = [pytest.mark.slow, pytest.mark.whole]

USERS: Final = ("replica-a", "replica-b")
PODS: Final = 60
RATE: Final = 2
"""Pods a second: the first leader is paused in the middle of them, and the second one has some left."""
POLICY: Final = f"""
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
inTreeEvictor: absent
eviction:
- {{rate: {RATE}, burst: 1, perOwnerUnavailable: null}}
{NO_CEILING}"""
LEASE_SECONDS: Final = LeaderSettings(namespace="default", name="evict").lease_seconds
WRITES: Final = {"level": "Metadata", "users": [*USERS], "verbs": ["create", "update", "patch", "delete"]}
LEASES: Final = "leases"


class Replica(NamedTuple):
    """What one of them did, as on record."""

    user: str
    deletions: list[Deletion]
    written_at: Mapping[str, list[datetime]]
    """When it sent requests that write, by resource."""
    leased_at: list[datetime]
    """Each time that it created or updated the lease."""
    code: int | None
    errors: list[str]
    """Why it ended, if it did."""

    @property
    def evicted(self) -> set[str]:
        return {each.uid for each in self.deletions if each.code < 300}


class Course(NamedTuple):
    paused: Replica
    successor: Replica
    continued_at: datetime


@pytest.fixture(scope="module")
def course(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Course:
    if versions.minor(assets.version) < 37:
        pytest.skip("rules have another version, or no status")
    audit = tmp_path_factory.mktemp("leader") / "audit-policy.yaml"
    audit.write_text(json.dumps({**AUDIT_POLICY, "rules": [*AUDIT_POLICY["rules"][:-1], WRITES]}))  # JSON is YAML
    plane = RestartablePlane(assets, audit=True, api_server_arguments=[f"--audit-policy-file={audit}"])
    with plane, _replica(plane, USERS[0]) as first, _replica(plane, USERS[1]) as second, Ward(plane.client) as ward:
        return _play(plane, {USERS[0]: first, USERS[1]: second}, ward)


def _replica(plane: RestartablePlane, user: str) -> EvictProcess:
    lease = ("--leader-elect", "--leader-elect-lease=default/evict")
    kubeconfig = plane.kubeconfig_of(user, ["system:masters"])
    return EvictProcess(plane, "replacement", "--in-tree=absent", *lease, policy=POLICY, kubeconfig=kubeconfig)


def _play(plane: RestartablePlane, processes: Mapping[str, EvictProcess], ward: Ward) -> Course:
    witnesses = {user: Witness(plane.folder / "audit.log", user) for user in processes}
    for number in range(PODS):
        ward.admit(f"pod-{number}")
    wait_until(lambda: all(each.lines("ready") for each in processes.values()), "both are ready")
    wait_until(lambda: any(each.lines("working") for each in processes.values()), "one leads")
    [leader] = [user for user, each in processes.items() if each.lines("working")]
    [standby] = [user for user in processes if user != leader]
    paused = processes[leader].process
    rule = ward.taint()
    wait_until(lambda: len(witnesses[leader].evicted()) >= 3, "the leader evicts", every=0.05)
    wait_until(lambda: bool(ward.condition(rule)), "the leader says so", every=0.05)
    os.kill(paused.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: bool(witnesses[standby].evicted()), "the standby evicts", every=0.05)
        continued_at = now()
    finally:
        os.kill(paused.pid, signal.SIGCONT)
    wait_until(lambda: paused.code is not None, "the paused one ends")
    wait_until(lambda: not ward.present(), "every pod is evicted", seconds=300, every=0.3)
    # Others see that a pod is gone before the audit log has who made it go.
    wait_until(lambda: sum(len(each.evicted()) for each in witnesses.values()) >= PODS, "all are on record", every=0.3)

    def record(user: str) -> Replica:
        errors = [line["error"] for line in processes[user].lines("stopped by an error")]
        code = processes[user].process.code
        written = _written_at(plane, user)
        return Replica(user, witnesses[user].deletions(), written, _leased_at(plane, user), code, errors)

    return Course(record(leader), record(standby), continued_at)


def _written_at(plane: RestartablePlane, user: str) -> dict[str, list[datetime]]:
    written: dict[str, list[datetime]] = {}
    for event in plane.audit_events():
        if event["user"]["username"] == user and event["verb"] in WRITES["verbs"]:
            about = event["objectRef"]
            what = "/".join(part for part in (about["resource"], about.get("subresource")) if part)
            written.setdefault(what, []).append(datetime.fromisoformat(event["requestReceivedTimestamp"]))
    return written


def _leased_at(plane: RestartablePlane, user: str) -> list[datetime]:
    return [
        datetime.fromisoformat(event["requestReceivedTimestamp"])
        for event in plane.audit_events()
        if event["user"]["username"] == user
        and event["objectRef"]["resource"] == LEASES
        and event["verb"] in {"create", "update"}
        and event["responseStatus"]["code"] < 300
    ]


def test_paused_leader_evicts_nothing_once_it_is_continued(course: Course) -> None:
    assert [each for each in course.paused.deletions if each.at >= course.continued_at] == []


def test_paused_leader_never_writes_the_lease_again(course: Course) -> None:
    assert max(course.paused.leased_at) < course.continued_at


def test_paused_leader_writes_nothing_after_the_next_one_has_the_lease(course: Course) -> None:
    """Neither conditions nor Events, nor anything else; what its successor writes shows that all of it is on record.

    An Event that was about to be sent when the process was paused may still be sent when it is continued.
    """
    acquired_at = min(course.successor.leased_at)
    late = {what: [at for at in times if at >= acquired_at] for what, times in course.paused.written_at.items()}
    assert len(late.pop("events", [])) <= 1
    assert {what: times for what, times in late.items() if times} == {}
    written = {what for what, times in course.successor.written_at.items() if max(times) >= acquired_at}
    assert written >= {"pods/eviction", "devicetaintrules/status", "events", LEASES}
    assert course.paused.written_at.keys() >= {"pods/eviction", "devicetaintrules/status", LEASES}


def test_paused_leader_ends_and_says_why(course: Course) -> None:
    assert course.paused.code == 1
    [error] = course.paused.errors
    assert "could not renew default/evict" in error


def test_standby_takes_over_when_the_lease_has_expired_and_not_before(course: Course) -> None:
    assert (min(course.successor.leased_at) - max(course.paused.leased_at)).total_seconds() >= LEASE_SECONDS


def test_each_pod_is_evicted_by_one_of_the_two(course: Course) -> None:
    paused, successor = course.paused.evicted, course.successor.evicted
    assert paused & successor == set()
    assert len(paused | successor) == PODS
