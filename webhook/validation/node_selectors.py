"""On which nodes devices are: node names and node selectors.

Source: pkg/apis/core/validation (ValidateNodeSelector).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.api.field import FieldError, forbidden, invalid, required
from webhook.validation.formats import dns1123_subdomain, each_invalid, label_key, label_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.validation.nodes import Node

_LISTED: Final = frozenset({"In", "NotIn"})
_BARE: Final = frozenset({"Exists", "DoesNotExist"})
_COMPARED: Final = frozenset({"Gt", "Lt"})


def node_name_errors(holder: Node, detail: str) -> Iterator[FieldError]:
    """A node's name; `detail` is the message for an empty one."""
    name = holder.get("nodeName")
    if name == "":
        yield invalid(holder.at("nodeName"), "", detail)
    elif name is not None:
        yield from each_invalid(holder.at("nodeName"), name, dns1123_subdomain(name))


def node_selector_errors(selector: Node) -> Iterator[FieldError]:
    """A node selector: its terms, and every requirement in them."""
    terms = selector.entries("nodeSelectorTerms")
    if not terms:
        yield required(selector.at("nodeSelectorTerms"), "must have at least one node selector term")
    for term in terms:
        for requirement in term.entries("matchExpressions"):
            yield from _expression_errors(requirement)
        for requirement in term.entries("matchFields"):
            yield from _field_errors(requirement)


def _expression_errors(requirement: Node) -> Iterator[FieldError]:
    operator, values, path = requirement.text("operator"), requirement.texts("values"), requirement.at("values")
    if operator in _LISTED:
        if not values:
            yield required(path, "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in _BARE:
        if values:
            yield forbidden(path, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in _COMPARED:
        if len(values) != 1:
            yield required(path, "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid(requirement.at("operator"), operator, "not a valid selector operator")
    yield from each_invalid(requirement.at("key"), requirement.text("key"), label_key(requirement.text("key")))
    for position, value in enumerate(values):
        yield from each_invalid(path.index(position), value, label_value(value))


def _field_errors(requirement: Node) -> Iterator[FieldError]:
    operator, values, path = requirement.text("operator"), requirement.texts("values"), requirement.at("values")
    if operator not in _LISTED:
        yield invalid(requirement.at("operator"), operator, "not a valid selector operator")
    elif len(values) != 1:
        yield required(path, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
    if requirement.text("key") != "metadata.name":
        yield invalid(requirement.at("key"), requirement.text("key"), "not a valid field selector key")
        return
    for position, value in enumerate(values):
        yield from each_invalid(path.index(position), value, dns1123_subdomain(value))
