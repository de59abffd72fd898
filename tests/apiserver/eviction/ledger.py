"""Pods with devices under a fault, and the account of what became of them, from the API server's audit log alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import pytest

from tests.apiserver import evicting
from tests.apiserver.evicting import CONDITION, RULES, EvictProcess
from tests.apiserver.eviction.bench import now
from tests.apiserver.eviction.play import NO_CEILING, OUR_USER
from tests.apiserver.eviction.refusing import RefusingWebhook
from tests.apiserver.eviction.shifted import set_shift
from tests.apiserver.eviction.witness import AUDIT_POLICY, Witness
from tests.apiserver.policy.stage import RestartablePlane
from tests.controlplane import versions
from tests.controlplane.assets import Assets
from tests.controlplane.client import Client
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until

Json = dict[str, Any]

POLICY: Final = f"""
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
inTreeEvictor: absent
eviction:
- namespaces: {{names: ["deleted-*"]}}
  rate: 10000
  burst: 100000
  perOwnerUnavailable: null
  deadline: 0s
  afterDeadline: delete
- {{rate: 10000, burst: 100000, perOwnerUnavailable: null}}
{NO_CEILING}"""
"""Namespaces called `deleted-` are emptied by DELETE, all others by the Eviction API."""
_MORE: Final = [
    {"level": "Metadata", "users": [OUR_USER], "verbs": ["watch"]},
    {"level": "Request", "resources": [{"group": versions.GROUP, "resources": ["devicetaintrules/status"]}]},
]
"""For the audit log, beside what stands in it anyway."""
GANG: Final = 5
"""Pods of one gang, in namespaces whose pods go together."""
SPLIT: Final = timedelta(seconds=5)
"""Pods of a gang that go at times that are further apart do not go together; machines of CI are slow."""
_THREADS: Final = 8
_TAIL_LINES: Final = 200


class Ledger(NamedTuple):
    """What a fault did. `lost`, `doubled` and `wrong` have to be nothing."""

    pods: int
    faults: int
    """How often it struck."""
    lost: int
    """To be evicted, and never were."""
    doubled: int
    """Of whom more than one DELETE or eviction was granted."""
    wrong: int
    """Evicted though they were to stay, or before their time, or without saying which pod is meant."""
    split: int = 0
    """Gangs that did not go together."""

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self._asdict().items())


class Told(NamedTuple):
    """What came of all faults."""

    ledgers: Mapping[str, Ledger | Exception]
    too_soon: list[str]
    """Rules that were told to be done before they were."""


class Ward(evicting.Ward):
    """Pods that stay once they are marked for deletion: whoever deletes them again is granted that, and seen."""

    grace_seconds = 300

    def __init__(self, client: Client, witness: Witness, name: str, *, gangs: bool = False, **labels: str) -> None:
        """`gangs`: its pods are in gangs of `GANG`."""
        super().__init__(client, **labels)
        self.name = name
        self._gangs = gangs
        self._gang_of: dict[str, int] = {}
        """By uid."""
        self._witness = witness
        self.due: dict[str, datetime | None] = {}
        """By uid, when a pod has to go; None for those who must stay."""
        self.uids: dict[str, str] = {}
        """By name; of namesakes the last one's."""
        self.faults = 0
        """How often one struck; of wards under the same one only the first counts it."""
        self.resumed: datetime | None = None
        """When a process went on that had been stopped until another one led."""
        self.rule = ""
        """The last one by which everybody had to go."""

    def fill(self, pods: int, *tolerations: Json) -> None:
        """So many pods, of which none has to go yet."""

        def put(number: int) -> None:
            name, gang = f"pod-{number}", number // GANG
            metadata: Json = {"annotations": {"devicetaint.io/gang": f"gang-{gang}"}} if self._gangs else {}
            uid = self.uids[name] = self.admit(name, *tolerations, **metadata)["metadata"]["uid"]
            if self._gangs:
                self._gang_of[uid] = gang

        self.client.each(put, range(pods), threads=_THREADS)
        self.due = dict.fromkeys(self.uids.values())

    def empty(self, *, after_seconds: float = 0.0, rate: float | None = None) -> str:
        """A rule for all devices here, by which everybody has to go so many seconds after it: its name."""
        rule = self.taint(annotations={} if rate is None else {"devicetaint.io/evictions-per-second": f"{rate:g}"})
        self._set_due(self.client.get(f"{RULES}/{rule}").object, after_seconds)
        return rule

    def soften(self, rule: str) -> None:
        """Its effect becomes None: nobody has to go."""
        _ = self.client.patch(f"{RULES}/{rule}", {"spec": {"taint": {"effect": "None"}}}).object
        self.due = dict.fromkeys(self.due)

    def harden(self, rule: str, *, after_seconds: float = 0.0) -> None:
        """Its effect becomes NoExecute: everybody has to go so many seconds later."""
        patch = {"spec": {"taint": {"effect": "NoExecute"}}}
        self._set_due(self.client.patch(f"{RULES}/{rule}", patch).object, after_seconds)

    def _set_due(self, rule: Json, after_seconds: float) -> None:
        self.rule = rule["metadata"]["name"]
        due = datetime.fromisoformat(rule["spec"]["taint"]["timeAdded"]) + timedelta(seconds=after_seconds)
        self.due = dict.fromkeys(self.due, due)

    def spare(self, *rules: str) -> None:
        """The taints are gone: nobody has to go any more, who is still there."""
        for rule in rules:
            _ = self.client.delete(f"{RULES}/{rule}").object
        self.due = dict.fromkeys(self.due)

    def replace(self) -> None:
        """All pods give way to others of the same names, which the claims are not reserved for."""

        def one(name: str) -> None:
            pod = f"{self.pods}/{name}"
            _ = self.client.request("DELETE", pod, {"gracePeriodSeconds": 0}).object
            spec = {"nodeName": "nowhere", "containers": [{"name": "c", "image": "none"}]}
            namesake = self.client.create(self.pods, {"metadata": {"name": name}, "spec": spec}).object
            self.uids[name] = namesake["metadata"]["uid"]

        self.client.each(one, list(self.uids), threads=_THREADS)
        self.due = dict.fromkeys([*self.due, *self.uids.values()])

    def deallocate(self) -> None:
        """All claims lose their devices."""
        status = {"status": {"allocation": None, "reservedFor": None}}

        def one(name: str) -> None:
            _ = self.client.patch(f"{self.claims}/{name}/status", status).object

        self.client.each(one, list(self.uids), threads=_THREADS)
        self.due = dict.fromkeys(self.due)

    # --- what came of it -------------------------------------------------------------------------

    def gone(self) -> set[str]:
        """The uids of those who are being deleted, as stored: what a killed server has not put on record is there."""
        pods = self.client.get(self.pods).items
        return {pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" in pod["metadata"]}

    def evicted(self) -> int:
        """How many went already, as the audit log has it."""
        return len(self._witness.evicted().keys() & self.due.keys())

    def wait_evicted(self, pods: int, seconds: float = 180.0) -> None:
        """Returns as soon as so many are gone."""
        wait_until(lambda: self.evicted() >= pods, f"{pods} evicted of {self.name}", seconds=seconds, every=0.02)

    def wait_empty(self, seconds: float = 180.0) -> None:
        """Returns once nobody is left that has to go."""
        going = {uid for uid, due in self.due.items() if due is not None}
        wait_until(lambda: going <= self.gone(), f"all of {self.name} gone", seconds=seconds, every=0.3)

    @property
    def done(self) -> bool:
        """Whether everybody has to be gone by now."""
        return all(due is not None and due < now() for due in self.due.values())

    def refusals(self) -> int:
        """How many requests were refused, dry runs included; the first refusal keeps a whole gang."""
        codes = [each.code for each in self._witness.attempts() if each.pod[0] == self.name]
        return len([code for code in codes if code >= 300])

    @property
    def units(self) -> int:
        """How many pods or gangs go by themselves."""
        return len(set(self._gang_of.values())) or len(self.due)

    def ledger(self) -> Ledger:
        """For when everything has come to rest."""
        granted = [each for each in self._witness.deletions() if each.pod[0] == self.name and each.code < 300]
        by_uid = {uid: [each for each in granted if each.uid == uid] for uid in self.due}
        times = {uid: [each.at for each in found] for uid, found in by_uid.items()}
        doubled = {uid: found for uid, found in by_uid.items() if len(found) > 1}
        for uid, found in doubled.items():
            print(f"{self.name}: {uid} was evicted more than once; another process resumed at {self.resumed}")
            print(*found, sep="\n")
        gone = self.gone() | {uid for uid, each in times.items() if each}
        wrong = [each for each in granted if each.uid not in self.due]
        early = [
            uid for uid in gone if (due := self.due.get(uid)) is None or any(at < due for at in times.get(uid, ()))
        ]
        return Ledger(
            pods=len(self.due),
            faults=self.faults,
            lost=len([uid for uid, due in self.due.items() if due is not None and due < now() and uid not in gone]),
            doubled=len(doubled),
            wrong=len(wrong) + len(early),
            split=self._split(gone, times),
        )

    def _split(self, gone: AbstractSet[str], times: Mapping[str, Sequence[datetime]]) -> int:
        """Gangs of which only some are gone, or whose pods went at different times."""
        gangs: dict[int, list[str]] = {}
        for uid, gang in self._gang_of.items():
            gangs.setdefault(gang, []).append(uid)
        found = 0
        for members in gangs.values():
            at = [times[uid][0] for uid in members if times.get(uid)]
            apart = max(at) - min(at) if at else timedelta()
            found += len(gone & {*members}) not in (0, len(members)) or apart > SPLIT
        return found


class Deceived(EvictProcess):
    """`evict` in mode replacement, with a wall clock of its own; `arguments` are added."""

    def __init__(self, plane: ControlPlane, *arguments: str, policy: str = POLICY) -> None:
        kubeconfig = plane.kubeconfig_of(OUR_USER, ["system:masters"])
        super().__init__(plane, "replacement", "--in-tree=absent", *arguments, policy=policy, kubeconfig=kubeconfig)

    def _program(self) -> list[str]:
        self.shift(0.0)
        program, *_ = super()._program()
        return [program, "-m", "tests.apiserver.eviction.shifted", str(self._file)]

    @property
    def _file(self) -> Path:
        return self.folder / "shift"

    def shift(self, seconds: float) -> None:
        """Sets its clock to that much later than it is."""
        set_shift(self._file, seconds)


class Stage:
    """A control plane of its own, the worker in one process or more, a webhook that refuses, and faults.

    An API server that keeps a record, and nobody else: what happens is the tests' and the worker's doing.
    """

    def __init__(self, assets: Assets, folder: Path) -> None:
        """Skips the test where rules have no status."""
        if versions.minor(assets.version) < 37:
            pytest.skip("rules have another version, or no status")
        policy = folder / "audit-policy.yaml"
        policy.write_text(json.dumps({**AUDIT_POLICY, "rules": [*_MORE, *AUDIT_POLICY["rules"]]}))  # JSON is YAML
        self.plane = RestartablePlane(assets, audit=True, api_server_arguments=[f"--audit-policy-file={policy}"])
        self.webhook = RefusingWebhook(folder)
        self.processes: list[Deceived] = []
        self._wards: dict[str, list[Ward]] = {}
        self._errors: dict[str, Exception] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.plane)
            stack.enter_context(self.webhook)
            self.webhook.register(self.plane.client)
            self.witness = Witness(self.plane.folder / "audit.log", OUR_USER)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, *arguments: str) -> None:
        """One more process."""
        self.processes.append(self._stack.enter_context(Deceived(self.plane, *arguments)))

    def wards_of(self, fault: str, pods: int, *tolerations: Json) -> list[Ward]:
        """One that is emptied by the Eviction API, one by DELETE, and one of gangs; everybody stays for now."""
        slug = fault.lower().replace(" ", "-").replace(",", "")
        wards = [
            Ward(self.plane.client, self.witness, f"{prefix}-{slug}", gangs=prefix == "together")
            for prefix in ("evicted", "deleted", "together")
        ]
        self._wards[fault] = wards
        for ward in wards:
            ward.__enter__().fill(pods, *tolerations)
        return wards

    def play(self, faults: Mapping[str, Callable[[str], None]]) -> None:
        """All at the same time; what goes wrong is told by the fault's own test."""

        def one(fault: str) -> None:
            try:
                faults[fault](fault)
            except Exception as error:  # noqa: BLE001 -- it is the fault's result, and raised where that is looked at
                self._errors[fault] = error
                print(f"{fault}: {error!r}")

        if len(faults) == 1:
            one(*faults)  # by who lives on: what it starts would end with its thread
            return
        with ThreadPoolExecutor(len(faults)) as pool:
            list(pool.map(one, faults))

    def told(self) -> Told:
        """What came of each fault, for when all have been played."""
        ledgers: dict[str, Ledger | Exception] = dict(self._errors)
        for fault, wards in self._wards.items():
            each = [ward.ledger() for ward in wards]
            ledgers.setdefault(fault, Ledger(*map(sum, zip(*each, strict=True))))
            print(f"{fault}: {ledgers[fault]}")
        if self._errors:
            self.plane.keep_logs = True
            print(*(each.process.tail(_TAIL_LINES) for each in self.processes), sep="\n")
        else:
            self._wait_conditions()
        return Told(ledgers, self._too_soon())

    def _wait_conditions(self) -> None:
        """`kubectl wait` returns for everybody who is done."""
        done = [ward for wards in self._wards.values() for ward in wards if ward.done]
        for ward in done:
            wait_until(lambda: ward.condition(ward.rule).get("reason") == "Completed", ward.rule, every=0.5)  # noqa: B023 -- called here

    def _too_soon(self) -> list[str]:
        """Rules for whose present generation `kubectl wait` returned before the last of their pods went."""
        ends: dict[str, tuple[int, datetime]] = {}
        for event in self.plane.audit_events():
            about = event["objectRef"]
            if (about["resource"], about.get("subresource")) == ("devicetaintrules", "status"):
                for condition in event["requestObject"]["status"]["conditions"]:
                    if condition["type"] == CONDITION and condition["status"] == "False":
                        told = (
                            condition["observedGeneration"],
                            datetime.fromisoformat(event["requestReceivedTimestamp"]),
                        )
                        known = ends.get(about["name"], told)
                        ends[about["name"]] = told if told[0] > known[0] else known
        granted = [each for each in self.witness.deletions() if each.code < 300]
        wards = {ward.rule: ward.name for wards in self._wards.values() for ward in wards if ward.rule}
        last = {
            name: max((each.at for each in granted if each.pod[0] == name), default=None) for name in wards.values()
        }
        assert ends, "nothing was said"
        return [rule for rule, (_, at) in ends.items() if rule in wards and (end := last[wards[rule]]) and end > at]


def clean(ledger: Ledger | Exception, *, splits_most: int = 0) -> None:
    """Fails unless the fault struck, and harmed no pod.

    `splits_most`: how many gangs may go in two parts, because the fault struck while they were under way.
    """
    if isinstance(ledger, Exception):
        raise ledger
    assert ledger.faults > 0
    assert (ledger.lost, ledger.doubled, ledger.wrong) == (0, 0, 0)
    assert ledger.split <= splits_most
