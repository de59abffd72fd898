"""The contents of manifests: a cluster's dump (or Namespaces and DeviceClasses among other files), and policies.

`kubectl get resourceclaimtemplates,resourceclaims,namespaces,deviceclasses -A -o json` makes a dump for audits,
`kubectl get resourceslices,devicetaintrules,resourceclaims,pods -A -o json` one for previews; PodGroups are read where
there are any. Nothing is judged here. A policy is YAML or JSON that `policy.document` reads, with every error at its
position; no state is kept between calls, so a server may call it from a thread.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import structs

from webhook.api.claims import ResourceClaim, decode_stored_claim, demand_in
from webhook.api.decode import Reader
from webhook.api.field import ErrorType, FieldError, Finding, Path, Severity, forbidden, invalid, required, too_long
from webhook.api.meta import GROUP, OWN_GROUP, GroupVersionKind
from webhook.api.names import OWN_NAMESPACE
from webhook.api.offers import BESIDE_DEVICES
from webhook.api.patches import ResourceSlicePatch, decode_first_revision_patch, decode_patch
from webhook.api.pods import POD_GROUPS, decode_pod, decode_pod_group
from webhook.api.rules import decode_rule
from webhook.api.slices import DeviceClassSelectors, ResourceSlice, decode_device_class, decode_slice
from webhook.expressions.drivers import drivers_in_manifest
from webhook.files.read import Manifest, documents
from webhook.files.spots import Document, Unreadable, explained, path_of
from webhook.inventory.state import Inventory, InventoryObject
from webhook.policy.document import Loaded, load
from webhook.policy.lint import MISREAD
from webhook.policy.model import KIND, NAMESPACE_NAME_LABEL
from webhook.policy.schema import PHASE

T = TypeVar("T")

CONFIRMED: Final = frozenset({"DeviceTaintRule", "ResourceSlicePatch"})
"""Kinds that may carry a confirmation."""
CLAIMS: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate"})
"""Kinds that ask for devices, which are in a namespace and audited."""
_NAMESPACE: Final = GroupVersionKind("", "v1", "Namespace")
_NODE: Final = GroupVersionKind("", "v1", "Node")
_DECODERS: Final[Mapping[tuple[str, str], Callable[[Reader], InventoryObject]]] = {
    (GROUP, "ResourceSlice"): decode_slice,
    (GROUP, "DeviceTaintRule"): decode_rule,
    (GROUP, "ResourceClaim"): decode_stored_claim,
    ("", "Pod"): decode_pod,
    (POD_GROUPS[0], "PodGroup"): decode_pod_group,
}
"""By group and kind, whatever the version: one that is newer than this code must not read as nothing."""
PatchingObject: TypeAlias = ResourceSlicePatch | DeviceClassSelectors
KeptObject: TypeAlias = InventoryObject | PatchingObject
_BESIDE: Final[Mapping[tuple[str, str], Callable[[Reader], PatchingObject]]] = {
    (GROUP, "ResourceSlicePatch"): decode_first_revision_patch,
    (OWN_GROUP, "ResourceSlicePatch"): decode_patch,
    (GROUP, "DeviceClass"): decode_device_class,
}
"""The kinds that only patches need, in the same way."""
_AUDIT_NEEDS: Final = {
    "ResourceClaim": "ResourceClaims, so none were checked",
    "ResourceClaimTemplate": "ResourceClaimTemplates, so none were checked",
    "Namespace": "Namespaces, so their labels are unknown",
    "DeviceClass": "DeviceClasses, so the drivers behind them are unknown",
}
_RELEASE_NEEDS: Final = {
    "DeviceTaintRule": "DeviceTaintRules, so what they would do on servers of that version is unknown",
    "ResourceSlice": "ResourceSlices, so what their taints would do there, and which devices rules close, is unknown",
}


@dataclass(slots=True)
class Dump:
    """`namespaces` are labels by name; `device_classes` drivers by name, None for any; the rest as it stood."""

    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    terminating: set[str] = field(default_factory=set)
    """Of the namespaces, those that are being deleted."""
    device_classes: dict[str, frozenset[str] | None] = field(default_factory=dict)
    claims: list[Manifest] = field(default_factory=list)
    """Claims and templates, in the order of the files."""
    others: list[Manifest] = field(default_factory=list)

    def add(self, manifests: Iterable[Manifest]) -> None:
        """Add manifests; of two with the same name the last counts."""
        for manifest in manifests:
            value = manifest.value
            kind = kind_of(value)
            if kind == _NAMESPACE:
                name = text(meta(value), "name")
                self.namespaces[name] = labels_of(value) | {NAMESPACE_NAME_LABEL: name}
                if meta(value).get("deletionTimestamp"):
                    self.terminating.add(name)
            elif kind.group == GROUP and kind.kind == "DeviceClass":
                self.device_classes[text(meta(value), "name")] = drivers_in_manifest(value)
                self.others.append(manifest)
            elif kind.group == GROUP and kind.kind in CLAIMS:
                self.claims.append(manifest)
            else:
                self.others.append(manifest)


@dataclass(slots=True)
class Stock:
    """Slices, rules, claims, pods and PodGroups of manifests, as an inventory. `kinds` counts them."""

    inventory: Inventory = field(default_factory=Inventory)
    kinds: Counter[str] = field(default_factory=Counter)
    malformed: list[tuple[Manifest, FieldError]] = field(default_factory=list)
    """Objects with a field of a wrong type, which no server stores; they are left out."""
    patches: dict[str, ResourceSlicePatch] = field(default_factory=dict)
    """By name."""
    classes: dict[str, DeviceClassSelectors] = field(default_factory=dict)
    """By name."""
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    """Labels by name, of nodes that take pods; only if `whole`."""
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    """Labels by name; only if `whole`."""
    whole: bool = False
    """Whether claims are kept with what they ask for, and slices with what they offer."""

    def add(self, manifests: Iterable[Manifest]) -> None:
        """Add manifests; of two with the same name the last counts."""
        for manifest in manifests:
            value, errors = self.kept(manifest.value)
            if value is None:
                continue
            self.kinds[manifest.value["kind"]] += 1
            if errors:
                self.malformed.append((manifest, errors[0]))
            else:
                self.put(value)

    def kept(self, value: Any, path: Path | None = None) -> tuple[KeptObject | None, list[FieldError]]:
        """Return what to put here of an object, and the wrong types in it; nodes and namespaces are added at once."""
        held, errors = held_in(value, path)
        if held is not None:
            return (with_demand(held, value) if self.whole and not errors else held), errors
        if self.whole and kind_of(value) == _NODE:
            self.kinds["Node"] += 1
            if not child(value, "spec").get("unschedulable"):
                self.nodes[text(meta(value), "name")] = labels_of(value)
        if self.whole and kind_of(value) == _NAMESPACE:
            name = text(meta(value), "name")
            self.namespaces[name] = labels_of(value) | {NAMESPACE_NAME_LABEL: name}
        return patching_object_in(value, path)

    def put(self, value: KeptObject) -> None:
        """Add what was kept."""
        if isinstance(value, ResourceSlicePatch):
            self.patches[value.meta.name] = value
        elif isinstance(value, DeviceClassSelectors):
            self.classes[value.name] = value
        else:
            self.inventory.apply(None, value)


def with_demand(value: InventoryObject, written: Mapping[str, Any]) -> InventoryObject:
    """Return a claim with what it asks for, and a slice with what it offers, as it is written."""
    if isinstance(value, ResourceClaim):
        devices = child(child(written, "spec"), "devices")
        asked = {name: devices.get(name) for name in ("requests", "constraints")}
        return structs.replace(value, demand=demand_in(json.dumps(asked).encode()))
    if isinstance(value, ResourceSlice):
        spec = child(written, "spec")
        return structs.replace(value, beside_devices={name: spec[name] for name in BESIDE_DEVICES if name in spec})
    return value


def held_in(value: Any, path: Path | None = None) -> tuple[InventoryObject | None, list[FieldError]]:
    """Return what an inventory keeps of the object at `path`, None if nothing, and the wrong types in it."""
    return _decoded(_DECODERS, value, path)


def patching_object_in(value: Any, path: Path | None = None) -> tuple[PatchingObject | None, list[FieldError]]:
    """Return a ResourceSlicePatch or DeviceClass of any version, None for other kinds, and the wrong types in it."""
    return _decoded(_BESIDE, value, path)


def _decoded(
    decoders: Mapping[tuple[str, str], Callable[[Reader], T]], value: Any, path: Path | None = None
) -> tuple[T | None, list[FieldError]]:
    kind = kind_of(value)
    decode = decoders.get((kind.group, kind.kind)) if says_version(value) else None
    errors: list[FieldError] = []
    return (None if decode is None else decode(Reader.of(value, errors, path))), errors


def lacking(dump: Dump, *, releases: bool) -> Iterator[str]:
    """Tell the kinds that a dump for audits lacks (of another release if `releases`), and what is unknown for that."""
    kinds = {kind_of(each.value).kind for each in (*dump.claims, *dump.others) if says_version(each.value)}
    found = {"Namespace": dump.namespaces, "DeviceClass": dump.device_classes, **dict.fromkeys(kinds, True)}
    for kind, needed in (_AUDIT_NEEDS | (_RELEASE_NEEDS if releases else {})).items():
        if not found.get(kind):
            yield f"the dump has no {needed}"


def labels_of(value: Any) -> dict[str, str]:
    """Return the labels of an object that are text."""
    return {key: label for key, label in child(meta(value), "labels").items() if isinstance(label, str)}


def kind_of(value: Any) -> GroupVersionKind:
    """Return the kind of an object with its group and version, as far as they are given."""
    said = value if isinstance(value, dict) else {}
    return GroupVersionKind.parse(text(said, "apiVersion"), text(said, "kind"))


def says_version(value: Any) -> bool:
    """Tell whether an object has an apiVersion, without which its kind is of no group."""
    return isinstance(value, dict) and isinstance(value.get("apiVersion"), str)


def meta(value: Any) -> dict[str, Any]:
    """Return the metadata of an object, empty if it has none."""
    return child(value, "metadata")


def child(value: Any, name: str) -> dict[str, Any]:
    """Return a field that is an object; anything else reads as empty."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def text(value: Mapping[str, Any], name: str) -> str:
    """Return a text field; anything else reads as empty."""
    found = value.get(name)
    return found if isinstance(found, str) else ""


Check = Callable[[str], None]

MAX_BYTES: Final = 512 * 1024
"""The limit for a policy's text: half the size of a ConfigMap, so that a candidate fits, too."""
_ROOT: Final = Path.root()
_LONGEST_LINE: Final = 80
_MOST_DUPLICATES: Final = 100
"""The most duplicate keys that are reported."""
_MOST_REMARKS: Final = 10


def read_policy(
    content: str, at: Path = _ROOT, check: Check = lambda _: None, namespace: str = OWN_NAMESPACE
) -> Loaded:
    """Read the policy in a text, YAML or JSON; faults of either are errors at `at` that name line and column.

    A text of more than MAX_BYTES is refused unread. `check` is called with the phase's name between steps and may
    raise to stop; nothing else is raised. `namespace` is the one of our own service accounts, which no policy may lock
    out.
    """
    if len(content) > MAX_BYTES or len(content.encode(errors="replace")) > MAX_BYTES:
        return _refused(too_long(at, MAX_BYTES))
    check(PHASE)
    found = list(islice(documents(content), 2))
    check(PHASE)
    if not found:
        return _refused(required(at, f"must be a document of kind {KIND}"))
    document = found[0]
    if isinstance(document, Unreadable):
        line, column = document.position or (1, 1)
        text = "".join(content.splitlines()[line - 1 : line]).strip()
        return _refused(invalid(at, text[:_LONGEST_LINE], f"line {line}, column {column}: {document.message}"))
    if len(found) > 1:
        return _refused(forbidden(at, "must be one document, not several"))
    return _loaded(document, at, check, namespace)


def _refused(*errors: FieldError) -> Loaded:
    return Loaded(None, errors)


def _loaded(document: Document, at: Path, check: Check, namespace: str) -> Loaded:
    loaded = load(document.value, at, check, namespace)
    twice = tuple(
        FieldError(
            ErrorType.DUPLICATE,
            path_of(problem.steps, at),
            problem.steps[-1],
            f"line {problem.position.line}, column {problem.position.column}: {problem.message}",
        )
        for problem in islice(document.problems, _MOST_DUPLICATES)
    )
    errors = tuple([explained(error, document.spot, at) for error in loaded.errors])
    remarks = tuple(
        Finding(Severity.WARN, forbidden(path_of(problem.steps, at), problem.message), MISREAD)
        for problem in islice(document.remarks, _MOST_REMARKS)
    )
    return Loaded(None if twice else loaded.policy, twice + errors, remarks + loaded.warnings)
