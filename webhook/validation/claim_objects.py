"""What an API server refuses in a claim or a template beyond tolerations.

Source: pkg/apis/resource/validation of Kubernetes 1.37 (validateDeviceClaim and below), and the declarative
validation of resource/v1, which reports an error at the path as written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from webhook.api.claims import is_flat
from webhook.api.field import FieldError, Path, forbidden, invalid, not_supported, required, too_long, too_many
from webhook.api.meta import FLAT_VERSIONS
from webhook.api.quantities import parse_quantity
from webhook.expressions.selectors.cost import MAX_COST
from webhook.validation.formats import (
    dns1123_label,
    dns1123_subdomain,
    each_invalid,
    fully_qualified_name,
    opaque_driver,
    qualified_name,
    size_bytes,
)
from webhook.validation.nodes import Node, list_errors, text_list_errors
from webhook.validation.releases import Release
from webhook.validation.rules import SELECTORS_MAX, ExpressionBudget

REQUESTS_MAX: Final = 32
ALTERNATIVES_MAX: Final = 8
CONSTRAINTS_MAX: Final = 32
CONFIG_MAX: Final = 32
DERIVED_MAX: Final = 32
CAPACITIES_MAX: Final = 32
PARAMETERS_MAX_BYTES: Final = 10 * 1024
_MODES: Final = ("All", "ExactCount")
_NOT_A_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_ONE_SHAPE: Final = "exactly one of `exactly` or `firstAvailable` is required"

Names = dict[str, frozenset[str]]
"""Each request with its alternatives."""


def claim_spec_errors(spec: Node, version: str, release: Release) -> Iterator[FieldError]:
    """The `spec` of a claim, in any version."""
    devices = spec.child("devices")
    names = {
        each.text("name"): frozenset(alternative.text("name") for alternative in each.entries("firstAvailable"))
        for each in devices.entries("requests")
    }
    attributes = DerivedAttributes(_matched_attributes(devices))
    yield from list_errors(
        devices,
        "requests",
        REQUESTS_MAX,
        lambda each: _request_errors(each, version, attributes, release),
        release,
        "name",
    )
    yield from list_errors(
        devices, "constraints", CONSTRAINTS_MAX, lambda each: _constraint_errors(each, names, release), release
    )
    yield from list_errors(devices, "config", CONFIG_MAX, lambda each: _config_errors(each, names, release), release)
    if attributes.cost > MAX_COST:
        detail = "too complex, total cost of derived attribute CEL expressions in the claim exceeds cost limit"
        yield forbidden(devices.path, detail)


# --- requests -----------------------------------------------------------------------------------


def _request_errors(
    request: Node, version: str, attributes: DerivedAttributes, release: Release
) -> Iterator[FieldError]:
    name = request.text("name")
    yield from each_invalid(request.at("name"), name, dns1123_label(name))
    flat = version in FLAT_VERSIONS
    exactly: Node | None = None
    if flat and is_flat(request.value):
        exactly = Node(request.value, request.path.only_normalized("exactly"))
    elif not flat and request.has("exactly"):
        exactly = request.child("exactly")
    alternatives = bool(request.get("firstAvailable"))
    if exactly is None and not alternatives:
        yield required(request.path, _ONE_SHAPE)
    elif exactly is not None and alternatives:
        # Releases before 1.35 go on and judge both.
        yield invalid(request.path, None, f"{_ONE_SHAPE}, but multiple fields are set")
    elif exactly is not None:
        yield from _device_class_errors(exactly, declarative=False)
        yield from _asked_errors(
            exactly, name, attributes, release, defaulted=not flat or bool(exactly.text("deviceClassName"))
        )
    else:
        yield from list_errors(
            request,
            "firstAvailable",
            ALTERNATIVES_MAX,
            lambda each: _alternative_errors(each, name, attributes, release),
            release,
            "name",
        )


def _alternative_errors(
    alternative: Node, above: str, attributes: DerivedAttributes, release: Release
) -> Iterator[FieldError]:
    name = alternative.text("name")
    yield from each_invalid(alternative.at("name"), name, dns1123_label(name))
    yield from _device_class_errors(alternative, declarative=release.declarative)
    yield from _asked_errors(alternative, f"{above}/{name}", attributes, release, defaulted=True)


def _device_class_errors(asked: Node, *, declarative: bool) -> Iterator[FieldError]:
    name, path = asked.text("deviceClassName"), asked.at("deviceClassName")
    if not name:
        yield required(path, declarative=declarative)
    else:
        yield from each_invalid(path, name, dns1123_subdomain(name), declarative=declarative)


def _asked_errors(
    asked: Node, name: str, attributes: DerivedAttributes, release: Release, *, defaulted: bool
) -> Iterator[FieldError]:
    """What an exact request and an alternative have in common. `defaulted`: the server completes mode and count."""
    yield from selector_list_errors(asked, release)
    yield from _derived_errors(asked, name, attributes, release)
    if release.capacity_requests_checked:
        yield from _capacity_errors(asked.child("capacity"), release)
    mode, count = asked.text("allocationMode"), asked.number("count")
    if defaulted:
        mode = mode or "ExactCount"
        count = count or (1 if mode == "ExactCount" else 0)
    if mode == "All":
        if count:
            yield invalid(asked.at("count"), count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount":
        if count <= 0:
            yield invalid(asked.at("count"), count, "must be greater than zero")
    else:
        declarative = release.declarative and bool(mode)
        yield not_supported(asked.at("allocationMode"), mode, _MODES, declarative=declarative)


def _capacity_errors(capacity: Node, release: Release) -> Iterator[FieldError]:
    """The capacities that a device must have, with their amounts."""
    amounts, path = capacity.get("requests") or {}, capacity.at("requests")
    for name in amounts:
        yield from qualified_name(path, name, release)
    if len(amounts) > CAPACITIES_MAX:
        yield too_many(path, len(amounts), CAPACITIES_MAX, declarative=True)
        return
    for name, amount in amounts.items():
        if (parse_quantity(amount) or 0) < 0:
            yield invalid(Path(path, f"[{name}]"), amount, "must be greater than or equal to 0", declarative=True)


def selector_list_errors(holder: Node, release: Release) -> Iterator[FieldError]:
    """CEL selectors: that they are there, fit, and compile."""
    selectors = holder.entries("selectors")
    if len(selectors) > SELECTORS_MAX:
        yield too_many(holder.at("selectors"), len(selectors), SELECTORS_MAX, declarative=release.declarative)
        return
    budget = ExpressionBudget()
    for selector in selectors:
        if not selector.has("cel"):
            yield required(selector.at("cel"))
            continue
        cel = selector.child("cel")
        yield from budget.selector_errors(cel.at("expression"), cel.text("expression"))


class DerivedAttributes:
    """What the attributes that a claim derives are judged by together.

    `matched` are those that constraints look at, by the request they name; `cost` is that of all expressions so far,
    which the server counts in 64 bits.
    """

    def __init__(self, matched: Mapping[str, set[str]]) -> None:
        self.matched = matched
        self.cost = 0
        self._budget = ExpressionBudget()

    def used_by(self, name: str) -> set[str]:
        """The attributes that constraints on a request, or on an alternative of one, look at."""
        return self._named("") | self._named(name) | self._named(name.partition("/")[0])

    def _named(self, name: str) -> set[str]:
        return self.matched.get(name, set())

    def expression_errors(self, path: Path, text: str) -> Iterator[FieldError]:
        """One expression; its cost is added."""
        for found in self._budget.derived_costs(path, text):
            if isinstance(found, int):
                self.cost = (self.cost + found) % 2**64
            else:
                yield found


def _derived_errors(asked: Node, name: str, attributes: DerivedAttributes, release: Release) -> Iterator[FieldError]:
    """Attributes that a request derives by CEL (1.37, alpha)."""
    count = len(asked.entries("derivedAttributes"))
    if count > DERIVED_MAX:
        yield too_many(asked.at("derivedAttributes"), count, DERIVED_MAX, declarative=True)
    used = attributes.used_by(name)
    yield from list_errors(
        asked,
        "derivedAttributes",
        None,
        lambda each: _one_derived_errors(each, used, attributes, release, crowded=count > DERIVED_MAX),
        replace(release, declarative=False),  # that names differ is checked after the conversion
        "name",
    )


def _one_derived_errors(
    derived: Node, used: set[str], attributes: DerivedAttributes, release: Release, *, crowded: bool
) -> Iterator[FieldError]:
    name, text = derived.text("name"), derived.text("expression")
    if name and name not in used:
        detail = "must be referenced by at least one matchAttribute or distinctAttribute constraint"
        yield invalid(derived.at("name"), name, f"{detail} targeting this request")
    if text:
        yield from attributes.expression_errors(derived.at("expression"), text)
    if crowded:
        return  # what is checked before the conversion stops at the length
    if not name:
        yield required(derived.at("name"), declarative=True)
    else:
        for error in fully_qualified_name(derived.at("name"), name, release):
            yield replace(error, declarative=True)
    if not text:
        yield required(derived.at("expression"), declarative=True)


# --- constraints and configuration --------------------------------------------------------------


def _matched_attributes(devices: Node) -> Mapping[str, set[str]]:
    """The attributes that constraints look at: by the request they name, under the empty name if they name none."""
    matched: dict[str, set[str]] = {}
    for constraint in devices.entries("constraints"):
        attribute = constraint.get("matchAttribute")
        attribute = constraint.get("distinctAttribute") if attribute is None else attribute
        if attribute is not None:
            for name in constraint.texts("requests") or [""]:
                matched.setdefault(name, set()).add(attribute)
    return matched


def _constraint_errors(constraint: Node, names: Names, release: Release) -> Iterator[FieldError]:
    yield from _reference_list_errors(constraint, names, release)
    given = [name for name in ("matchAttribute", "distinctAttribute") if constraint.has(name)]
    if not given and release.as_since_1_36:
        detail = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        yield required(constraint.path, detail)
    elif not given:
        yield required(constraint.at("matchAttribute"))
    for name in given if release.declarative else given[:1]:
        yield from fully_qualified_name(constraint.at(name), constraint.text(name), release)


def _config_errors(config: Node, names: Names, release: Release) -> Iterator[FieldError]:
    yield from _reference_list_errors(config, names, release)
    if not config.has("opaque"):
        yield required(config.at("opaque"))
        return
    opaque = config.child("opaque")
    yield from opaque_driver(opaque.at("driver"), opaque.text("driver"), release)
    yield from parameter_errors(opaque.at("parameters"), opaque.get("parameters"))


def parameter_errors(path: Path, parameters: object) -> Iterator[FieldError]:
    """A driver's parameters: a JSON object of at most 10 KiB, as it is sent without spaces."""
    # Not msgspec, which refuses the lone surrogates that JSON can spell.
    text = json.dumps(parameters, ensure_ascii=False, separators=(",", ":"))
    if parameters is None:
        yield required(path)
    elif size_bytes(text) > PARAMETERS_MAX_BYTES:
        yield too_long(path, PARAMETERS_MAX_BYTES)
    elif not isinstance(parameters, dict):
        yield invalid(path, "<value omitted>", "must be a valid JSON object")


def _reference_list_errors(holder: Node, names: Names, release: Release) -> Iterator[FieldError]:
    """The requests that a constraint or a configuration is for."""
    yield from text_list_errors(
        holder,
        "requests",
        REQUESTS_MAX,
        lambda path, text: _reference_errors(path, text, names),
        release,
    )


def _reference_errors(path: Path, text: str, names: Names) -> Iterator[FieldError]:
    segments = text.split("/", 2)
    if len(segments) > 2:
        yield invalid(path, text, _NOT_A_REQUEST)
        return
    for segment in segments:
        yield from each_invalid(path, segment, dns1123_label(segment))
    known = names.get(segments[0])
    if known is None or (len(segments) == 2 and segments[1] not in known):
        yield invalid(path, text, _NOT_A_REQUEST)
