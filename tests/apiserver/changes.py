"""Updates made at random: a stored object, changed in one way or another."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

from tests.apiserver.generator import Case, Maker, put
from tests.apiserver.values import (
    BAD_EFFECTS,
    BAD_KEYS,
    BAD_VALUES,
    GOOD_KEYS,
    GOOD_TIMES,
    GOOD_VALUES,
)
from webhook.validation.releases import Release

JSON = Any


def update(
    rng: random.Random,
    kind: str,
    version: str,
    stored: Mapping[str, Mapping[str, JSON]],
    release: Release,
) -> Case:
    """A change of one of the stored objects, which are given as the server shows them in this version."""
    maker = Maker(rng, rng.choice([4, 12, 30]), release)
    name = rng.choice(sorted(stored))
    new = copy.deepcopy(dict(stored[name]))
    meta = new["metadata"]
    if maker.chance(25):
        del meta["resourceVersion"]
    if maker.chance(4):
        meta["annotations"] = {"touched": "yes"}
    has_status = kind == "ResourceClaim" or (kind == "DeviceTaintRule" and release.rule_status)
    status = has_status and maker.chance(3)
    if status:
        _change_status(maker, kind, new)
    elif not maker.chance(6):
        {
            "ResourceClaim": lambda: _change_claim(maker, new["spec"], version),
            "ResourceClaimTemplate": lambda: _change_claim(maker, new["spec"]["spec"], version),
            "ResourceSlice": lambda: _change_slice(maker, new["spec"], version),
            "DeviceTaintRule": lambda: _change_rule(maker, new["spec"]),
        }[kind]()
    return Case(kind, version, new, name, status)


def _change_status(maker: Maker, kind: str, new: dict[str, JSON]) -> None:
    if kind == "DeviceTaintRule":
        new["status"] = {"conditions": maker.conditions()}
        if maker.chance(4):
            new["spec"]["taint"]["key"] = "not/judged/here"
        return
    status = new.setdefault("status", {})
    choice = maker.rng.randint(0, 3)
    if choice == 0:
        status.pop("allocation", None)
    elif choice > 1 or "allocation" not in status:
        status["allocation"] = maker.allocation()


def _change_claim(maker: Maker, spec: dict[str, JSON], version: str) -> None:
    request = maker.rng.choice(spec["devices"]["requests"])
    alternatives = request.get("firstAvailable")
    holder = alternatives[0] if alternatives else request.get("exactly", request)
    choice = maker.rng.randint(0, 4)
    tolerations = holder.get("tolerations") or []
    if choice == 0 and not tolerations:
        holder["tolerations"] = []  # means the same
    elif choice == 1:
        for toleration in tolerations:  # a default left out means the same
            if toleration.get("operator") == "Equal":
                del toleration["operator"]
    elif choice == 2:
        holder["tolerations"] = [*tolerations, maker.toleration()]
    elif choice == 3 and tolerations:
        holder["tolerations"] = tolerations[1:]
    else:
        spec["devices"]["requests"].append(maker.request(version, "more"))


def _change_slice(maker: Maker, spec: dict[str, JSON], version: str) -> None:
    choice = maker.rng.randint(0, 8)
    devices = spec.get("devices") or []
    device = maker.rng.choice(devices) if devices else None
    content = None if device is None else (device.setdefault("basic", {}) if version == "v1beta1" else device)
    taints = [] if content is None else content.get("taints") or []
    if choice == 0:
        spec["driver"] = maker.rng.choice(["other.example.com", "gpu.example.com"])
    elif choice == 1:
        spec["pool"]["name"] = maker.rng.choice(["other", "pool"])
    elif choice == 2:
        put(spec, "nodeName", maker.rng.choice(["node-1", "node-0"]))
    elif device is None or content is None or choice == 3:
        spec["devices"] = [*devices, maker.device(version, f"new-{len(devices)}")]
    elif choice == 4:
        device["name"] = "renamed"
    elif choice == 5 and taints:
        put(taints[0], "effect", maker.pick(maker.effects, BAD_EFFECTS[:-1]))
    elif choice == 6 and taints:
        taints[0].pop("timeAdded", None)
    elif choice == 7:
        content["taints"] = taints[1:]
    else:
        content["taints"] = [*taints, maker.taint()]


def _change_rule(maker: Maker, spec: dict[str, JSON]) -> None:
    choice = maker.rng.randint(0, 5)
    taint = spec.setdefault("taint", {})
    if choice == 0:
        put(taint, "effect", maker.pick(maker.effects, BAD_EFFECTS[:-1]))
    elif choice == 1:
        taint.pop("timeAdded", None)
        put(taint, "timeAdded", maker.pick(GOOD_TIMES))
    elif choice == 2:
        put(taint, "value", maker.pick(GOOD_VALUES, BAD_VALUES))
    elif choice == 3:
        put(taint, "key", maker.pick(GOOD_KEYS, BAD_KEYS))
    elif choice == 4:
        stored = (spec.get("deviceSelector") or {}).get("selectors")
        spec["deviceSelector"] = maker.selector()
        if stored and maker.chance(2):
            spec["deviceSelector"]["selectors"] = stored  # unchanged, so not compiled again
    else:
        put(taint, "effect", maker.pick(maker.effects))
        put(taint, "timeAdded", "2026-02-02T02:02:02Z")
