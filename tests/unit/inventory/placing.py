"""Small clusters in JSON for questions about placement: node n1 with a taint on its devices, and where its pods go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from webhook.api.taints import DeviceTaint
from webhook.files.manifests import Stock
from webhook.files.read import Manifest
from webhook.files.spots import NOWHERE
from webhook.inventory.placement import PodPlacement, Seeker, freed_claims, placements
from webhook.inventory.supply import Supply
from webhook.inventory.targets import DeviceNames

Json = dict[str, Any]
VERSION: Final = "resource.k8s.io/v1"
DRIVER: Final = "d.example.com"
TAINTED: Final = "n1"
TAINT: Final = DeviceTaint("maint", "", "NoExecute")
_POD: Final = {"apiVersion": "v1", "kind": "Pod", "controller": True}
NODES: Final = {"n1": {"zone": "a"}, "n2": {"zone": "b"}}
ALL: Final[Json] = {"allocationMode": "All"}


def device(name: str, model: str = "a", **content: Any) -> Json:
    """A device with a model."""
    return {"name": name, "attributes": {"model": {"string": model}}, **content}


def pool(name: str, devices: int | Sequence[Json], number: int = 0, slices: int = 1, **content: Any) -> Json:
    """A slice of a pool; on the node of its name unless something else is said."""
    listed = [device(f"{name}-{at}") for at in range(devices)] if isinstance(devices, int) else list(devices)
    at = (
        {}
        if content.keys() & {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"}
        else {"nodeName": name}
    )
    held = {"name": name, "generation": 1, "resourceSliceCount": slices}
    spec = {"driver": DRIVER, "pool": held, "devices": listed, **at, **content}
    return {"apiVersion": VERSION, "kind": "ResourceSlice", "metadata": {"name": f"{name}-{number}"}, "spec": spec}


def device_class(name: str = "gpu", *expressions: str) -> Json:
    """A class of the driver's devices."""
    texts = [f'device.driver == "{DRIVER}"', *expressions]
    selectors = [{"cel": {"expression": each}} for each in texts]
    return {"apiVersion": VERSION, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": selectors}}


def ask(name: str = "r", device_class: str = "gpu", *expressions: str, **content: Any) -> Json:
    """A request."""
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return {"name": name, "exactly": {"deviceClassName": device_class, "selectors": selectors, **content}}


def user(
    name: str,
    held: Iterable[str] = (),
    *requests: Json,
    node: str = TAINTED,
    constraints: Sequence[Json] = (),
    own: bool = True,
    used: Sequence[str] = (),
    generated: bool = True,
    owner: str = "ReplicaSet",
    priority: int = 0,
) -> list[Json]:
    """A pod and, if `own`, its claim with devices, each as `pool/device`, for the first request; `used`: others'."""
    asked = list(requests) or [ask()]
    first = asked[0]["name"]
    if "firstAvailable" in asked[0]:
        first = f"{first}/{asked[0]['firstAvailable'][0]['name']}"
    admin = {"adminAccess": True} if asked[0].get("exactly", {}).get("adminAccess") else {}
    results = [
        {"request": first, "driver": DRIVER, "pool": each.partition("/")[0], "device": each.partition("/")[2], **admin}
        for each in held
    ]
    me = {"resource": "pods", "name": name, "uid": name}
    objects: list[Json] = []
    if own:
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": [me]} if results else {}
        objects.append(
            {
                "apiVersion": VERSION,
                "kind": "ResourceClaim",
                "metadata": {
                    "name": name,
                    "namespace": "ns",
                    "uid": f"claim-{name}",
                    "ownerReferences": [{**_POD, "name": name, "uid": name}] if generated else [],
                },
                "spec": {"devices": {"requests": asked, "constraints": list(constraints)}},
                "status": status,
            }
        )
    uses = [{"name": each, "resourceClaimName": each} for each in [*[name][:own], *used]]
    references = [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o", "controller": True}]
    metadata = {"name": name, "namespace": "ns", "uid": name, "ownerReferences": references}
    spec = {"nodeName": node, "resourceClaims": uses, "priority": priority}
    objects.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}})
    return objects


def sharing(objects: list[Json]) -> list[Json]:
    """The same, with each claim reserved for every pod that names it."""
    for claim in [each for each in objects if each["kind"] == "ResourceClaim"]:
        name = claim["metadata"]["name"]
        pods = [
            pod["metadata"]["name"]
            for pod in objects
            if pod["kind"] == "Pod" and any(each["resourceClaimName"] == name for each in pod["spec"]["resourceClaims"])
        ]
        if claim["status"]:
            claim["status"]["reservedFor"] = [{"resource": "pods", "name": each, "uid": each} for each in pods]
    return objects


def told(
    objects: Iterable[Json],
    *,
    nodes: Mapping[str, Mapping[str, str]] | None = NODES,
    out: str = "out",
    classes_known: bool = True,
    tainted: DeviceNames | None = None,
    go_on: Callable[[], Any] = lambda: True,
) -> tuple[PodPlacement, ...]:
    """What is said of the pods whose names begin with `out`, once the devices of n1 have the taint."""
    stock = Stock(whole=True)
    stock.add([Manifest("here", number, each, NOWHERE) for number, each in enumerate(objects)])
    assert not stock.malformed
    inventory = stock.inventory
    pods = [pod for name, pod in inventory.pods.items() if name.startswith(f"ns/{out}")]
    seekers = [Seeker.of(pod, inventory.claims_of(pod)) for pod in pods]
    supply = Supply(
        inventory,
        classes=stock.classes if classes_known else None,
        nodes=nodes,
        freed=freed_claims(seekers, {pod.meta.uid for pod in pods}),
        taints=[(tainted or DeviceNames(DRIVER, TAINTED, None), TAINT)],
        go_on=go_on,
    )
    return placements(inventory, seekers, supply)


def of_model(model: str) -> str:
    """An expression for devices of a model."""
    return f'device.attributes["{DRIVER}"].model == "{model}"'


def choice(*alternatives: Json) -> Json:
    """A request with alternatives."""
    entries = [{"name": f"s{at}", "deviceClassName": "gpu", **each} for at, each in enumerate(alternatives)]
    return {"name": "r", "firstAvailable": entries}


class Row(NamedTuple):
    """Objects beside the class `gpu`, and how many of the pods `out...` find a place, none, and are not known."""

    name: str
    objects: list[Json]
    said: tuple[int, int, int]
    why: str = ""
    never: bool = False


def judge(row: Row, **options: Any) -> None:
    """Compare what is said of the pods with the row."""
    results = told([device_class(), *row.objects], **options)
    said = tuple(sum(getattr(each, name) for each in results) for name in ("found", "none", "unknown"))
    whys = " and ".join(each.why for each in results if each.why)
    assert (said, [each.never for each in results if each.none]) == (row.said, [row.never] * bool(row.said[1])), whys
    assert row.why in whys
    assert bool(row.said[2]) == bool(whys)
