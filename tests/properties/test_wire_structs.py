"""What is held of objects off the wire is what the decoders of reviews and files give, in every version."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.builders import (
    make_basic_device,
    make_consumer,
    make_device,
    make_rule,
    make_scheduler_claim,
    make_slice,
    without_none,
)
from tests.properties.strategies import right_keys, right_taints, toleration_lists
from tests.unit.cluster.held import held
from webhook.api.claims import EXTENDED_RESOURCE, FROM_TEMPLATE, classes_only, decode_claim
from webhook.api.decode import Reader
from webhook.api.offers import BESIDE_DEVICES
from webhook.api.pods import GANG, HOLD, MIRROR
from webhook.api.slices import decode_slice
from webhook.cluster.cache.decoders import (
    AskingClaimWire,
    ClaimWire,
    ClassedClaimWire,
    RuleWire,
    SliceWire,
    WholeSliceWire,
)
from webhook.cluster.cache.pods import PodGroupWire, PodWire
from webhook.files.manifests import with_demand
from webhook.inventory.pools import Pool, Pools
from webhook.patches.published import published_devices

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from webhook.inventory.state import InventoryObject

Json = dict[str, Any]

_WIRE: Final[dict[str, Any]] = {
    "ResourceClaim": ClaimWire,
    "ResourceSlice": SliceWire,
    "DeviceTaintRule": RuleWire,
    "Pod": PodWire,
    "PodGroup": PodGroupWire,
}
_names: Final = st.sampled_from(("a", "b", "gpu-0", "node-0", "ü"))
_flags: Final = st.sampled_from((None, True, False))


def kept(manifest: Json) -> InventoryObject:
    """As the reflector keeps it."""
    text = json.dumps(manifest, ensure_ascii=False).encode()
    value: InventoryObject = msgspec.json.decode(text, type=_WIRE[manifest["kind"]]).to_value()
    return value


def _some(**fields: SearchStrategy[Any]) -> SearchStrategy[Json]:
    """An object in which each field may be missing; nothing in it is null but where the strategy says so."""
    return st.fixed_dictionaries({}, optional=fields)


def _lists(entries: SearchStrategy[Any], most: int = 3) -> SearchStrategy[Any]:
    """A list, or null, as Go writes an empty one that must not be left out."""
    return st.none() | st.lists(entries, max_size=most)


_owners: Final = _lists(
    _some(
        apiVersion=st.sampled_from(("v1", "scheduling.k8s.io/v1beta1", "scheduling.k8s.io", "")),
        kind=_names | st.just("PodGroup"),
        name=_names,
        uid=_names,
        controller=_flags,
        blockOwnerDeletion=_flags,
    )
)
_metadata: Final = _some(
    name=_names,
    generateName=_names,
    namespace=_names,
    uid=_names,
    resourceVersion=st.sampled_from(("1", "20")),
    generation=st.integers(0, 3),
    creationTimestamp=st.sampled_from((None, "2026-06-01T12:00:00Z")),
    deletionTimestamp=st.just("2026-06-01T12:00:00Z"),
    labels=st.none() | st.dictionaries(_names, _names, max_size=3),
    ownerReferences=_owners,
    annotations=st.dictionaries(
        st.sampled_from((EXTENDED_RESOURCE, FROM_TEMPLATE, GANG, HOLD, MIRROR, "devicetaint.io/evict", "x")),
        st.sampled_from(("true", "false", "")),
        max_size=3,
    ),
    managedFields=_lists(_some(fieldsV1=st.just({"f:a": {}}), manager=_names), 1),
)
_documented: Final = st.fixed_dictionaries(
    {"key": right_keys},
    optional={"data": st.just({"a": [1]}), "description": _names, "evictionsPerSecond": st.integers(0, 9)},
)
_taints: Final = _lists(right_taints | _documented)
_results: Final = _lists(
    _some(request=_names, driver=_names, pool=_names, device=_names, tolerations=toleration_lists, adminAccess=_flags)
)
_consumers: Final = _lists(_some(apiGroup=_names, resource=st.sampled_from(("pods", "x")), name=_names, uid=_names))
_status: Final = _some(
    allocation=st.none() | _some(devices=_some(results=_results, config=_lists(_some()))),
    reservedFor=_consumers,
    devices=_lists(_some(data=_some(x=_names)), 1),
)


@st.composite
def _claims(draw: st.DrawFn, version: str) -> Json:
    claim = {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceClaim", "metadata": draw(_metadata)}
    request = {"name": "r", "deviceClassName": "gpu", "tolerations": draw(toleration_lists)}
    claim["spec"] = {"devices": {"requests": [request if version == "v1beta1" else {"name": "r", "exactly": request}]}}
    status = draw(st.none() | _status)
    return claim if status is None and draw(st.booleans()) else claim | {"status": status}


_counter_uses: Final = _lists(st.none() | _some(counterSet=_names, counters=st.just({"memory": {"value": "8Gi"}})), 2)


@st.composite
def _slice_specs(draw: st.DrawFn) -> tuple[list[Json], Json]:
    """Devices without their shape, and the rest."""
    devices = [
        without_none({"name": name, "taints": draw(_taints), "counters": draw(_counter_uses)})
        for name in draw(st.lists(_names, max_size=4, unique=True))
    ]
    rest = draw(
        _some(
            taints=_lists(_some(device=_names, taint=right_taints)),
            sharedCounters=_lists(_some(name=_names) | st.none(), 2),
            partitionTypeAttribute=st.sampled_from(("gpu.example.com/type", "")),
        )
    )
    pool = draw(_some(name=_names, generation=st.integers(0, 3), resourceSliceCount=st.integers(0, 3)))
    return devices, rest | {"pool": pool}


def _slice(devices: list[Json], rest: Json, metadata: Json, version: str) -> Json:
    make = make_basic_device if version == "v1beta1" else make_device
    listed = [
        make(each["name"], each.get("taints"), attributes={"a": {"int": 1}}, consumesCounters=each.get("counters"))
        for each in devices
    ]
    manifest = make_slice(listed, version=version, meta=metadata)
    return manifest | {"spec": manifest["spec"] | rest}


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@given(st.data())
def test_claims(version: str, data: st.DataObject) -> None:
    manifest = data.draw(_claims(version))
    assert kept(manifest) == held(manifest)


@given(
    st.sampled_from(("p-extended-resources-x7k2p", "p-extended-x7k2p", "p")),
    st.sampled_from(("container-0-request-{}", "container-{}-request-1", "gpu-{}")),
    st.dictionaries(
        st.sampled_from((EXTENDED_RESOURCE, EXTENDED_RESOURCE, FROM_TEMPLATE)),
        st.sampled_from(("true", "")),
        max_size=2,
    ),
    st.none() | toleration_lists,
    st.sampled_from((("p",), (), ("p", "q"), ("q",))),
)
def test_claims_for_extended_resources(
    name: str, request: str, annotations: Json, tolerations: Any, users: tuple[str, ...]
) -> None:
    manifest = make_scheduler_claim(
        "p",
        "node-0/a",
        "node-0/b",
        name=name,
        request=request,
        annotations=annotations,
        tolerations=tolerations,
        consumers=[make_consumer(user) for user in users],
    )
    assert kept(manifest) == held(manifest)


_alternatives: Final = st.lists(_some(name=_names, deviceClassName=_names, tolerations=toleration_lists), max_size=2)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@given(_metadata, st.lists(st.tuples(_names, _names, _alternatives, st.booleans()), max_size=3))
def test_claims_with_their_classes(version: str, metadata: Json, wanted: list[tuple[str, str, Any, bool]]) -> None:
    requests = []
    for name, device_class, alternatives, exact in wanted:
        asked = {"deviceClassName": device_class, "tolerations": [{"operator": "Exists"}], "selectors": [{"cel": {}}]}
        several = {"name": name, "firstAvailable": alternatives}
        flat = version == "v1beta1"
        requests.append(several if not exact else {"name": name, **(asked if flat else {"exactly": asked})})
    manifest = {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": requests, "config": []}},
    }
    value = msgspec.json.decode(json.dumps(manifest).encode(), type=ClassedClaimWire).to_value()
    full = decode_claim(Reader.of(manifest, []))
    assert value == structs.replace(kept(manifest), requests=classes_only(full.requests))
    exactly = [(each.name, each.exactly.device_class_name) for each in value.requests if each.exactly]
    assert exactly == [(name, device_class) for name, device_class, _, exact in wanted if exact]
    again = msgspec.json.decode(json.dumps(manifest).encode(), type=ClassedClaimWire).to_value()
    assert again.requests is value.requests
    asking = msgspec.json.decode(json.dumps(manifest).encode(), type=AskingClaimWire).to_value()
    assert asking == with_demand(value, manifest)


@given(_slice_specs(), _metadata)
def test_slices_of_all_versions_are_held_alike(spec: tuple[list[Json], Json], metadata: Json) -> None:
    found = []
    for version in ("v1", "v1beta2", "v1beta1"):
        manifest = _slice(*spec, metadata, version)
        found.append(kept(manifest))
        assert found[-1] == held(manifest)
    assert found[0] == found[1] == found[2]


@given(_slice_specs(), _metadata, st.sampled_from(("v1", "v1beta2", "v1beta1")))
def test_whole_slices_are_the_same_with_their_devices_as_bytes(
    spec: tuple[list[Json], Json], metadata: Json, version: str
) -> None:
    manifest = _slice(*spec, metadata, version)
    value = msgspec.json.decode(json.dumps(manifest).encode(), type=WholeSliceWire).to_value()
    assert structs.replace(value, raw_devices=None, beside_devices={}) == kept(manifest)
    beside = {name: manifest["spec"][name] for name in BESIDE_DEVICES if name in manifest["spec"]}
    assert (json.loads(value.beside_devices) if isinstance(value.beside_devices, bytes) else {}) == beside
    devices = manifest["spec"].get("devices")
    assert value.raw_devices is None or isinstance(value.raw_devices, bytes)
    assert (None if value.raw_devices is None else json.loads(value.raw_devices)) == devices
    identity = value.driver, value.pool
    full = decode_slice(Reader.of(manifest, []))
    pools = Pools(), Pools()
    for each, pool in zip((value, full), pools, strict=True):
        pool.apply(None, each)
    of_bytes, of_values = [list(published_devices(identity, pool.get(identity) or Pool())) for pool in pools]
    assert of_bytes == of_values


def test_slice_without_specification_has_no_devices() -> None:
    value = msgspec.json.decode(b'{"metadata":{"name":"s","uid":"u"}}', type=WholeSliceWire).to_value()
    assert (value.meta.name, value.devices, value.raw_devices) == ("s", (), None)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1alpha3"])
@given(
    _metadata,
    st.none() | _some(driver=_names, pool=_names, device=_names, deviceClassName=_names, all=_flags),
    right_taints | _documented,
    _lists(_some(type=_names, status=_names, observedGeneration=st.integers(0, 3))),
)
def test_rules(version: str, metadata: Json, selector: Json | None, taint: Json, conditions: Any) -> None:
    manifest = make_rule(selector=selector, taint=taint, version=version, meta=metadata) | {
        "status": {"conditions": conditions}
    }
    assert kept(manifest) == held(manifest)


_pod_claims: Final = _lists(_some(name=_names, resourceClaimName=_names, resourceClaimTemplateName=_names))
_pod_specs: Final = _some(
    nodeName=_names,
    priority=st.integers(-5, 5),
    restartPolicy=st.sampled_from(("Always", "OnFailure", "Never")),
    resourceClaims=_pod_claims,
    schedulingGroup=_some(podGroupName=_names),
    containers=_lists(_some(name=_names, image=_names)),
)
_pod_statuses: Final = _some(
    phase=st.sampled_from(("Pending", "Running", "Failed")),
    resourceClaimStatuses=_pod_claims,
    extendedResourceClaimStatus=_some(resourceClaimName=_names),
    conditions=_lists(_some(type=st.sampled_from(("Ready", "x")), status=st.sampled_from(("True", "False")))),
)


@given(_metadata, _pod_specs, _pod_statuses)
def test_pods(metadata: Json, spec: Json, status: Json) -> None:
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
    assert kept(manifest) == held(manifest)


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha3", "v1alpha2"])
@given(
    _metadata,
    st.none()
    | _some(
        disruptionMode=st.sampled_from(
            (None, "Pod", "PodGroup", "Other", {}, {"all": {}}, {"single": {}}, {"all": None})
        ),
        schedulingPolicy=st.just({"gang": {"minCount": 2}}),
    ),
)
def test_pod_groups(version: str, metadata: Json, spec: Json | None) -> None:
    manifest = {"apiVersion": f"scheduling.k8s.io/{version}", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    assert kept(manifest) == held(manifest)


@given(_claims("v1"))
def test_nothing_that_is_held_is_of_the_message(manifest: Json) -> None:
    """Equal lists are one list, and no annotation of a claim stays."""
    one, other = kept(manifest), kept(manifest)
    assert isinstance(one.meta.annotations, type(other.meta.annotations))
    assert one.meta.annotations is other.meta.annotations
    for first, second in zip(_allocation(one), _allocation(other), strict=True):
        assert first.tolerations is second.tolerations
        assert first.driver is second.driver


def _allocation(value: Any) -> Any:
    return value.allocation or ()


def test_equal_labels_of_pods_are_one_value() -> None:
    """Pods that differ in one label share the others."""
    first, second, third = [
        msgspec.json.decode(b'{"metadata":{"labels":{"app":"a","index":"%d"}}}' % index, type=PodWire).to_value().labels
        for index in (0, 0, 1)
    ]
    assert first is second
    assert first[0] is third[0]
    assert first[1] != third[1]
