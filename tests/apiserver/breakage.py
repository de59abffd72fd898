"""Objects with something broken anywhere in them: rich valid ones, changed in one to four places.

A change drops a field, repeats or multiplies list entries, renames a map's key, or puts a hostile value in place of one
of the same type, now and then of another. Nothing here knows the rules, so what they say of it is a surprise.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.apiserver.generator import GROUP, NAMESPACE, NAMESPACED, Case
from tests.selectors import corpus
from webhook.expressions.selectors.checker import OPTIONAL_OF_UNKNOWN
from webhook.expressions.selectors.faults import FaultKind, SelectorFault
from webhook.expressions.selectors.selector import compile_selector
from webhook.expressions.selectors.values import UNHASHABLE

JSON = Any
Place = tuple[Any, Any]
"""A container and the key or position in it."""

_TEXTS = [
    *("", "x", "gpu", "gpu/small", "gpu/other", "a/b/c", "UPPER", "Upper.example.com/x", "example.com/model"),
    *("example.com/", "/model", "a b", "-", "a.b", "x" * 33, "x" * 63, "x" * 64, "x" * 254),
    *("example.com/" + "x" * 33, "x" * 64 + ".com/model", "é", "é" * 32, "All", "ExactCount", "In", "Exists", "Gt"),
    *("1.2.3", "v1", "1.2", "true", "NoSchedule", "metadata.name", "kubernetes.io/hostname", "orphan"),
    *("foregroundDeletion", "device.driver == 'x'", "device.driver ==", "10"),
]
_WORDS = ["device", "driver", "true", "1", "1u", '"a"', "[", "]", "(", ")", "==", "&&", ".", "?", "!", "in"]
_NUMBERS = [0, 1, 2, -1, 33, 2**31, 2**63 - 1, -(2**63)]
_QUANTITIES = ["0", "1", "2", "4", "8", "10", "-1", "500m", "1500m", "8Gi", "1e3", "40Gi", 3, 1.5, "1n", "100E"]
_QUANTITY_FIELDS = frozenset({"value", "min", "max", "step", "default", "perPod", "perContainer"})
_OTHER_TYPES = ["text", 5, 1.5, True, [], {}, None, ["x"], [None], {"x": None}]
_COUNTS = [2, 3, 4, 5, 8, 9, 32, 33]
_MANY_DEVICES = [64, 65, 128, 129]
_FIXED = frozenset({"apiVersion", "kind", "namespace"})
"""Fields of the root that say which request is sent."""


def exact(**fields: JSON) -> dict[str, JSON]:
    """A request for devices with everything in it."""
    return {
        "deviceClassName": "gpu.example.com",
        "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}],
        "allocationMode": "ExactCount",
        "count": 2,
        "tolerations": [{"key": "example.com/a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}],
        "capacity": {"requests": {"memory": "8Gi", "example.com/bandwidth": "1G"}},
        **fields,
    }


def claim_spec(version: str) -> dict[str, JSON]:
    """A claim's specification that is right."""
    derived = {"name": "example.com/model", "expression": '"a100"'}
    whole = exact(adminAccess=True, derivedAttributes=[{**derived}])
    return {
        "devices": {
            "requests": [
                {"name": "all", **(whole if version == "v1beta1" else {"exactly": whole})},
                {
                    "name": "gpu",
                    "firstAvailable": [exact(name="large", derivedAttributes=[{**derived}]), exact(name="small")],
                },
                {
                    "name": "plain",
                    **(
                        {"deviceClassName": "a", "allocationMode": "All"}
                        if version == "v1beta1"
                        else {"exactly": {"deviceClassName": "a", "allocationMode": "All"}}
                    ),
                },
            ],
            "constraints": [
                {"requests": ["all", "gpu/large"], "matchAttribute": "example.com/model"},
                {"distinctAttribute": "example.com/model"},
            ],
            "config": [
                {"requests": ["gpu"], "opaque": {"driver": "gpu.example.com", "parameters": {"kind": "X", "n": [1]}}},
                {"opaque": {"driver": "GPU.example.com", "parameters": {}}},
            ],
        }
    }


def metadata(namespaced: bool) -> dict[str, JSON]:  # noqa: FBT001 -- one of a few
    """Metadata with everything in it that tools write."""
    meta: dict[str, JSON] = {
        "name": "broken",
        "labels": {"app": "x", "example.com/team": "ml"},
        "annotations": {"example.com/note": "text", "plain": ""},
        "finalizers": ["example.com/keep"],
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "1", "controller": True},
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "2", "blockOwnerDeletion": True},
        ],
    }
    if namespaced:
        meta["namespace"] = NAMESPACE
    return meta


def node_selector() -> dict[str, JSON]:
    """A selector with each sort of requirement."""
    return {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a", "b"]},
                    {"key": "gpu", "operator": "Exists"},
                    {"key": "size", "operator": "Gt", "values": ["10"]},
                ],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}],
            }
        ]
    }


def full_device(name: str) -> dict[str, JSON]:
    """A device with everything in it."""
    ranged = {"default": "4", "validRange": {"min": "2", "max": "8", "step": "2"}}
    listed = {"default": "4", "validValues": ["2", "4", "8"]}
    return {
        "name": name,
        "attributes": {
            "model": {"string": "a100"},
            "example.com/index": {"int": 3},
            "fast": {"bool": False},
            "driver": {"version": "1.2.3"},
            "links": {"strings": ["a", "b"]},
            "sizes": {"ints": [1, 2]},
            "firmware": {"versions": ["1.0.0"]},
            "flags": {"bools": [True]},
        },
        "capacity": {
            "memory": {"value": "40Gi"},
            "ranged": {"value": "10", "requestPolicy": ranged},
            "listed": {"value": "10", "requestPolicy": listed},
        },
        "consumesCounters": [
            {"counterSet": "set", "counters": {"slices": {"value": "2"}}, "compatibilityGroups": ["a"]}
        ],
        "taints": [{"key": "example.com/a", "effect": "NoSchedule", "value": "v"}],
        "bindsToNode": True,
        "bindingConditions": ["example.com/ready"],
        "bindingFailureConditions": ["example.com/failed"],
        "allowMultipleAllocations": True,
        "nodeAllocatableResources": {
            "cpu": {"mapping": {"capacityKey": "ranged", "capacityMultiplier": "2"}, "overhead": {"perPod": "1"}},
            "memory": {"mapping": {"deviceMultiplier": "1Gi"}},
        },
    }


def slice_spec(version: str, choice: int) -> dict[str, JSON]:
    """A slice's specification that is right, in one of four forms."""
    spec: dict[str, JSON] = {
        "driver": "gpu.example.com",
        "pool": {"name": "pool/a", "generation": 1, "resourceSliceCount": 2},
    }
    devices = [full_device("gpu-0"), {"name": "gpu-1", "attributes": {"model": {"string": "x"}}}]
    if choice == 0:
        spec["nodeName"] = "node-1"
        spec["skipNodeOperations"] = ["*"]
    elif choice == 1:
        spec["nodeSelector"] = node_selector()
    elif choice == 2:
        spec["perDeviceNodeSelection"] = True
        devices[0]["nodeSelector"] = node_selector()
        devices[1]["nodeName"] = "node-1"
        devices.append({"name": "gpu-2", "allNodes": True})
        spec["partitionTypeAttribute"] = "gpu.example.com/model"
    else:
        spec["allNodes"] = True
        spec["sharedCounters"] = [
            {"name": "set", "counters": {"slices": {"value": "8"}, "other": {"value": "1Gi"}}},
            {"name": "more", "counters": {"a": {"value": 1}}},
        ]
        return spec
    spec["devices"] = devices
    if version == "v1beta1":
        spec["devices"] = [{"name": each.pop("name"), "basic": each} for each in devices]
    return spec


def rule_spec() -> dict[str, JSON]:
    """A rule's specification that is right."""
    return {
        "deviceSelector": {"driver": "gpu.example.com", "pool": "pool", "device": "gpu-0"},
        "taint": {"key": "example.com/a", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
    }


def whole_object(kind: str, version: str, rng: random.Random) -> dict[str, JSON]:
    """An object that is right, with everything in it that a release newer than all of ours has."""
    specs: dict[str, Callable[[], dict[str, JSON]]] = {
        "ResourceClaim": lambda: claim_spec(version),
        "ResourceClaimTemplate": lambda: {
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": claim_spec(version),
        },
        "ResourceSlice": lambda: slice_spec(version, rng.randrange(4)),
        "DeviceTaintRule": rule_spec,
    }
    spec = copy.deepcopy(specs[kind]())
    meta = metadata(kind in NAMESPACED)
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": meta, "spec": spec}


def repeats_owners(value: JSON) -> bool:
    """Whether two owner references of an object may be the same."""
    owners = (value.get("metadata") or {}).get("ownerReferences") or []
    uids = [(each or {}).get("uid") or "" for each in owners if each is None or isinstance(each, dict)]
    return len(set(uids)) < len(uids)


def _expressions() -> list[str]:
    """Selectors of tests/selectors that we can evaluate; what others mean is the server's affair."""
    return [text for text in corpus.expressions() if not _is_left_out(text)]


def _is_left_out(text: str) -> bool:
    """What we cannot evaluate, and what a server closes the connection at, as its compiler panics."""
    found = compile_selector(text)
    if not isinstance(found, SelectorFault):
        return False
    panics = found.detail == OPTIONAL_OF_UNKNOWN or UNHASHABLE in found.detail
    return panics or found.kind is FaultKind.UNSUPPORTED


def _with_selectors(value: JSON, expressions: list[str], rng: random.Random) -> None:
    """Other expressions in some requests of a claim, as they are or with something changed in them."""
    places = [(holder, key) for holder, key in _places(value) if key == "expression"]
    for holder, key in rng.sample(places, rng.randint(1, len(places))):
        text = rng.choice(expressions)
        text = text if rng.random() < 0.6 else changed_text(text, rng)
        holder[key] = "true" if _is_left_out(text) else text


def changed_text(text: str, rng: random.Random) -> str:
    """A word or a sign of the text dropped, repeated, or replaced by another."""
    words = re.findall(r"\w+|\s+|.", text) or [""]
    at = rng.randrange(len(words))
    other = rng.choice(
        [*words, "device", "driver", "true", "1", "1u", '"a"', "[", "]", "(", ")", "==", "&&", ".", "?", "!", "in"]
    )
    words[at : at + 1] = rng.choice([[], [words[at]] * 2, [other]])
    return "".join(words)


def has_selectors(value: JSON) -> bool:
    """Whether a selector is among what an object has."""
    return any(key == "cel" for _, key in _places(value))


def broken_cases(seed: int, served: dict[str, tuple[str, ...]], count: int) -> Iterator[Case]:
    """That many cases; the same ones for the same seed."""
    rng = random.Random(seed)
    weights = {"ResourceClaim": 5, "ResourceClaimTemplate": 3, "ResourceSlice": 7, "DeviceTaintRule": 1}
    sorts = [(kind, version) for kind, weight in weights.items() for version in served[kind] for _ in range(weight)]
    expressions = _expressions()
    for _ in range(count):
        kind, version = rng.choice(sorts)
        value = whole_object(kind, version, rng)
        if kind in NAMESPACED and rng.random() < 0.5:
            _with_selectors(value["spec"], expressions, rng)
        for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, 4])):
            _break(value, rng)
        yield Case(kind, version, value)


def _break(value: dict[str, JSON], rng: random.Random) -> None:
    places = [
        place for name in ("metadata", "spec") if isinstance(value.get(name), dict) for place in _places(value[name])
    ]
    if not places:
        return
    holder, key = rng.choice(places)
    if key in _FIXED:
        return
    choice = rng.random()
    if isinstance(holder, dict) and choice < 0.2:
        del holder[key]
    elif choice < 0.3:
        _multiply(holder, key, rng)
    elif isinstance(holder, dict) and choice < 0.4:
        holder[rng.choice(_TEXTS)] = copy.deepcopy(holder[key]) if rng.random() < 0.5 else holder.pop(key)
    elif choice < 0.43:
        holder[key] = copy.deepcopy(rng.choice(_OTHER_TYPES))
    else:
        holder[key] = _other(holder[key], key, rng)


def _places(value: JSON) -> Iterator[Place]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in list(entries):
        yield value, key
        if key != "parameters":
            yield from _places(entry)


def _multiply(holder: JSON, key: Any, rng: random.Random) -> None:
    """A list gets longer, by copies that keep their names or get new ones."""
    entry = holder[key]
    if isinstance(entry, list) and entry:
        counts = _MANY_DEVICES if key == "devices" else _COUNTS
        renamed = rng.random() < 0.7
        for number in range(rng.choice(counts) - len(entry)):
            entry.append(_renamed(entry[0], number) if renamed else copy.deepcopy(entry[0]))
    elif isinstance(entry, dict) and entry:
        first = next(iter(entry))
        for number in range(rng.choice([1, 2, 32, 33, 48])):
            entry[f"{first}{number}"] = copy.deepcopy(entry[first])
    elif isinstance(entry, str):
        holder[key] = entry * rng.choice([2, 40])


def _renamed(entry: JSON, number: int) -> JSON:
    if isinstance(entry, str):
        return f"{entry}{number}"
    new = copy.deepcopy(entry)
    for name in ("name", "counterSet"):
        if isinstance(new, dict) and isinstance(new.get(name), str):
            new[name] += str(number)
    return new


def _other(value: JSON, key: Any, rng: random.Random) -> JSON:
    if key in _QUANTITY_FIELDS or str(key).endswith("Multiplier"):
        return rng.choice(_QUANTITIES)
    others: dict[type, Callable[[], JSON]] = {
        bool: lambda: not value,
        str: lambda: rng.choice(_TEXTS),
        int: lambda: rng.choice(_NUMBERS),
        list: lambda: [] if rng.random() < 0.7 else list(reversed(value)),
        dict: dict,
    }
    return others[type(value)]() if type(value) in others else value
