"""The worker through minutes of random changes on a real API server: afterwards it holds no more than a fresh process.

Everything that evictions depend on comes, changes and goes, and the API server is restarted twice. SOAK_MINUTES says
for how long; SOAK_SEED repeats a sequence. Which pods went comes from the audit log, what the worker keeps from itself.

The invariants: no pod goes twice; none goes that no taint hits, or that is held; each is looked at as its request is
written, and goes by that look; whatever is due has gone in the end; memory and indexes are those of a fresh process.
The story of each eviction is in a file, whose name is printed; a failure prints its own.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.apiserver.evicting import EvictProcess
from tests.apiserver.eviction.bench import now
from tests.apiserver.eviction.churn import POOLS_MOST, Churn
from tests.apiserver.eviction.play import OUR_USER
from tests.apiserver.eviction.ranks import GATES, SERVED
from tests.apiserver.eviction.sized import ASKS, LOOKS, SIZES
from tests.apiserver.eviction.soak_model import DEVICES, LENIENT, STUCK_SECONDS
from tests.apiserver.eviction.witness import AUDIT_POLICY, Deletion, Witness
from tests.apiserver.policy.stage import RestartablePlane
from tests.controlplane import versions
from tests.controlplane.assets import Assets
from tests.controlplane.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.whole]

Json = dict[str, Any]

MINUTES: Final = float(os.environ.get("SOAK_MINUTES", "5"))
RESTARTS: Final = 2
PAUSE_SECONDS: Final = 0.25
"""Between two changes, so that other tests on the same machine go on."""
NOTICED_SECONDS: Final = 5.0
"""After a change, for the worker to hear of it."""
LATE_SECONDS: Final = 20.0
"""After this a pod that is due should have gone: retries wait for up to 10 s."""
SETTLED_SECONDS: Final = 75.0
"""Until no minute, no wait for a stuck pod and no condition is open any more."""
LOOK_SECONDS: Final = 5.0
"""The oldest look by which a request may arrive, on a busy machine."""
FRESH_SECONDS: Final = 30.0
MEMORY_LIMIT_MIB: Final = 512
"""manifests/components/evict/deployment.yaml."""
GROWTH: Final = 1.3
GROWTH_MIB: Final = 20
"""The soaked process may have that many times the memory of a fresh one, and that much beside it."""
BOUNDED: Final[Mapping[str, int]] = {
    r".*\._tombstones": 1024,
    r".*\._alike": 1024,
    r".*\._shared": 1024,
    r".*\._targets": 1024,
    r"\._budgets\._labels(\[\])?": 10_000,
    r"\._controller\._core\.rules\._later": 256,
    r"\._controller\._core\.room\._(rates|timed)": 1024,
    r"\._cache\.inventory\.pools\._changed": POOLS_MOST,
    r"\._cache\.inventory\.pools\._pools\[\]\.(devices|evicting|closed)": POOLS_MOST * DEVICES,
}
"""What may be kept of things that are gone, or is computed when it is asked for: a pattern of the path, and a bound."""


class Look(NamedTuple):
    """A look at a pod, and whether it may go."""

    at: datetime
    goes: bool


class Sizes(NamedTuple):
    """What a process keeps, and its memory."""

    lengths: Mapping[str, int]
    rss_mib: float
    peak_mib: float


class Sized(EvictProcess):
    """`evict` in mode replacement that can be asked what it keeps."""

    def __init__(self, plane: RestartablePlane) -> None:
        kubeconfig = plane.kubeconfig_of(OUR_USER, ["system:masters"])
        arguments = ("--in-tree=absent", "--kube-api-qps=1000", "--kube-api-burst=2000")
        self._in_use = json.dumps(LENIENT)
        super().__init__(plane, "replacement", *arguments, policy=self._in_use, kubeconfig=kubeconfig)

    def _program(self) -> list[str]:
        program, *_ = super()._program()
        return [program, "-m", "tests.apiserver.eviction.sized", str(self.folder)]

    @property
    def _file(self) -> Path:
        return self.folder / SIZES

    def looks(self) -> dict[str, list[Look]]:
        """The looks at each pod, by uid, as its request was written."""
        found: dict[str, list[Look]] = {}
        for line in (self.folder / LOOKS).read_text().splitlines():
            said = json.loads(line)
            for uid in said["pods"]:
                found.setdefault(uid, []).append(Look(datetime.fromisoformat(said["at"]), said["go"]))
        return found

    def write_policy(self, policy: Json) -> None:
        """Returns once it is in use, however busy the machine is."""
        text = json.dumps(policy)
        if text == self._in_use:
            return
        loaded = len(self.lines("policy in use"))
        self.set_policy(text)
        wait_until(lambda: len(self.lines("policy in use")) > loaded, "the policy in use", every=0.2)
        self._in_use = text

    def sizes(self) -> Sizes:
        self._file.unlink(missing_ok=True)
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        os.kill(self.process.pid, ASKS)
        wait_until(self._file.exists, "its sizes", seconds=20)
        kept = json.loads(self._file.read_text())
        return Sizes(kept, _mib(status, "VmRSS"), _mib(status, "VmHWM"))


class Soak(NamedTuple):
    churn: Churn
    steps: Counter[str]
    deletions: list[Deletion]
    overdue: list[str]
    soaked: Sizes
    fresh: Sizes
    errors: list[str]
    logged: list[Json]
    """What the worker said of each eviction."""
    looks: Mapping[str, list[Look]]

    def granted(self) -> list[Deletion]:
        """Those that the API server has carried out, in order."""
        return [each for each in self.deletions if each.code < 300]

    def last_look(self, deletion: Deletion) -> Look | None:
        """The last one before the API server had the request."""
        return max([each for each in self.looks.get(deletion.uid, ()) if each.at <= deletion.at], default=None)


def _mib(status: str, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


@pytest.fixture(scope="module")
def soak(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Soak:
    if versions.minor(assets.version) < 37:
        pytest.skip("rules have another version, or no status")
    policy = tmp_path_factory.mktemp("soak") / "audit-policy.yaml"
    policy.write_text(json.dumps(AUDIT_POLICY))  # JSON is YAML
    arguments = [f"--audit-policy-file={policy}"]
    with RestartablePlane(
        assets, audit=True, feature_gates=GATES, runtime_config=SERVED, api_server_arguments=arguments
    ) as plane:
        witness = Witness(plane.folder / "audit.log", OUR_USER)
        with Sized(plane) as process:
            process.wait_working()
            seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(1_000_000))
            print(f"SOAK_SEED={seed}")
            churn = Churn(plane.client, seed, process.write_policy)
            steps = _churn(plane, churn)
            overdue = _come_to_rest(churn)
            time.sleep(SETTLED_SECONDS)
            soaked = process.sizes()
            errors = [line["error"] for line in process.lines("stopped by an error")]
            logged, looks = process.lines("pod evicted"), process.looks()
        with Sized(plane) as process:
            process.wait_working()
            time.sleep(FRESH_SECONDS)
            fresh = process.sizes()
        found = Soak(churn, steps, witness.deletions(), overdue, soaked, fresh, errors, logged, looks)
    file = tmp_path_factory.mktemp("soak") / "story.txt"
    file.write_text("\n".join(line for each in found.granted() for line in _story(found, each)))
    print(f"the story of each eviction: {file}")
    return found


def _churn(plane: RestartablePlane, churn: Churn) -> Counter[str]:
    """The changes, with the restarts in between: how many of each were made."""
    churn.begin()
    steps: Counter[str] = Counter()
    for part in range(1, RESTARTS + 2):
        until = time.monotonic() + 60.0 * MINUTES / (RESTARTS + 1)
        while time.monotonic() < until:
            steps[churn.step()] += 1
            time.sleep(PAUSE_SECONDS)
        if part <= RESTARTS:
            start = now()
            plane.stop_api_server()
            plane.start_api_server()
            churn.changes.append((start, now(), "restart of the API server"))
    return steps


def _come_to_rest(churn: Churn) -> list[str]:
    """Whatever is due may go, then most things are removed: the pods that did not go."""
    churn.do(churn.relent)

    deadline = time.monotonic() + 3 * LATE_SECONDS + STUCK_SECONDS
    while churn.due_within(LATE_SECONDS) and time.monotonic() < deadline:
        churn.do(churn.settle)
        time.sleep(1.0)
    overdue = [str(pod) for pod in churn.due_within(0.0)]
    churn.do(churn.clear)
    time.sleep(NOTICED_SECONDS)
    churn.do(churn.end_pods)  # those that were evicted while their rules were removed
    return overdue


def test_soak_does_something(soak: Soak) -> None:
    granted = soak.granted()
    print(f"created {soak.churn.created}, steps {dict(soak.steps)}")
    print(f"{len(granted)} of {len(soak.deletions)} evictions granted, {RESTARTS} restarts")
    assert len(granted) > 5 * MINUTES
    assert soak.errors == []


def test_no_pod_is_evicted_twice(soak: Soak) -> None:
    counts = Counter(each.uid for each in soak.granted())
    assert not (twice := [each for each in soak.granted() if counts[each.uid] > 1]), _stories(soak, twice)


def test_each_pod_is_looked_at_as_its_request_is_written(soak: Soak) -> None:
    looks = {each.uid: soak.last_look(each) for each in soak.granted()}
    ages = sorted(
        (each.at - look.at).total_seconds() for each in soak.granted() if (look := looks[each.uid]) is not None
    )
    print(f"age of the last look: median {ages[len(ages) // 2]:.3f} s, most {ages[-1]:.3f} s")
    unseen = [each for each in soak.granted() if (look := looks[each.uid]) is None or not look.goes]
    assert not unseen, _stories(soak, unseen)
    assert ages[-1] < LOOK_SECONDS


def test_no_pod_is_evicted_that_no_taint_hits_or_that_is_held(soak: Soak) -> None:
    slack = timedelta(seconds=NOTICED_SECONDS)
    pods = soak.churn.all_pods
    wrong = [each for each in soak.granted() if not pods[each.uid].could_go(each.at, slack)]
    assert not wrong, _stories(soak, wrong)


def _stories(soak: Soak, deletions: list[Deletion]) -> str:
    return "\n".join(line for each in deletions for line in _story(soak, each))


def _story(soak: Soak, deletion: Deletion) -> Iterator[str]:
    """Why a pod was evicted, what was done shortly before, and which pods of its namespace were evicted then."""
    pods, around = soak.churn.all_pods, timedelta(seconds=15)
    yield f"seed {soak.churn.seed}: at {deletion.at} {pods[deletion.uid]}"
    for look in soak.looks.get(deletion.uid, ()):
        age = (deletion.at - look.at).total_seconds()
        yield f"  {look.at} {'goes' if look.goes else 'stays'} by the look {age:.3f} s before its request"
    yield from (f"  {line['ts']} {line['reasons']}" for line in soak.logged if line["podUID"] == deletion.uid)
    for start, end, name in soak.churn.changes:
        if start - around < deletion.at < end + around:
            yield f"  {start} to {end} {name}"
    for each in soak.deletions:
        if each.pod[0] == deletion.pod[0] and abs(each.at - deletion.at) < around:
            yield f"  {each.at} {each.code} {pods[each.uid]}"


def test_nothing_due_is_left(soak: Soak) -> None:
    asked = [each for each in soak.deletions if str(soak.churn.all_pods[each.uid]) in soak.overdue]
    assert soak.overdue == [], f"seed {soak.churn.seed}: {soak.overdue}\n{_stories(soak, asked)}"


def test_worker_keeps_no_more_than_a_fresh_one(soak: Soak) -> None:
    before, after = soak.fresh.lengths, soak.soaked.lengths
    assert len(before) > 40, "the walk has found the worker's parts"
    bounds = {name: _bound(name) for name in after}
    grown = {
        name: (length, before.get(name, 0))
        for name, length in after.items()
        if length > (bound if (bound := bounds[name]) is not None else before.get(name, 0))
    }
    print("kept within bounds:", {name: length for name, length in after.items() if bounds[name] is not None})
    print("lengths:", {name: length for name, length in after.items() if length})
    assert not grown, grown


def _bound(name: str) -> int | None:
    return next((bound for pattern, bound in BOUNDED.items() if re.fullmatch(pattern, name)), None)


def test_memory_is_that_of_a_fresh_worker(soak: Soak) -> None:
    soaked, fresh = soak.soaked, soak.fresh
    print(f"RSS {soaked.rss_mib:.1f} MiB (most {soaked.peak_mib:.1f}), of a fresh process {fresh.rss_mib:.1f} MiB")
    assert soaked.peak_mib < MEMORY_LIMIT_MIB
    assert soaked.rss_mib <= GROWTH * fresh.rss_mib + GROWTH_MIB
