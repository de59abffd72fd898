"""A random sequence of changes to everything that evictions depend on, with a model of which pod may go when.

There is no controller: which device a pod has, what budgets allow and which pods end is written here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Any, Final

from tests.apiserver.eviction.bench import RULES, SLICES, now
from tests.apiserver.eviction.crowd import Crowd
from tests.apiserver.eviction.ground import HOLD, RATE
from tests.apiserver.eviction.soak_model import (
    ALL,
    BREAKERS,
    DEVICES,
    EVICT,
    EXPIRES,
    FIELDS,
    FOR_EVER,
    LENIENT,
    PROFILES,
    SINGLE,
    Held,
    Pool,
    RuleModel,
    companions,
    policy_of,
    slices_of,
    tainted_devices,
    together,
)
from tests.controlplane.client import Client, path
from webhook.api.meta import format_time

Json = dict[str, Any]

PODS_MOST: Final = 60
RULES_MOST: Final = 10
POOLS_MOST: Final = 8
NAMESPACES: Final = 5
_PAUSES_SECONDS: Final = 3.0
"""More than a request takes that is under way when a pause begins."""


class Churn:
    """The cluster and what is done to it. `write_policy` writes the document that the worker reads."""

    def __init__(self, client: Client, seed: int, write_policy: Callable[[Json], None]) -> None:
        self._client = client
        self.seed = seed
        self._random = random.Random(seed)
        self._set_policy = write_policy
        self._number = 0
        self.namespaces: dict[str, bool] = {}
        """Whether each is held."""
        self.pools: dict[str, Pool] = {}
        self.rules: dict[str, RuleModel] = {}
        self._crowd = Crowd(client)
        self.budgets: set[tuple[str, str]] = set()
        self.paused = False
        self.created: dict[str, int] = {}
        """How many objects of each sort were created."""
        self.changes: list[tuple[datetime, datetime, str]] = []
        """What was done, and between which times."""
        self._operations = self._weighed()

    @property
    def pods(self) -> dict[tuple[str, str], Held]:
        """Those that are there, by namespace and name."""
        return self._crowd.pods

    @property
    def all_pods(self) -> dict[str, Held]:
        """By uid, also those that are gone."""
        return self._crowd.all_pods

    # --- one change ------------------------------------------------------------------------------

    def begin(self) -> None:
        self._set_policy(LENIENT)
        for _ in range(NAMESPACES):
            self.add_namespace()
        for _ in range(POOLS_MOST // 2):
            self.add_pool()

    def step(self) -> str:
        """One random change: its name."""
        operation = self._random.choice(self._operations)
        self.do(operation)
        return operation.__name__

    def do(self, operation: Callable[[], None]) -> None:
        """Makes one change, and notes what it means for each pod."""
        start = now()
        operation()
        end = now()
        self.changes.append((start, end, operation.__name__))
        for pod in self.pods.values():
            pod.follow(self._due(pod), start, end, free=self._free(pod))

    def _free(self, pod: Held) -> bool:
        """Whether no hold and no pause keeps the pod."""
        return not (pod.hold or self.paused or self.namespaces.get(pod.namespace, False))

    def _due(self, pod: Held) -> datetime | None:
        """When a taint lets the pod go, as things stand; None: not at all."""
        own = self._own_due(pod)
        expiring = {name for name, rule in self.rules.items() if rule.expires}
        if self._own_due(pod, expiring) is not None:
            return own
        # A rule that has been taken back leaves it to go along with others, and that may be earlier. Also with one that
        # is held: that may be on its way out already.
        along = self._dues(companions(pod, self.pods.values()))
        return min(along if own is None else [own, *along], default=None)

    def _dues(self, pods: Iterable[Held], without: AbstractSet[str] = frozenset()) -> list[datetime]:
        return [due for each in pods if (due := self._own_due(each, without)) is not None]

    def _own_due(self, pod: Held, without: AbstractSet[str] = frozenset()) -> datetime | None:
        """Likewise, because of its own device and without some rules."""
        if not pod.allocated or pod.seconds == FOR_EVER:
            return None
        wait = timedelta(seconds=pod.seconds)
        hits = [rule for name, rule in self.rules.items() if name not in without and rule.hits(pod.place)]
        due = [rule.added + wait for rule in hits if rule.effect == "NoExecute"]
        due += [rule.added for rule in hits if rule.effect == "NoSchedule" and rule.asks]
        pool = self.pools.get(pod.place[1])
        added = pool.taints.get(pod.place[2]) if pool is not None else None
        if added is not None:
            due.append(added + wait)
        return min(due, default=None)

    def _weighed(self) -> list[Callable[[], None]]:
        weights: dict[Callable[[], None], int] = {
            self.add_pod: 30,
            self.join_claim: 3,
            self.end_pods: 8,
            self.remove_pod: 4,
            self.deallocate: 3,
            self.hold_pod: 5,
            self.hold_namespace: 4,
            self.label_namespace: 2,
            self.replace_namespace: 1,
            self.add_rule: 8,
            self.change_rule: 6,
            self.remove_rule: 7,
            self.add_pool: 2,
            self.publish: 10,
            self.remove_pool: 2,
            self.add_budget: 4,
            self.change_budget: 6,
            self.remove_budget: 3,
            self.change_policy: 4,
        }
        return [operation for operation, weight in weights.items() for _ in range(weight)]

    def _next(self, sort: str) -> str:
        self._number += 1
        self.created[sort] = self.created.get(sort, 0) + 1
        return f"{sort}-{self._number}"

    # --- namespaces ------------------------------------------------------------------------------

    def add_namespace(self) -> None:
        name = self._next("namespace")
        _ = self._client.create(path("v1", "namespaces"), {"metadata": {"name": name}}).object
        for mode in (ALL, SINGLE):
            spec: Json = {"schedulingPolicy": {"basic": {}}, "disruptionMode": {mode: {}}}
            _ = self._client.create(_groups(name), {"metadata": {"name": mode}, "spec": spec}).object
        self.namespaces[name] = False

    def replace_namespace(self) -> None:
        """With everything in it; there is no controller that would do that."""
        name = self._random.choice(list(self.namespaces))
        for pod in [each for each in self.pods.values() if each.namespace == name]:
            self._crowd.remove(pod)
        for namespace, budget in [each for each in self.budgets if each[0] == name]:
            self._drop_budget(namespace, budget)
        _ = self._client.delete(_groups(name)).object
        url = path("v1", "namespaces", name=name)
        _ = self._client.delete(url).object
        found = self._client.get(url).object
        found["spec"] = {"finalizers": []}
        _ = self._client.request("PUT", f"{url}/finalize", found).object
        del self.namespaces[name]
        self.add_namespace()

    def hold_namespace(self) -> None:
        name = self._random.choice(list(self.namespaces))
        self._hold_namespace(name, held=not self.namespaces[name])

    def _hold_namespace(self, name: str, *, held: bool) -> None:
        patch = {"metadata": {"annotations": {HOLD: "soak" if held else None}}}
        _ = self._client.patch(path("v1", "namespaces", name=name), patch).object
        self.namespaces[name] = held

    def label_namespace(self) -> None:
        self._label_namespace(self._random.choice(list(self.namespaces)), self._random.choice(["true", None]))

    def _label_namespace(self, name: str, gentle: str | None) -> None:
        patch = {"metadata": {"labels": {"gentle": gentle}}}
        _ = self._client.patch(path("v1", "namespaces", name=name), patch).object

    # --- pods ------------------------------------------------------------------------------------

    def add_pod(self) -> None:
        """A few pods of one owner, or one without; names come again."""
        if not self.pools or len(self.pods) >= PODS_MOST:
            self.end_pods()
            self.remove_pod()  # so that the next one finds room, and pods that may stay do not take all of it
            return
        namespace = self._random.choice(list(self.namespaces))
        pool = self._random.choice(list(self.pools.values()))
        owner = self._random.choice(["", f"owner-{self._random.randrange(4)}", self._next("owner")])
        gang, group = self._random.choice([("", "")] * 4 + [("ring", ""), ("tree", ""), ("", ALL), ("", SINGLE)])
        shares = self._random.random() < 0.3
        first: Held | None = None
        for _ in range(self._random.randint(1, 4) if owner else 1):
            name = f"pod-{self._random.randrange(40)}"
            if (namespace, name) in self.pods:
                continue
            pod = self._pod_beside(first, name) if first is not None and shares else self._pod_in(pool, namespace, name)
            pod.gang, pod.group = gang, group
            self._admit(pod, owner)
            first = pod

    def join_claim(self) -> None:
        """A pod that comes later uses the claim of another one."""
        with_device = [pod for pod in self.pods.values() if pod.allocated]
        if with_device and len(self.pods) < PODS_MOST:
            other, name = self._random.choice(with_device), f"pod-{self._random.randrange(40)}"
            if (other.namespace, name) not in self.pods:
                pod = self._pod_beside(other, name)
                pod.returned = True
                self._admit(pod, "")

    def _pod_in(self, pool: Pool, namespace: str, name: str) -> Held:
        seconds = self._random.choice([0, 0, 0, 5, 15, FOR_EVER])
        place = pool.driver, pool.name, f"device-{self._random.randrange(pool.devices)}"
        return Held(namespace, name, "", place, seconds, stays=self._random.random() < 0.3, claim=self._next("claim"))

    def _pod_beside(self, other: Held, name: str) -> Held:
        """It uses the claim of the other one."""
        stays = self._random.random() < 0.3
        return Held(other.namespace, name, "", other.place, other.seconds, stays, other.claim)

    def _admit(self, pod: Held, owner: str) -> None:
        self._crowd.admit(pod, owner, ready=self._random.random() < 0.9)
        self.created["pod"] = self.created.get("pod", 0) + 1

    def end_pods(self) -> None:
        self._crowd.end(self.namespaces)

    def remove_pod(self) -> None:
        if self.pods:
            self._crowd.remove(self._random.choice(list(self.pods.values())))

    def deallocate(self) -> None:
        if self.pods:
            self._crowd.deallocate(self._random.choice(list(self.pods.values())))

    def hold_pod(self) -> None:
        if self.pods:
            pod = self._random.choice(list(self.pods.values()))
            self._crowd.hold(pod, held=not pod.hold)

    # --- rules -----------------------------------------------------------------------------------

    def add_rule(self) -> None:
        if not self.pools or len(self.rules) >= RULES_MOST:
            self.remove_rule()
            return
        pool = self._random.choice(list(self.pools.values()))
        selector = {"driver": pool.driver, "pool": pool.name, "device": f"device-{self._random.randrange(DEVICES)}"}
        for name in FIELDS[self._random.choice([1, 2, 3, 3]) :]:
            del selector[name]
        effect = self._random.choice(["NoExecute", "NoExecute", "NoSchedule", "None"])
        spec = {"deviceSelector": selector, "taint": {"key": "example.com/broken", "effect": effect}}
        name = self._next("rule")
        metadata = {"name": name, "annotations": self._rule_annotations()}
        self._know(self._client.create(RULES, {"metadata": metadata, "spec": spec}).object)

    def _rule_annotations(self) -> Json:
        soon = format_time(now() + timedelta(seconds=10))
        some: list[Json] = [{}, {}, {EVICT: "true"}, {RATE: "2"}, {EXPIRES: soon}]
        return self._random.choice(some)

    def change_rule(self) -> None:
        if not self.rules:
            return
        name = self._random.choice(list(self.rules))
        effect = self._random.choice(["NoExecute", "NoSchedule", "None"])
        patch: Json = {"spec": {"taint": {"effect": effect, "value": self._random.choice(["a", "b"])}}}
        if self._random.random() < 0.4:
            patch = {"metadata": {"annotations": {EVICT: self._random.choice(["true", None])}}}
        self._know(self._client.patch(f"{RULES}/{name}", patch).object)

    def _know(self, rule: Json) -> None:
        spec, annotations = rule["spec"], rule["metadata"].get("annotations", {})
        added = datetime.fromisoformat(spec["taint"]["timeAdded"])
        asks, expires = annotations.get(EVICT) == "true", EXPIRES in annotations
        selector, name = spec.get("deviceSelector", {}), rule["metadata"]["name"]
        self.rules[name] = RuleModel(selector, spec["taint"]["effect"], added, asks, expires)

    def remove_rule(self) -> None:
        if self.rules:
            self._remove_rule(self._random.choice(list(self.rules)))

    def _remove_rule(self, name: str) -> None:
        _ = self._client.delete(f"{RULES}/{name}").object
        del self.rules[name]

    # --- slices ----------------------------------------------------------------------------------

    def add_pool(self) -> None:
        if len(self.pools) >= POOLS_MOST:
            self.remove_pool()
            return
        name = self._next("pool")
        drivers = sorted({each.driver for each in self.pools.values()})
        driver = self._random.choice([*drivers, f"{self._next('driver')}.example.com"])
        self.pools[name] = Pool(driver, name, shares=self._random.random() < 0.4)
        self._publish(self.pools[name], [])

    def publish(self) -> None:
        """Other taints, or a new generation, with fewer devices or more."""
        if not self.pools:
            return
        pool = self._random.choice(list(self.pools.values()))
        if self._random.random() < 0.4:
            pool.generation += 1
            pool.devices = self._random.randint(1, DEVICES)
        devices = [f"device-{number}" for number in range(pool.devices)]
        self._publish(pool, self._random.sample(devices, self._random.randint(0, min(2, pool.devices))))

    def _publish(self, pool: Pool, tainted: list[str]) -> None:
        taint = {"key": "example.com/sick", "effect": self._random.choice(["NoExecute", "NoExecute", "NoSchedule"])}
        slices = slices_of(pool, taint, tainted)
        stored = [self._client.apply(f"{SLICES}/{name}", obj, field_manager="driver") for name, obj in slices.items()]
        pool.taints = dict(tainted_devices(stored[0].object))

    def _unpublish(self, name: str) -> None:
        for each in slices_of(self.pools.pop(name), {}, ()):
            _ = self._client.delete(f"{SLICES}/{each}").object

    def remove_pool(self) -> None:
        if len(self.pools) > 2:
            self._unpublish(self._random.choice(list(self.pools)))

    # --- budgets and policy ----------------------------------------------------------------------

    def add_budget(self) -> None:
        namespace, name = self._random.choice(list(self.namespaces)), self._next("budget")
        labels = self._random.choice([{}, {"app": f"owner-{self._random.randrange(4)}"}])
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
        collection = path("policy/v1", "poddisruptionbudgets", namespace=namespace)
        _ = self._client.create(collection, {"metadata": {"name": name}, "spec": spec}).object
        self.budgets.add((namespace, name))
        self._allow(namespace, name)

    def change_budget(self) -> None:
        if self.budgets:
            self._allow(*self._random.choice(sorted(self.budgets)))

    def _allow(self, namespace: str, name: str) -> None:
        url = path("policy/v1", "poddisruptionbudgets", namespace=namespace, name=name)
        allowed = self._random.choice([0, 0, 1, 5])
        counts = {"currentHealthy": 9, "desiredHealthy": 9 - allowed, "expectedPods": 9, "disruptionsAllowed": allowed}
        generation = self._client.get(url).object["metadata"]["generation"]
        patch = {"status": {**counts, "observedGeneration": generation, "disruptedPods": None}}
        _ = self._client.patch(f"{url}/status", patch).object

    def remove_budget(self) -> None:
        if self.budgets:
            self._drop_budget(*self._random.choice(sorted(self.budgets)))

    def _drop_budget(self, namespace: str, name: str) -> None:
        _ = self._client.delete(path("policy/v1", "poddisruptionbudgets", namespace=namespace, name=name)).object
        self.budgets.discard((namespace, name))

    def change_policy(self) -> None:
        choose = self._random.choice
        self.paused = not self.paused and self._random.random() < 0.25
        self._set_policy(
            policy_of(choose(PROFILES), choose(BREAKERS), limit=choose([None, None, 3]), pause=self.paused)
        )
        if self.paused:
            time.sleep(_PAUSES_SECONDS)

    # --- the end ---------------------------------------------------------------------------------

    def relent(self) -> None:
        """Nothing keeps a pod that is due any longer."""
        self.paused = False
        self._set_policy(LENIENT)
        for namespace, name in sorted(self.budgets):
            self._drop_budget(namespace, name)
        for name, held in self.namespaces.items():
            if held:
                self._hold_namespace(name, held=False)
            # pods of owners are never replaced, so with this label each evicted gang delays the next one by a minute
            self._label_namespace(name, None)
        for pod in self.pods.values():
            if pod.hold:
                self._crowd.hold(pod, held=False)

    def settle(self) -> None:
        """Pods that terminate end, and rules that have expired meanwhile are known to be taken back."""
        for name in list(self.rules):
            self._know(self._client.get(f"{RULES}/{name}").object)
        self.end_pods()

    def due_within(self, seconds: float) -> list[Held]:
        """The pods that have to go within so many seconds; if below zero, those that should have gone so long ago."""
        before = now() + timedelta(seconds=seconds)
        asked = {name for name, rule in self.rules.items() if rule.asks}
        pods = list(self.pods.values())
        own = [pod for pod in pods if self._free(pod) and not pod.returned and self._own_due(pod, asked) is not None]
        return [pod for pod in own if max(self._dues(together(pod, pods), asked)) < before]

    def clear(self) -> None:
        """Rules that act and taints in slices go, and one half of all other things; the other half is left as it is."""
        self.end_pods()
        for name, rule in list(self.rules.items()):
            if rule.effect != "None" or self._random.random() < 0.5:
                self._remove_rule(name)
        for number, pool in enumerate(list(self.pools.values())):
            if number % 2:
                self._publish(pool, [])
            else:
                self._unpublish(pool.name)
        for pod in list(self.pods.values())[::2]:
            self._crowd.remove(pod)


def _groups(namespace: str) -> str:
    return path("scheduling.k8s.io/v1beta1", "podgroups", namespace=namespace)
