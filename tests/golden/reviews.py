"""Reviews made from a seed: objects that are wrong in some field, and right ones that policies have views on."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.apiserver.generator import creation
from tests.builders import (
    DRIVER,
    make_admission_request,
    make_alternatives,
    make_basic_device,
    make_claim,
    make_device,
    make_patch,
    make_request,
    make_rule,
    make_slice,
    make_template,
)
from webhook.validation.releases import NEWEST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.admission.review import AdmissionRequest

NODES: Final = 12
KEYS: Final = (
    *("ci.example.com/drain", "ci.example.com/pool-a", "ci.example.com/quarantine", "dedicated.example.com/team"),
    *("gpu.vendor.example/fatal", "gpu.vendor.example/update", "gpu.example.com/unhealthy", "other.example.org/x"),
)
EFFECTS: Final = ("NoExecute", "NoExecute", "NoSchedule", "None")
TIMES: Final = ("2026-06-01T12:00:00Z", "2026-06-01T11:59:30Z", "2025-01-01T00:00:00Z", None)
NAMESPACES: Final = ("ml", "ci-forks", "ci-builds", "kube-system", "team-climate", "vendor-gpu")
USERS: Final = (
    ("jane@example.com", ("system:authenticated",)),
    ("admin", ("system:masters", "system:authenticated")),
    ("ops", ("ci-admins", "gpu-admins", "system:authenticated")),
    ("system:serviceaccount:ci-health:reproducer", ("system:serviceaccounts", "system:authenticated")),
    ("system:serviceaccount:vendor-gpu:validator", ("system:serviceaccounts", "system:authenticated")),
    ("system:serviceaccount:device-taint-webhook:device-taint-webhook-evict", ("system:authenticated",)),
    ("system:serviceaccount:kube-system:resource-claim-controller", ("system:authenticated",)),
    ("system:node:node-1", ("system:nodes", "system:authenticated")),
)
CLASSES: Final = (DRIVER, "gpu.vendor.example", "fpga.example.com", "unknown")
EXPRESSIONS: Final = (
    f'device.attributes["{DRIVER}"].place == 0',
    f'device.driver == "{DRIVER}"',
    f'"{DRIVER}" in device.attributes && device.attributes["{DRIVER}"].place > 0',
    "device.allowMultipleAllocations",
    "nonsense(",
)


class Review(NamedTuple):
    """What a seed makes: manifests, and who sends them how."""

    new: Any
    old: Any
    options: dict[str, Any]

    def request(self) -> AdmissionRequest:
        """It, decoded as the server decodes it."""
        return make_admission_request(self.new, self.old, **self.options)


def review(seed: int) -> Review:
    """The same for the same seed."""
    rng = random.Random(seed)
    make = rng.choice((_wrong, rule, rule, _claim, _claim, template, _slice, patch, patch))
    new = make(rng)
    old = None
    if rng.random() < 0.3:
        old = make(rng)
        if (old["kind"], old["apiVersion"]) == (new["kind"], new["apiVersion"]):
            old["metadata"] = {**new["metadata"], **marks(rng)}
        else:
            old = None
    user, groups = rng.choice(USERS)
    options: dict[str, Any] = {"user": user, "groups": groups, "dryRun": rng.random() < 0.1}
    if old is not None:
        for each in (new, old):
            each["metadata"] = {**each["metadata"], "uid": "uid", "resourceVersion": "7"}
        if rng.random() < 0.15:
            new, options["operation"] = None, "DELETE"
    elif new["kind"] == "ResourceClaim" and rng.random() < 0.1:
        options["sub_resource"] = "status"
    return Review(new, old, options)


def _wrong(rng: random.Random) -> Any:
    kind = rng.choice(("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceTaintRule"))
    versions = ("v1", "v1alpha3") if kind == "DeviceTaintRule" else ("v1", "v1beta2", "v1beta1")
    return dict(creation(rng, kind, rng.choice(versions), NEWEST).object)


def some(rng: random.Random, make: Callable[[random.Random], Any], most: int) -> list[Any]:
    return [make(rng) for _ in range(rng.randint(0, most))]


def _fields(rng: random.Random, **choices: Sequence[Any]) -> dict[str, Any]:
    """One of the values of each field; it is left out where that is None."""
    chosen = {name: rng.choice(values) for name, values in choices.items()}
    return {name: value for name, value in chosen.items() if value is not None}


def _taint(rng: random.Random) -> Any:
    return _fields(rng, key=KEYS, effect=EFFECTS, value=(None, "climate", "v"), timeAdded=TIMES)


def toleration(rng: random.Random) -> Any:
    return _fields(
        rng,
        key=(*KEYS, None),
        operator=("Exists", "Equal"),
        value=(None, None, "climate"),
        effect=("NoExecute", "NoSchedule", None),
        tolerationSeconds=(None, None, 60, 900, 86400),
    )


def marks(rng: random.Random) -> dict[str, Any]:
    ours = {
        "evict": ("true", "false"),
        "confirm-impact": ("renew", "v1.1.2"),
        "evictions-per-second": ("5", "-1", "1000"),
        "expires-at": ("2026-06-02T00:00:00Z", "soon"),
        "not-before": ("2026-06-01T13:00:00Z", "late"),
        "softened-from": ("NoExecute", ""),
        "softened-keys": (KEYS[6],),
        "scope": ("hardware", "device"),
        "description": ("fans are loud",),
        "hold": ("debugging",),
        "ticket": ("OPS-1",),
    }
    chosen = rng.sample(sorted(ours), rng.choice((0, 0, 1, 2)))
    found = {f"devicetaint.io/{name}": rng.choice(ours[name]) for name in chosen}
    return {"annotations": found} if found else {}


def _meta(rng: random.Random, *, namespaced: bool = False) -> dict[str, Any]:
    named = {"generateName": "a-"} if rng.random() < 0.1 else {"name": rng.choice(("a", "unhealthy", "b"))}
    return {**named, **({"namespace": rng.choice(NAMESPACES)} if namespaced else {}), **marks(rng)}


def _place(rng: random.Random) -> dict[str, str]:
    pools = [f"node-{number}" for number in range(NODES)]
    return _fields(rng, driver=(DRIVER, DRIVER, None), pool=(*pools[:6], None, None), device=("gpu-0", None, None))


def _selectors(rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.6:
        return {}
    return {"selectors": [{"cel": {"expression": rng.choice(EXPRESSIONS)}}]}


def rule(rng: random.Random) -> Any:
    selector = rng.choice((_place(rng), _place(rng), _place(rng), {}, None))
    return make_rule(
        selector=selector, taint=_taint(rng), meta=_meta(rng), version=rng.choice(("v1", "v1", "v1alpha3"))
    )


def _request(rng: random.Random) -> Any:
    if rng.random() < 0.2:
        return make_alternatives(some(rng, toleration, 2), some(rng, toleration, 2))
    fields = _fields(
        rng, deviceClassName=CLASSES, adminAccess=(None, None, True), allocationMode=(None, "All"), count=(None, 2, 8)
    )
    return make_request(tolerations=some(rng, toleration, 3), **fields)


def _claim(rng: random.Random) -> Any:
    return make_claim(requests=[_request(rng)], meta=_meta(rng, namespaced=True), version=rng.choice(("v1", "v1beta2")))


def template(rng: random.Random) -> Any:
    return make_template(requests=[_request(rng)], meta=_meta(rng, namespaced=True))


def _slice(rng: random.Random) -> Any:
    old = rng.random() < 0.3
    make = make_basic_device if old else make_device
    devices = [make(f"gpu-{at}", some(rng, _taint, 2), attributes={"place": {"int": at}}) for at in range(2)]
    pool = f"node-{rng.randrange(NODES)}"
    return make_slice(devices, version="v1beta1" if old else "v1", pool=pool, node_name=pool, meta={"name": pool})


def patch(rng: random.Random) -> Any:
    chosen = rng.choice(({**_place(rng), **_selectors(rng)}, {**_fields(rng, deviceClassName=CLASSES)}, None, {}))
    fields = _fields(rng, priority=(None, -1, 5, 1001))
    if rng.random() < 0.3:
        fields["attributes"] = {f"{DRIVER}/place": rng.choice(({"int": 3}, {"string": "x"}, {}))}
    return make_patch(filter_=chosen, meta=_meta(rng), taints=some(rng, _taint, 2), **fields)
