"""The objects of a dump, and what `status` and `explain` keep of them or of those of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from webhook.api.decode import Reader
from webhook.api.pods import HOLD, DisruptionBudget, Pod, decode_budget
from webhook.commands.shared.entries import unreadable_row
from webhook.files.manifests import held_in, labels_of
from webhook.files.read import read
from webhook.inventory.state import Inventory
from webhook.policy.match import NamespaceFacts
from webhook.policy.model import NAMESPACE_NAME_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.api.field import FieldError
    from webhook.files.read import Manifest
    from webhook.files.report import Row
    from webhook.inventory.state import InventoryObject

_BUDGET: Final = ("policy/v1", "PodDisruptionBudget")
_NAMESPACE: Final = ("v1", "Namespace")
StatusObject: TypeAlias = "InventoryObject | HeldNamespace | DisruptionBudget"


def objects_in(names: Iterable[str], rows: list[Row]) -> Iterator[Manifest]:
    """Yield all objects in files; files that cannot be read become rows."""
    for file in read(names):
        if (unreadable := unreadable_row(file)) is not None:
            rows.append(unreadable)
        yield from file.manifests


class HeldNamespace(NamedTuple):
    """A namespace and the text of its `/hold`; None without one."""

    facts: NamespaceFacts
    hold: str | None


def object_in(value: Any) -> tuple[StatusObject | None, list[FieldError]]:
    """Return what `status` keeps of an object, None if nothing, and the wrong types in it."""
    errors: list[FieldError] = []
    kind = (value.get("apiVersion"), value.get("kind")) if isinstance(value, dict) else None
    if kind == _BUDGET:
        return decode_budget(Reader.of(value, errors)), errors
    if kind == _NAMESPACE:
        meta = Reader.of(value, errors).meta()
        labels = labels_of(value) | {NAMESPACE_NAME_LABEL: meta.name}
        return HeldNamespace(NamespaceFacts(meta.name, labels), meta.annotations.get(HOLD)), errors
    return held_in(value)


@dataclass(slots=True)
class StatusObjects:
    """Objects of one moment. It also is the worker's port for budgets (`eviction.ports.PodBudgets`)."""

    inventory: Inventory = field(default_factory=Inventory)
    namespaces: dict[str, HeldNamespace] = field(default_factory=dict)
    budgets: dict[str, dict[str, DisruptionBudget]] = field(default_factory=dict)
    """By namespace and name."""

    def add(self, found: StatusObject) -> None:
        """Add an object; of two with the same name the last counts."""
        match found:
            case HeldNamespace(facts):
                self.namespaces[facts.name] = found
            case DisruptionBudget(meta):
                self.budgets.setdefault(meta.namespace, {})[meta.name] = found
            case other:
                self.inventory.apply(None, other)

    def facts_of(self, namespace: str) -> NamespaceFacts | None:
        """Return the name and labels of a namespace, if it is known."""
        known = self.namespaces.get(namespace)
        return None if known is None else known.facts

    def hold_of(self, namespace: str) -> str | None:
        """Return the text of `/hold` on a namespace; None without one."""
        known = self.namespaces.get(namespace)
        return None if known is None else known.hold

    # --- budgets ---------------------------------------------------------------------------------

    def select(self, pod: Pod) -> tuple[DisruptionBudget, ...]:
        """Return the budgets that select the pod, by name."""
        labels = dict(pod.labels)
        known = sorted(self.budgets.get(pod.meta.namespace, {}).items())
        return tuple([each for _, each in known if each.selector is not None and each.selector.matches(labels)])

    def find(self, namespace: str, name: str) -> DisruptionBudget | None:
        """Return the budget of that name, if there is one."""
        return self.budgets.get(namespace, {}).get(name)
