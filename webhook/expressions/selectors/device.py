"""A device as a selector sees it. Source: DeviceMatches of k8s.io/dynamic-resource-allocation/cel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

from webhook.api.field import JSON
from webhook.expressions.selectors.measures import quantity_of, version_of
from webhook.expressions.selectors.values import DomainMap
from webhook.expressions.values import EvaluationError


class SelectedDevice:
    """The driver, attributes and capacity of a device. What a selector sees of them is made once, when it is needed.

    `attributes` and `capacity` are as in resource.k8s.io/v1: `{"model": {"string": "a100"}}`, `{"memory": {"value":
    "40Gi"}}`. Names without a domain belong to that of the driver. Both must not change afterwards.
    """

    def __init__(
        self,
        driver: str,
        attributes: Mapping[str, Mapping[str, JSON]] | None = None,
        capacity: Mapping[str, Mapping[str, JSON]] | None = None,
        *,
        allow_multiple_allocations: bool = False,
    ) -> None:
        self.driver = driver
        self.attributes = attributes or {}
        self.capacity = capacity or {}
        self.allow_multiple_allocations = allow_multiple_allocations

    @cached_property
    def variables(self) -> Mapping[str, Any]:
        """The variables of an expression. Raises EvaluationError, if an attribute has no value that can be read."""
        return {
            "device": {
                "driver": self.driver,
                "allowMultipleAllocations": self.allow_multiple_allocations,
                "attributes": self._by_domain(self.attributes, _attribute),
                "capacity": self._by_domain(self.capacity, _capacity),
            }
        }

    def _by_domain(self, values: Mapping[str, Mapping[str, JSON]], read: Callable[..., Any]) -> DomainMap:
        found = DomainMap()
        for name, value in values.items():
            domain, identifier = split_name(name, self.driver)
            found.setdefault(domain, {})[identifier] = read(name, value)
        return found

    def attribute(self, domain: str, identifier: str) -> Any:
        """What `device.attributes[domain].identifier` is. Raises EvaluationError, if there is none."""
        try:
            return self.variables["device"]["attributes"][domain][identifier]
        except KeyError:
            raise EvaluationError(f"no such key: {identifier}") from None


def split_name(name: str, driver: str) -> tuple[str, str]:
    """The domain and the identifier of an attribute."""
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def _version(name: str, text: Any) -> Any:
    found = version_of(text) if isinstance(text, str) else None
    if found is None:
        raise EvaluationError(f"attribute {name}: parse semantic version")
    return found


def _listed(name: str, values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise EvaluationError(f"attribute {name}: unsupported attribute value")
    return list(values)


_READ: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "ints": _listed,
    "bools": _listed,
    "strings": _listed,
    "versions": lambda name, values: [_version(name, value) for value in _listed(name, values)],
    "int": lambda _, value: value,
    "bool": lambda _, value: value,
    "string": lambda _, value: value,
    "version": _version,
}
"""In the order in which the server looks for a value."""


def _attribute(name: str, attribute: Mapping[str, JSON]) -> Any:
    for kind, read in _READ.items():
        value = attribute.get(kind)
        if value is not None:
            return read(name, value)
    raise EvaluationError(f"attribute {name}: unsupported attribute value")


def _capacity(name: str, capacity: Mapping[str, JSON]) -> Any:
    value = capacity.get("value")
    found = quantity_of(value if isinstance(value, str) else str(value or 0))
    if found is None:
        raise EvaluationError(f"capacity {name}: not a quantity")
    return found
