"""A health operator's NoExecute rules under a policy that softens them. Scheduler and in-tree evictor are real.

Who was deleted by whom is taken from the API server's audit log. Pods and their allocations are written by the test;
nothing runs them, so that only an evictor can make them go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.apiserver.evicting import CONDITION, DRIVER, EvictProcess, Ward
from tests.apiserver.guard.replicas import called
from tests.apiserver.objects import RULES, SLICES, claim_of, rule_for, slice_of
from tests.apiserver.planes import own_stage
from tests.apiserver.policy.stage import Stage, make_policy
from tests.apiserver.registration.samples import OWN_NAMESPACE
from tests.apiserver.test_doctor import doctor
from tests.controlplane.client import Client, Reply, path
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP
from webhook.api.rules import CONFIRM_IMPACT, EVICT, SOFTENED_FROM

pytestmark = pytest.mark.slow

Json = dict[str, Any]

POOLS: Final = 64
PODS: Final = 200
LIMIT: Final = 50
IN_TREE: Final = "system:serviceaccount:kube-system:device-taint-eviction-controller"
OPERATOR: Final = "system:serviceaccount:health:operator"
GROUPS: Final = ("system:serviceaccounts", "system:authenticated")
WORKER: Final = "evictor"
NO_WORKER: Final = "no eviction worker holds its lease, so pods stay until one does"
SCHEDULED_WITHIN_SECONDS: Final = 90.0
ACCOUNT: Final = {"serviceAccounts": ["health/operator"]}
POLICY: Final = make_policy(
    impact={
        "limits": [{"requesters": ACCOUNT, "action": "soften", "soften": "always", "pods": LIMIT}, {"pods": LIMIT}],
    },
    eviction=[{"rate": 50, "burst": 10, "perOwnerUnavailable": None}],
)
AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "verbs": ["delete", "create"],
            "resources": [{"group": "", "resources": ["pods/eviction"]}],
        },
        {"level": "Metadata", "verbs": ["delete"], "resources": [{"group": "", "resources": ["pods"]}]},
        {"level": "Metadata", "resources": [{"group": GROUP, "resources": ["devicetaintrules"]}]},
        {"level": "None"},
    ],
}
_TEXT: Final = re.compile(r'"(v1 [^"]+ of=[a-z2-7]{16})"')


class Hospital:
    """A cluster with the webhook, and what it has on record."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.client = stage.client
        self.operator: Client = stage.client.acting_as(OPERATOR, GROUPS)
        self.human: Client = stage.client.acting_as("dana", ["system:authenticated"])

    def deleted_by(self, user: str) -> list[str]:
        """The pods that a user had deleted or evicted, as `namespace/name`."""
        found = []
        with (self.stage.plane.folder / "audit.log").open() as log:
            for line in log:
                if '"pods"' not in line or not line.endswith("\n"):
                    continue
                event = json.loads(line)
                about = event["objectRef"]
                by_user = about["resource"] == "pods" and event["user"]["username"] == user
                if by_user and event["responseStatus"]["code"] < 300:
                    found.append(f"{about['namespace']}/{about['name']}")
        return found

    def rule(self, name: str) -> Json:
        return self.client.get(f"{RULES}/{name}").object

    def condition(self, name: str) -> Json:
        conditions = self.rule(name).get("status", {}).get("conditions", ())
        return next((each for each in conditions if each["type"] == CONDITION), {})

    def reason(self, name: str) -> str:
        return str(self.condition(name).get("reason", ""))

    @contextmanager
    def working(self, mode: str = "delegated") -> Iterator[None]:
        """Our worker, which works when the block begins."""
        kubeconfig = self.stage.plane.kubeconfig_of(WORKER, ["system:masters"])
        arguments = (f"--namespace={OWN_NAMESPACE}", "--leader-elect")
        with EvictProcess(self.stage.plane, mode, *arguments, policy=None, kubeconfig=kubeconfig) as worker:
            worker.wait_working()
            yield

    def probe(self, name: str) -> str:
        """A pod that takes any free device of the driver; the URL."""
        claims = path(f"{GROUP}/v1", "resourceclaims", namespace="probes")
        _ = self.client.create(claims, claim_of(DRIVER, name=name)).object
        pod = {
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "r"}]}}],
                "resourceClaims": [{"name": "r", "resourceClaimName": name}],
            },
        }
        _ = self.client.create(path("v1", "pods", namespace="probes"), pod).object
        return path("v1", "pods", namespace="probes", name=name)

    def scheduled(self, url: str) -> str:
        """What the scheduler says of a pod: True, or why not."""
        conditions = self.client.get(url).object.get("status", {}).get("conditions", ())
        found: Json = next((each for each in conditions if each["type"] == "PodScheduled"), {})
        return str(found.get("status", "")) if found.get("status") == "True" else str(found.get("message", ""))

    def wait_closed(self, name: str) -> None:
        """Until the scheduler has found no device that is free."""
        url = self.probe(name)
        wait_until(lambda: "allocate" in self.scheduled(url), "the probe was tried", seconds=SCHEDULED_WITHIN_SECONDS)


def make_rule(pool: str, effect: str = "NoExecute", **metadata: Any) -> Json:
    taint = {"key": "health.example.com/thermal", "effect": effect}
    return rule_for({"driver": DRIVER, "pool": pool}, taint, pool, **metadata)


@pytest.fixture(scope="module")
def hospital(request: pytest.FixtureRequest) -> Iterator[Hospital]:
    """Everything runs but the worker; no device is tainted, and all but one of each pool are in use."""
    with own_stage(
        request,
        *("kube-controller-manager", "kube-scheduler"),
        since=37,
        audit_policy=AUDIT_POLICY,
        controllers=["-pod-garbage-collector-controller", "-node-lifecycle-controller"],
    ) as stage:
        stage.plane.add_node("ground")
        for namespace in ("probes", "ward"):
            _ = stage.client.create(path("v1", "namespaces"), {"metadata": {"name": namespace}}).object
        selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
        if not stage.client.get(path(f"{GROUP}/v1", "deviceclasses", name=DRIVER)).ok:
            stage.create(f"{GROUP}/v1", "DeviceClass", DRIVER, spec={"selectors": selectors})
        with called(stage):
            stage.use(POLICY)
            yield Hospital(stage)


@pytest.fixture
def crowded(hospital: Hospital) -> Iterator[Hospital]:
    """Two hundred pods on the devices of sixty-four pools, each with one that is free."""
    yield from _filled(hospital, {f"pool-{number}": 4 if number < PODS - 3 * POOLS else 3 for number in range(POOLS)})


@pytest.fixture
def single(hospital: Hospital) -> Iterator[Hospital]:
    """Sixty pods on the devices of one pool."""
    yield from _filled(hospital, {"pool-big": LIMIT + 10})


def _filled(hospital: Hospital, pools: dict[str, int]) -> Iterator[Hospital]:
    client, jobs = hospital.client, []
    for pool, pods in pools.items():
        names = [f"{pool}-{number}" for number in range(pods)]
        _ = client.create(SLICES, slice_of(DRIVER, pool, *names, "free", node=None)).object
        jobs += [(pool, name) for name in names]
    client.each(lambda job: _admit(client, *job), jobs, threads=8)
    claims = f'inventory_objects{{resource="resourceclaims"}} {len(jobs)}.0'
    wait_until(lambda: claims in hospital.stage.webhook.metrics(), "the webhook knows the claims")
    yield hospital
    assert client.delete(RULES).ok
    for namespace in ("probes", "ward"):
        client.delete(path("v1", "pods", namespace=namespace))
        client.delete(path(f"{GROUP}/v1", "resourceclaims", namespace=namespace))
    client.delete(SLICES)


def _admit(client: Client, pool: str, name: str) -> None:
    """A running pod with a device."""
    ward = Ward(client)
    ward.name = "ward"
    ward.admit(name, pool=pool)


def _softened(rule: Json) -> bool:
    annotations = rule["metadata"].get("annotations", {})
    marks = annotations.get(EVICT), annotations.get(SOFTENED_FROM)
    return rule["spec"]["taint"]["effect"] == "NoSchedule" and marks == ("true", "NoExecute")


@pytest.mark.whole
def test_sixty_four_rules_at_once_close_every_device_and_delete_no_pod(crowded: Hospital) -> None:
    free = crowded.probe("before")
    wait_until(lambda: crowded.scheduled(free) == "True", "there are free devices", seconds=SCHEDULED_WITHIN_SECONDS)
    assert crowded.client.delete(free).ok
    pools = [f"pool-{number}" for number in range(POOLS)]

    def send(pool: str) -> Reply:
        return crowded.operator.apply(f"{RULES}/{pool}", make_rule(pool), field_manager="operator")

    replies = crowded.client.each(send, pools, threads=POOLS)
    stored = [reply.object for reply in replies]
    assert [rule for rule in stored if not _softened(rule)] == []
    assert all("[DT121]" in reply.warnings[0] for reply in replies)
    wait_until(lambda: NO_WORKER in " ".join(send("pool-0").warnings), "the webhook has read the lease")
    crowded.wait_closed("after")

    judged = "the in-tree controller has said of each rule that it does not act on it"
    wait_until(lambda: all(crowded.rule(pool)["status"].get("conditions") for pool in pools), judged)
    before = [crowded.rule(pool) for pool in pools]
    again = crowded.client.each(send, pools, threads=POOLS)
    assert [reply.object["metadata"]["resourceVersion"] for reply in again] == [
        rule["metadata"]["resourceVersion"] for rule in before
    ]
    assert [reply.object["spec"] for reply in again] == [rule["spec"] for rule in stored]
    put = crowded.operator.replace(
        f"{RULES}/pool-1", make_rule("pool-1", resourceVersion=before[1]["metadata"]["resourceVersion"])
    )
    assert put.object["spec"] == stored[1]["spec"]

    refused = crowded.human.create(RULES, {**make_rule("pool-0"), "metadata": {"name": "by-hand"}})
    assert refused.code == 403, refused
    assert f"the limit is {LIMIT} pods" in refused.message
    assert crowded.deleted_by(IN_TREE) == []
    assert crowded.stage.metric("softened_rules_total") == {"": float(POOLS)}

    with crowded.working():
        wait_until(lambda: len(crowded.deleted_by(WORKER)) >= PODS, "all pods were evicted", seconds=120)
        wait_until(
            lambda: not any("lease" in text for text in send("pool-0").warnings), "the webhook knows of the worker"
        )
        wait_until(lambda: crowded.reason("pool-0") == "Completed", "the worker says so")
    evicted = crowded.deleted_by(WORKER)
    assert (len(evicted), len(set(evicted))) == (PODS, PODS)
    assert crowded.deleted_by(IN_TREE) == []
    crowded.wait_closed("emptied")


@pytest.mark.whole
def test_rule_above_the_ceiling_waits_for_a_confirmation(single: Hospital) -> None:
    before = len(single.deleted_by(WORKER)), len(single.deleted_by(IN_TREE))
    rule = make_rule("pool-big")
    assert _softened(single.operator.create(RULES, rule).object)
    with single.working():
        wait_until(lambda: single.reason("pool-big") == "Stopped", "the worker has counted the pods")
        message = single.condition("pool-big")["message"]
        assert message.startswith(f"hits {LIMIT + 10} pods, the limit is {LIMIT} and nothing was confirmed; ")
        assert CONFIRM_IMPACT in message
        single.wait_closed("closed")
        asked = single.human.patch(f"{RULES}/pool-big", {"metadata": {"annotations": {CONFIRM_IMPACT: "renew"}}})
        assert asked.code == 403, asked
        (text,) = set(_TEXT.findall(asked.message))
        assert (len(single.deleted_by(WORKER)), len(single.deleted_by(IN_TREE))) == before
        confirmed = single.human.patch(f"{RULES}/pool-big", {"metadata": {"annotations": {CONFIRM_IMPACT: text}}})
        assert confirmed.ok, confirmed
        sent_again = single.operator.apply(f"{RULES}/pool-big", rule, field_manager="operator")
        assert _softened(sent_again.object), "a confirmed eviction is no leave for the in-tree controller"
        gone = before[0] + LIMIT + 10
        wait_until(lambda: len(single.deleted_by(WORKER)) == gone, "all pods were evicted", seconds=90)
    assert len(single.deleted_by(IN_TREE)) == before[1]


def test_form_of_a_softened_rule_gets_no_one_past_the_guard(single: Hospital) -> None:
    forged = make_rule("pool-big", "NoSchedule", annotations={EVICT: "true", SOFTENED_FROM: "NoExecute"})
    refused = single.human.create(RULES, forged)
    assert refused.code == 403, refused
    rule = single.operator.create(RULES, make_rule("pool-big")).object
    for marks in ({SOFTENED_FROM: None}, {SOFTENED_FROM: "NoSchedule"}):
        unmarked = single.human.patch(f"{RULES}/pool-big", {"metadata": {"annotations": marks}})
        assert unmarked.code == 403, unmarked
    assert single.human.patch(f"{RULES}/pool-big", {"spec": {"taint": {"effect": "NoExecute"}}}).code == 403
    assert single.rule("pool-big")["spec"] == rule["spec"]
    assert _softened(single.rule("pool-big"))


def test_warning_that_becomes_critical_is_softened(single: Hospital) -> None:
    assert single.operator.create(RULES, make_rule("pool-big", "NoSchedule")).ok
    critical = single.operator.patch(f"{RULES}/pool-big", {"spec": {"taint": {"effect": "NoExecute"}}})
    assert _softened(critical.object)
    kubectl = single.stage.plane.kubectl
    rule = json.dumps(make_rule("pool-big"))
    for _ in range(2):
        done = kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=rule, user=OPERATOR, groups=GROUPS
        )
        assert done.code == 0, done
    assert _softened(single.rule("pool-big"))
    version = single.rule("pool-big")["metadata"]["resourceVersion"]
    assert kubectl("apply", "--server-side", "-f", "-", stdin=rule, user=OPERATOR, groups=GROUPS).code == 0
    assert single.rule("pool-big")["metadata"]["resourceVersion"] == version


@pytest.mark.whole
def test_worker_that_only_observes_is_named_in_the_warning(single: Hospital) -> None:
    with single.working("observe"):
        sent = make_rule("pool-big")

        def warned() -> bool:
            reply = single.operator.create(RULES, sent, dry_run=True)
            return any("the eviction worker runs in mode observe" in text for text in reply.warnings)

        wait_until(warned, "the webhook knows of the worker")
        examined = doctor(single.stage.plane).amiss["softening"]
        assert examined == "warn the policy softens rules, but the eviction worker runs in mode observe, so pods stay"
