"""Windows and `/not-before` on a real API server: who leaves, and when, by its audit log."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

from tests.apiserver.evicting import EvictProcess, Ward
from tests.apiserver.eviction.bench import SOON_SECONDS, now
from tests.apiserver.eviction.ledger import Deceived
from tests.apiserver.eviction.play import NO_CEILING, OUR_USER
from tests.apiserver.eviction.witness import AUDIT_POLICY, Witness
from tests.apiserver.planes import own_plane
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until
from webhook.api.meta import format_time
from webhook.api.rules import NOT_BEFORE

pytestmark = pytest.mark.slow

PODS: Final = 6
IN_THE_WINDOW: Final = 2
"""The next one would go 45 s later, when the window is almost over, and the last ones in the next window."""
LORD_HOWE: Final = ZoneInfo("Australia/Lord_Howe")
BERLIN: Final = ZoneInfo("Europe/Berlin")
LATER: Final = timedelta(seconds=15)
WINDOW: Final = timedelta(minutes=1)
POLICY: Final = """
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
inTreeEvictor: absent
eviction:
- namespaces: {{names: ["{soon}"]}}
  windows: [{{schedule: "{opens:%M} {opens:%H} * * *", duration: 1m, zone: Australia/Lord_Howe}}]
  perOwnerUnavailable: null
  rate: 0.022
  burst: 2
- namespaces: {{names: ["{closed}"]}}
  windows: [{{schedule: "{elsewhere:%M} {elsewhere:%H} * * *", duration: 1h, zone: UTC}}]
- namespaces: {{names: ["{skipped}"]}}
  action: skip
- {{perOwnerUnavailable: null, windows: [{{schedule: "* * * * *", duration: 1m}}]}}
"""

CHANGING: Final = """
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
inTreeEvictor: absent
eviction:
- namespaces: {{names: ["{skipped}"]}}
  windows: [{{schedule: "30 2 * * *", duration: 1m, zone: Europe/Berlin}}]
  perOwnerUnavailable: null
  rate: 100
  burst: 100
- namespaces: {{names: ["{twice}"]}}
  windows: [{{schedule: "45 1 * * *", duration: 1m, zone: Australia/Lord_Howe}}]
  perOwnerUnavailable: null
  rate: 100
  burst: 100
- {{}}
"""
"""Half past two is skipped in spring; a quarter to two comes twice in autumn, half an hour apart."""


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, which keeps an audit log."""
    with own_plane(request, since=37, audit_policy=AUDIT_POLICY) as plane:
        yield plane


def evictions(witness: Witness, ward: Ward) -> list[datetime]:
    """When pods of the ward were evicted."""
    return sorted(each.at for each in witness.deletions() if each.pod[0] == ward.name and each.code < 300)


@pytest.mark.whole
def test_pods_leave_in_windows_alone(plane: ControlPlane) -> None:
    with ExitStack() as stack:
        wards = [stack.enter_context(Ward(plane.client)) for _ in range(4)]
        for ward in wards:
            for number in range(PODS):
                ward.admit(f"pod-{number}")
        _check(plane, *wards)


def _check(plane: ControlPlane, soon: Ward, closed: Ward, skipped: Ward, dated: Ward) -> None:
    witness = Witness(plane.folder / "audit.log", OUR_USER)
    # The beginning of a minute that is far enough away to start the worker before it.
    opens = (now() + timedelta(seconds=100)).replace(second=0, microsecond=0)
    wards = {"soon": soon.name, "closed": closed.name, "skipped": skipped.name}
    policy = POLICY.format(opens=opens.astimezone(LORD_HOWE), elsewhere=opens + timedelta(hours=6), **wards)
    kubeconfig = plane.kubeconfig_of(OUR_USER, ["system:masters"])
    flags = ("replacement", "--in-tree=absent")
    with EvictProcess(plane, *flags, policy=policy + NO_CEILING, kubeconfig=kubeconfig) as process:
        process.wait_working()
        rules = {ward.name: ward.taint() for ward in (soon, closed, skipped)}
        starts = now() + LATER
        rules[dated.name] = dated.taint(annotations={NOT_BEFORE: format_time(starts)})
        _wait_told(soon, rules, f"{PODS} waiting for a window that opens at {opens.astimezone(LORD_HOWE).isoformat()}")
        assert evictions(witness, soon) == []
        waiting = "device_taint_webhook_eviction_pods_waiting"
        # those of `closed` may still be on their way when those of `soon` are told
        wait_until(lambda: process.metric(waiting).get('{why="window"}') == 2 * PODS, "two wards wait for windows")
        wait_until(lambda: len(evictions(witness, dated)) == PODS, "those with a date", seconds=90, every=0.2)
        assert evictions(witness, dated)[0] >= starts.replace(microsecond=0)
        wait_until(lambda: len(evictions(witness, soon)) == IN_THE_WINDOW, "the window opens", seconds=90, every=0.2)
        assert evictions(witness, soon)[0] >= opens
        assert evictions(witness, soon)[-1] <= opens + timedelta(seconds=SOON_SECONDS)
        _wait_told(closed, rules, f"{PODS} waiting for a window that opens at ")
        _wait_told(skipped, rules, f"{PODS} skipped (pods of DaemonSets, mirror pods, action: skip)")
        while now() < opens + timedelta(seconds=75):
            time.sleep(1)
        _wait_told(soon, rules, " waiting for a window that opens at ")
    gone = evictions(witness, soon)
    assert all(opens <= each < opens + timedelta(seconds=60) for each in gone)
    assert evictions(witness, closed) == []
    assert evictions(witness, skipped) == []
    assert len(soon.present()) == PODS - len(gone)


def test_window_whose_start_clocks_skip_opens_after_the_gap(plane: ControlPlane) -> None:
    """ADR 19; the worker's clock is set to shortly before clocks change in Berlin."""
    opens = _next_change(BERLIN, forward=True)
    with Ward(plane.client) as ward, _changing(plane, skipped=ward) as worker:
        worker.set_clock(opens - timedelta(minutes=10))
        rule = ward.taint()
        _wait_told(ward, {ward.name: rule}, f"that opens at {opens.astimezone(BERLIN).isoformat()}")
        worker.set_clock(opens - timedelta(seconds=10))
        left = worker.wait_left(ward)
    assert all(opens <= each < opens + WINDOW for each in left)


@pytest.mark.whole
def test_window_whose_start_comes_twice_opens_once_and_plans_wait_for_the_next_day(plane: ControlPlane) -> None:
    """ADR 19; the worker's clock is set to between the two, when clocks change on Lord Howe Island."""
    change = _next_change(LORD_HOWE, forward=False)
    again = change + timedelta(minutes=15)
    opens = (again.astimezone(LORD_HOWE) + timedelta(days=1)).astimezone(UTC)
    assert f"{again.astimezone(LORD_HOWE):%H:%M}" == f"{opens.astimezone(LORD_HOWE):%H:%M}" == "01:45"
    with Ward(plane.client) as ward, _changing(plane, twice=ward) as worker:
        worker.set_clock(again - timedelta(seconds=40))
        rule = ward.taint()
        text = f"{PODS} waiting for a window that opens at {opens.astimezone(LORD_HOWE).isoformat()}"
        _wait_told(ward, {ward.name: rule}, text)
        while worker.now() < again + timedelta(seconds=10):
            time.sleep(0.5)
        assert evictions(worker.witness, ward) == []
        worker.set_clock(opens - timedelta(seconds=10))
        left = worker.wait_left(ward)
    assert all(opens <= each < opens + WINDOW for each in left)


class Clocked(Deceived):
    """`evict` by policy CHANGING, whose clock can be set; a ward that is not named has no pods."""

    def __init__(self, plane: ControlPlane, wards: Mapping[str, Ward]) -> None:
        names = {name: wards[name].name if name in wards else "unused" for name in ("skipped", "twice")}
        super().__init__(plane, policy=CHANGING.format(**names) + NO_CEILING)
        self.witness = Witness(plane.folder / "audit.log", OUR_USER)
        self._ahead = timedelta()

    def set_clock(self, time: datetime) -> None:
        """Sets the clock of the process."""
        self._ahead = time - now()
        self.shift(self._ahead.total_seconds())

    def now(self) -> datetime:
        """What the process takes for now."""
        return now() + self._ahead

    def wait_left(self, ward: Ward) -> list[datetime]:
        """When the pods of the ward were evicted, by the clock of the process, once all of them were."""
        wait_until(lambda: len(evictions(self.witness, ward)) == PODS, "all are evicted", seconds=180, every=0.2)
        return [each + self._ahead for each in evictions(self.witness, ward)]


@contextmanager
def _changing(plane: ControlPlane, **wards: Ward) -> Iterator[Clocked]:
    """A worker, and pods in the wards, which are no longer there when the worker has ended."""
    for ward in wards.values():
        for number in range(PODS):
            ward.admit(f"pod-{number}")
    with Clocked(plane, wards) as process:
        process.wait_working()
        yield process


def _next_change(zone: ZoneInfo, *, forward: bool) -> datetime:
    """When clocks change next in that direction, at least two days from now."""
    step = timedelta(minutes=30)
    at = now().replace(minute=0, second=0, microsecond=0) + timedelta(days=2)
    while True:
        gained = _offset(at + step, zone) - _offset(at, zone)
        at += step
        if gained and (gained > timedelta()) is forward:
            return at


def _offset(at: datetime, zone: ZoneInfo) -> timedelta:
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _wait_told(ward: Ward, rules: dict[str, str], text: str) -> None:
    """The condition of the ward's rule says so."""
    said: dict[str, Any] = {}

    def told() -> bool:
        said.update(ward.condition(rules[ward.name]))
        return text in said.get("message", "")

    try:
        wait_until(told, text, seconds=2 * SOON_SECONDS, every=0.5)
    except Exception as error:
        error.add_note(f"it says {said}")
        raise
