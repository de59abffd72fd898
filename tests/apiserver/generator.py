"""Objects of every kind and version, right and wrong, made at random; a seed makes the same ones again.

Everything around taints and tolerations is right, so that a server's verdict is about them. A `Case` is what is
sent: an object, for an update with the name of the stored one it changes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.apiserver.values import (
    BAD_CLASSES,
    BAD_DEVICES,
    BAD_DRIVERS,
    BAD_EFFECTS,
    BAD_EXPRESSIONS,
    BAD_KEYS,
    BAD_NAMES,
    BAD_POOLS,
    BAD_TIMES,
    BAD_VALUES,
    DROP,
    GOOD_CLASSES,
    GOOD_DEVICES,
    GOOD_DRIVERS,
    GOOD_EXPRESSIONS,
    GOOD_KEYS,
    GOOD_NAMES,
    GOOD_POOLS,
    GOOD_TIMES,
    GOOD_VALUES,
)
from webhook.validation.releases import Release

JSON = Any

GROUP = "resource.k8s.io"
NAMESPACE = "default"
OBJECTS: Final = int(os.environ.get("GENERATED_OBJECTS", "20000"))
"""How many objects a comparison with an API server makes."""
SEED: Final = int(os.environ.get("GENERATED_SEED", "1"))
PLURALS = {
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "ResourceSlice": "resourceslices",
    "DeviceTaintRule": "devicetaintrules",
}
NAMESPACED = frozenset({"ResourceClaim", "ResourceClaimTemplate"})


@dataclass(frozen=True)
class Case:
    """One request. `stored` names the object an update changes; `status` means the status subresource."""

    kind: str
    version: str
    object: Mapping[str, JSON]
    stored: str = ""
    status: bool = False

    @property
    def plural(self) -> str:
        """The resource's name."""
        return PLURALS[self.kind]


def put(target: dict[str, JSON], name: str, value: JSON) -> None:
    """Set a field, or leave it out."""
    if value is not DROP:
        target[name] = value


class Maker:
    """Makes the parts of objects; `broken` is one in how many choices goes wrong."""

    def __init__(self, rng: random.Random, broken: int, release: Release) -> None:
        self.rng = rng
        self.broken = broken
        self.release = release
        self.effects = sorted(release.effects)

    def pick(self, good: Sequence[JSON], bad: Sequence[JSON] = ()) -> JSON:
        """A good value, or now and then a bad one."""
        if bad and self.chance(self.broken):
            return self.rng.choice(bad)
        return self.rng.choice(good)

    def chance(self, one_in: int) -> bool:
        """True once in so many times."""
        return self.rng.randrange(one_in) == 0

    def count(self, usual: int, edges: Sequence[int], one_in: int = 12) -> int:
        """A small number, or one of the edges."""
        return self.rng.choice(edges) if self.chance(one_in) else self.rng.randint(0, usual)

    def taint(self) -> dict[str, JSON]:
        taint: dict[str, JSON] = {}
        put(taint, "key", self.pick(GOOD_KEYS, [*BAD_KEYS, DROP]))
        put(taint, "value", self.pick([*GOOD_VALUES, DROP], BAD_VALUES))
        put(taint, "effect", self.pick(self.effects, BAD_EFFECTS))
        put(taint, "timeAdded", self.pick(GOOD_TIMES, BAD_TIMES if self.chance(4) else ()))
        return taint

    def toleration(self) -> dict[str, JSON]:
        toleration: dict[str, JSON] = {}
        operator = self.pick([DROP, "Equal", "Exists", "", None], ["Gt", "exists", "In"])
        put(toleration, "operator", operator)
        put(toleration, "key", self.pick([*GOOD_KEYS, "", DROP], BAD_KEYS[1:]))
        values = ["", DROP] if operator == "Exists" else [*GOOD_VALUES, DROP]
        put(toleration, "value", self.pick(values, [*BAD_VALUES, "v"]))
        put(toleration, "effect", self.pick([*self.effects, "", DROP], BAD_EFFECTS[1:-1]))
        seconds = [DROP, DROP, None, 0, -1, 3600, 2**62, 2**63 - 1]
        put(toleration, "tolerationSeconds", self.pick(seconds, ["5", 1.5, 2**63, True] if self.chance(6) else ()))
        return toleration

    def tolerations(self) -> JSON:
        if self.chance(8):
            return self.rng.choice([DROP, None, []])
        return [self.toleration() for _ in range(self.count(2, [0, 16, 17], 12))]

    def request(self, version: str, name: str) -> dict[str, JSON]:
        request: dict[str, JSON] = {"name": name}
        shape = self.rng.choice(["exactly", "exactly", "alternatives"])
        if shape == "alternatives":
            request["firstAvailable"] = [self.exact(f"alt-{index}") for index in range(self.rng.randint(1, 3))]
        elif version == "v1beta1":
            request |= self.exact(None)
        else:
            request["exactly"] = self.exact(None)
        return request

    def exact(self, name: str | None) -> dict[str, JSON]:
        exact: dict[str, JSON] = {} if name is None else {"name": name}
        exact["deviceClassName"] = "gpu.example.com"
        put(exact, "tolerations", self.tolerations())
        return exact

    def claim_spec(self, version: str) -> dict[str, JSON]:
        requests = [self.request(version, f"r{index}") for index in range(self.rng.randint(1, 2))]
        return {"devices": {"requests": requests}}

    def meta(self, *, namespaced: bool) -> dict[str, JSON]:
        meta: dict[str, JSON] = {}
        put(meta, "name", self.pick(GOOD_NAMES, BAD_NAMES if self.chance(3) else ()))
        if self.chance(10):
            put(meta, "generateName", self.pick(["pre-", "pre", "a.b-"], ["Pre-", "-"] if self.chance(2) else ()))
        if namespaced:
            meta["namespace"] = NAMESPACE
        return meta

    def selector(self) -> dict[str, JSON]:
        selector: dict[str, JSON] = {}
        put(selector, "driver", self.pick(GOOD_DRIVERS, BAD_DRIVERS))
        put(selector, "pool", self.pick(GOOD_POOLS, BAD_POOLS))
        put(selector, "device", self.pick(GOOD_DEVICES, BAD_DEVICES))
        if self.release.class_selectors:
            put(selector, "deviceClassName", self.pick([*GOOD_CLASSES, DROP, DROP], BAD_CLASSES))
            if self.chance(3):
                selector["selectors"] = [self.cel_selector() for _ in range(self.count(2, [32, 33], 10))]
        return selector

    def cel_selector(self) -> dict[str, JSON]:
        if self.chance(4 * self.broken):
            return {}
        return {"cel": {"expression": self.pick(GOOD_EXPRESSIONS, BAD_EXPRESSIONS)}}

    def rule_spec(self) -> dict[str, JSON]:
        spec: dict[str, JSON] = {}
        choice = self.rng.randint(0, 9)
        put(spec, "deviceSelector", {0: DROP, 1: None, 2: {}}.get(choice) if choice < 3 else self.selector())
        put(spec, "taint", self.rng.choice([DROP, {}, None]) if self.chance(40) else self.taint())
        return spec

    def device(self, version: str, name: str) -> dict[str, JSON]:
        content: dict[str, JSON] = {}
        if not self.chance(6):
            maximum = self.release.taints_per_device
            count = self.count(2, [maximum, maximum + 1], 25)
            taints: JSON = [self.taint() for _ in range(count)]
            if len(taints) > 1 and self.chance(6):
                taints[1] = taints[0]  # nothing has to be unique (T-10)
            put(content, "taints", taints or self.rng.choice([None, []]))
        return {"name": name, "basic": content} if version == "v1beta1" else {"name": name, **content}

    def slice_spec(self, version: str) -> dict[str, JSON]:
        spec: dict[str, JSON] = {
            "driver": self.pick(["gpu.example.com", "GPU.example.com"], ["", "a_b"] if self.chance(5) else ()),
            "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "node-0",
        }
        spec["devices"] = [self.device(version, f"d{index}") for index in range(self.count(2, [0], 20))]
        if self.chance(12):
            self.crowd(spec, version)
        if self.chance(25):
            self.share_counters(spec)
        return spec

    def crowd(self, spec: dict[str, JSON], version: str) -> None:
        """Fill up with devices to one of the limits; sometimes one has a feature that halves the limit (S-2)."""
        total = self.rng.choice([64, 65, 128, 129])
        devices = spec["devices"]
        if self.chance(2):
            devices.clear()
        for index in range(len(devices), total):
            content: dict[str, JSON] = {}
            devices.append({"name": f"d{index}", "basic": content} if version == "v1beta1" else {"name": f"d{index}"})
        features = ["", ""]
        features += ["counters"] if self.release.counters_apart else []
        features += ["lists"] if self.release.as_since_1_36 else []
        feature = self.rng.choice(features)
        last = devices[-1].setdefault("basic", {}) if version == "v1beta1" else devices[-1]
        if feature == "counters":
            last["consumesCounters"] = [{"counterSet": "set", "counters": {"c": {"value": "1"}}}]
        elif feature == "lists":
            last["attributes"] = {"example.com/a": {"strings": ["x"]}}

    def share_counters(self, spec: dict[str, JSON]) -> None:
        """Beside, or in place of, the devices (S-4)."""
        spec["sharedCounters"] = [{"name": "set", "counters": {"c": {"value": "1"}}}]
        choice = self.rng.randint(0, 3)
        if choice == 0:
            del spec["devices"]
        elif choice == 1:
            spec["devices"] = []

    def condition(self) -> dict[str, JSON]:
        condition: dict[str, JSON] = {}
        put(condition, "type", self.pick(["Ready", "example.com/Done", "A"], ["", "a b", DROP, "x/y/z"]))
        put(condition, "status", self.pick(["True", "False", "Unknown"], ["", "true", DROP]))
        put(condition, "reason", self.pick(["Fine", "A_b:c,d", "x" * 1024], ["", "1", "a b", "x" * 1025, "a:", DROP]))
        put(condition, "message", self.pick(["", "text", DROP, "m" * 32768], ["m" * 32769] if self.chance(2) else ()))
        put(condition, "lastTransitionTime", self.pick(["2026-01-01T00:00:00Z"], [None, DROP]))
        put(condition, "observedGeneration", self.pick([DROP, 0, 7], [-1]))
        return condition

    def conditions(self) -> list[JSON]:
        conditions = [self.condition() for _ in range(self.count(2, [8, 9], 10))]
        if not self.chance(self.broken):
            for index, condition in enumerate(conditions):
                if condition.get("type"):
                    condition["type"] = f"{condition['type'][:20]}{index}"
        return conditions

    def allocation(self) -> dict[str, JSON]:
        results: list[JSON] = []
        for index in range(self.rng.randint(1, 2)):
            result: dict[str, JSON] = {"request": "r0", "driver": "gpu.example.com", "pool": "p", "device": f"d{index}"}
            put(result, "tolerations", self.tolerations())
            results.append(result)
        return {"devices": {"results": results}}


def creation(rng: random.Random, kind: str, version: str, release: Release) -> Case:
    """An object to create."""
    maker = Maker(rng, rng.choice([4, 12, 30, 100]), release)
    spec: JSON
    if kind == "ResourceClaim":
        spec = maker.claim_spec(version)
    elif kind == "ResourceClaimTemplate":
        spec = {"spec": maker.claim_spec(version)}
    elif kind == "ResourceSlice":
        spec = maker.slice_spec(version)
    else:
        spec = maker.rule_spec()
    new = {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": maker.meta(namespaced=kind in NAMESPACED)}
    new["spec"] = spec
    if kind == "DeviceTaintRule" and maker.chance(12):
        new["status"] = {"conditions": maker.conditions()}  # dropped, so not judged
    return Case(kind, version, new)
