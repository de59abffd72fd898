"""What manifests say about a cluster: a dump, or the Namespaces and DeviceClasses that stand among other files.

`kubectl get resourceclaimtemplates,resourceclaims,namespaces,deviceclasses -A -o yaml` makes a dump. Nothing is
judged here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from webhook.api.meta import GROUP, GroupVersionKind
from webhook.expressions.drivers import drivers_of
from webhook.policy.model import NAMESPACE_NAME_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.files.read import Manifest

_AUDITED: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate"})
_NAMESPACE: Final = GroupVersionKind("", "v1", "Namespace")


@dataclass(slots=True)
class Dump:
    """`namespaces` are labels by name; `device_classes` drivers by name, None for any; the rest as it stood."""

    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    device_classes: dict[str, frozenset[str] | None] = field(default_factory=dict)
    claims: list[Manifest] = field(default_factory=list)
    """Claims and templates, in the order of the files."""
    others: list[Manifest] = field(default_factory=list)

    def add(self, manifests: Iterable[Manifest]) -> None:
        """More manifests; of two with the same name the last counts."""
        for manifest in manifests:
            value = manifest.value
            kind = _kind_of(value)
            if kind == _NAMESPACE:
                name = _name_of(value)
                self.namespaces[name] = labels_of(value) | {NAMESPACE_NAME_LABEL: name}
            elif kind is not None and kind.group == GROUP and kind.kind == "DeviceClass":
                self.device_classes[_name_of(value)] = class_drivers(value)
            elif kind is not None and kind.group == GROUP and kind.kind in _AUDITED:
                self.claims.append(manifest)
            else:
                self.others.append(manifest)


def labels_of(value: Any) -> dict[str, str]:
    """The labels of an object, as far as they are text."""
    labels = _object(_object(value, "metadata"), "labels")
    return {key: text for key, text in labels.items() if isinstance(text, str)}


def class_drivers(value: Any) -> frozenset[str] | None:
    """The drivers behind a DeviceClass; None where its selectors do not say, so any."""
    selectors = _object(value, "spec").get("selectors")
    if not isinstance(selectors, list):
        return None
    expressions = [_object(selector, "cel").get("expression") for selector in selectors]
    return drivers_of([expression for expression in expressions if isinstance(expression, str)])


def _kind_of(value: Any) -> GroupVersionKind | None:
    if not isinstance(value, dict):
        return None
    version, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return None
    return GroupVersionKind.parse(version, kind)


def _name_of(value: Any) -> str:
    name = _object(value, "metadata").get("name")
    return name if isinstance(name, str) else ""


def _object(value: Any, name: str) -> dict[str, Any]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
