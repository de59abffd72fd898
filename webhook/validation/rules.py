"""Field rules of DeviceTaintRule, and of CEL expressions about devices. `semantics.md` R-*, T-12."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.api.field import (
    FieldError,
    Path,
    duplicate,
    forbidden,
    internal_error,
    invalid,
    not_supported,
    required,
    too_many,
)
from webhook.api.rules import Condition, DeviceSelector, DeviceTaintRule
from webhook.expressions.selectors.cost import MAX_COST
from webhook.expressions.selectors.faults import FaultKind, SelectorFault
from webhook.expressions.selectors.selector import compile_selector, derived_cost
from webhook.validation.formats import (
    METADATA,
    condition_reason,
    dns1123_label,
    dns1123_subdomain,
    driver_name,
    each_invalid,
    is_driver_name,
    is_pool_name,
    label_key,
    length_errors,
    object_meta_errors,
    pool_name,
    size_bytes,
)
from webhook.validation.releases import Release
from webhook.validation.taints import effect_errors, extras_errors, name_errors, taint_is_fine

SELECTORS_MAX: Final = 32
EXPRESSION_MAX_BYTES: Final = 10 * 1024
COMPILED_MAX_BYTES: Final = 16 * 1024
"""What is compiled of one list of selectors together, which takes up to 0.3 s; what follows is not judged."""
_TOO_COMPLEX: Final = "too complex, exceeds cost limit"
SPEC: Final = Path.root().child("spec")
SELECTOR: Final = SPEC.child("deviceSelector")
TAINT: Final = SPEC.child("taint")
CONDITIONS: Final = Path.root().child("status", "conditions")
CONDITIONS_MAX: Final = 8
REASON_MAX_BYTES: Final = 1024
MESSAGE_MAX_BYTES: Final = 32 * 1024
_BASED_ON_NOTHING: Final = invalid(METADATA.child("resourceVersion"), 0, "must be specified for an update")
_STATUSES: Final = frozenset({"True", "False", "Unknown"})


class ExpressionBudget:
    """Judges the expressions of one list, up to COMPILED_MAX_BYTES of them."""

    def __init__(self) -> None:
        self._left_bytes = COMPILED_MAX_BYTES

    def selector_errors(self, path: Path, text: str, *, evaluated: bool = False) -> Iterator[FieldError]:
        """One selector. `evaluated`: here and not by the API server, so that what is unsupported here is refused."""
        if not self._fits(text):
            yield from length_errors(path, text, EXPRESSION_MAX_BYTES)
            return
        found = compile_selector(text)
        if isinstance(found, SelectorFault):
            yield from fault_errors(path, text, found, evaluated=evaluated)

    def derived_costs(self, path: Path, text: str) -> Iterator[FieldError | int]:
        """One derived attribute: its errors, and what it costs."""
        if not self._fits(text):
            yield from length_errors(path, text, EXPRESSION_MAX_BYTES)
            return
        found = derived_cost(text)
        if isinstance(found, SelectorFault):
            yield from fault_errors(path, text, found, evaluated=False)
            return
        if found > MAX_COST:
            yield forbidden(path, _TOO_COMPLEX)
        yield found

    def _fits(self, text: str) -> bool:
        size = size_bytes(text)
        if size > EXPRESSION_MAX_BYTES:
            return False
        self._left_bytes -= size
        return self._left_bytes >= 0


def fault_errors(path: Path, text: str, fault: SelectorFault, *, evaluated: bool) -> Iterator[FieldError]:
    """The error that the API server reports of a fault, if it does."""
    match fault.kind:
        case FaultKind.INVALID:
            yield invalid(path, text, fault.detail)
        case FaultKind.INTERNAL:
            yield internal_error(path, fault.detail)
        case FaultKind.TOO_EXPENSIVE:
            yield forbidden(path, fault.detail)
        case FaultKind.UNSUPPORTED:
            if evaluated:
                yield invalid(path, text, fault.detail)


def rule_errors(new: DeviceTaintRule, old: DeviceTaintRule | None, release: Release) -> Iterator[FieldError]:
    """A DeviceTaintRule that is created (`old` is None) or updated; nothing in it is immutable (R-8)."""
    yield from object_meta_errors(new.meta, created=old is None)
    if new.selector is not None:
        yield from selector_errors(SELECTOR, new.selector, old.selector if old else None, release)
    if taint_is_fine(new.taint, release):
        return
    yield from name_errors(TAINT, new.taint)
    if old is None or not release.ratchets or old.taint.effect != new.taint.effect:
        yield from effect_errors(TAINT, new.taint, release)
    if old is None or old.taint.extras != new.taint.extras:
        yield from extras_errors(TAINT, new.taint.extras)


def versioned_rule_errors(new: DeviceTaintRule, old: DeviceTaintRule | None, release: Release) -> Iterator[FieldError]:
    """As `rule_errors`, for v1, which also wants to know what an update is based on (R-15)."""
    if old is not None and not new.meta.resource_version:
        yield _BASED_ON_NOTHING  # and the server looks no further
        return
    yield from rule_errors(new, old, release)


def selector_errors(
    path: Path, new: DeviceSelector, old: DeviceSelector | None, release: Release, *, evaluated: bool = False
) -> Iterator[FieldError]:
    """A device selector; empty fields are wrong (R-3 to R-6). `evaluated`: its CEL is evaluated here."""
    # A path is built only for a name that is wrong: building it takes longer than the check.
    if new.driver is not None and not is_driver_name(new.driver):
        yield from driver_name(path.child("driver"), new.driver, empty_twice=release.empty_driver_twice)
    if new.pool is not None and not is_pool_name(new.pool):
        yield from pool_name(path.child("pool"), new.pool)
    if new.device is not None and (messages := dns1123_label(new.device)):
        yield from each_invalid(path.child("device"), new.device, messages)
    if new.device_class_name is not None:
        messages = dns1123_subdomain(new.device_class_name)
        yield from each_invalid(path.child("deviceClassName"), new.device_class_name, messages)
    if new.selectors and (old is None or old.selectors != new.selectors):
        yield from cel_selector_errors(path.child("selectors"), new, evaluated=evaluated)


def cel_selector_errors(path: Path, selector: DeviceSelector, *, evaluated: bool) -> Iterator[FieldError]:
    """CEL selectors: how many, and for each that it is there, short enough, and compiles (R-10, R-11)."""
    if len(selector.selectors) > SELECTORS_MAX:
        yield too_many(path, len(selector.selectors), SELECTORS_MAX)
    budget = ExpressionBudget()
    for position, entry in enumerate(selector.selectors):
        cel = path.index(position).child("cel")
        if entry.expression is None:
            yield required(cel)
        else:
            yield from budget.selector_errors(cel.child("expression"), entry.expression, evaluated=evaluated)


def rule_status_errors(new: DeviceTaintRule, old: DeviceTaintRule | None, release: Release) -> Iterator[FieldError]:
    """The status conditions of a rule (R-12)."""
    del old
    if not release.rule_status:
        return
    seen: set[str] = set()
    for position, condition in enumerate(new.conditions):
        at = CONDITIONS.index(position)
        if condition.type in seen:
            yield duplicate(at if release.declarative else at.child("type"), condition.type)
        seen.add(condition.type)
        yield from condition_errors(at, condition, release)
    if len(new.conditions) > CONDITIONS_MAX:
        yield too_many(CONDITIONS, len(new.conditions), CONDITIONS_MAX)


def versioned_rule_status_errors(
    new: DeviceTaintRule, old: DeviceTaintRule | None, release: Release
) -> Iterator[FieldError]:
    """As `rule_status_errors`, for v1 (R-15)."""
    if not new.meta.resource_version:
        return iter((_BASED_ON_NOTHING,))
    return rule_status_errors(new, old, release)


def condition_errors(at: Path, condition: Condition, release: Release) -> Iterator[FieldError]:
    """One condition; the reasons for empty fields changed in 1.37 (R-12)."""
    if not condition.type and release.declarative:
        yield required(at.child("type"), "is required")
    else:
        yield from each_invalid(at.child("type"), condition.type, label_key(condition.type))
    if not condition.status and release.declarative:
        yield required(at.child("status"))
    elif condition.status not in _STATUSES:
        yield not_supported(at.child("status"), condition.status, _STATUSES)
    if condition.observed_generation < 0:
        at_generation = at.child("observedGeneration")
        yield invalid(at_generation, condition.observed_generation, "must be greater than or equal to zero")
    if condition.last_transition_time is None:
        yield required(at.child("lastTransitionTime"))
    if not condition.reason:
        yield required(at.child("reason"))
    else:
        yield from each_invalid(at.child("reason"), condition.reason, condition_reason(condition.reason))
        yield from length_errors(at.child("reason"), condition.reason, REASON_MAX_BYTES)
    yield from length_errors(at.child("message"), condition.message, MESSAGE_MAX_BYTES)
