"""What the source documents forbid and released servers accept.

These are judged on new or changed values only, and a policy can turn them down to warnings. `semantics.md` L-7,
L-8, N-9 to N-11.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from webhook.api.claims import DeviceRequest, ResourceClaim, ResourceClaimTemplate
from webhook.api.field import FieldError, Path, invalid, too_many
from webhook.api.meta import A_TIME, parse_time
from webhook.api.rules import (
    DATA,
    DESCRIPTION,
    EVICT,
    EVICTIONS_PER_SECOND,
    EXPIRES_AT,
    HARDWARE,
    NOT_BEFORE,
    SCOPE,
    DeviceTaintRule,
)
from webhook.api.taints import EXISTS, DeviceToleration
from webhook.validation.claims import SPEC, TEMPLATE_SPEC, toleration_lists
from webhook.validation.formats import METADATA, size_bytes
from webhook.validation.taints import data_errors, description_errors

TOLERATIONS_MAX: Final = 16
_DIGITS: Final = re.compile(r"[0-9]{1,19}")
ANNOTATIONS: Final = METADATA.child("annotations")


def documented_claim_errors(new: ResourceClaim, old: ResourceClaim | None) -> Iterator[FieldError]:
    """A claim's tolerations; its spec is immutable, so an update has nothing new."""
    if old is None:
        yield from documented_request_errors(SPEC, new.requests)


def documented_template_errors(new: ResourceClaimTemplate, old: ResourceClaimTemplate | None) -> Iterator[FieldError]:
    """A template's tolerations; its spec is immutable, too."""
    if old is None:
        yield from documented_request_errors(TEMPLATE_SPEC, new.requests)


def documented_request_errors(spec: Path, requests: tuple[DeviceRequest, ...]) -> Iterator[FieldError]:
    """The tolerations of all requests and alternatives. `spec` is SPEC or TEMPLATE_SPEC."""
    for path, tolerations in toleration_lists(spec, requests):
        for error in _toleration_list_errors(path, tolerations):
            yield replace(error, declarative=True)  # reported at the path as written


def crowded_list_error(path: Path, count: int) -> FieldError:
    """A list of more than TOLERATIONS_MAX tolerations (L-8)."""
    error = too_many(path, count, TOLERATIONS_MAX)
    way_out = 'operator "Exists" without value covers all values of a key'
    return replace(error, detail=f"{error.detail}; {way_out}", declarative=True)


def _toleration_list_errors(path: Path, tolerations: Sequence[DeviceToleration]) -> Iterator[FieldError]:
    if len(tolerations) > TOLERATIONS_MAX:
        yield crowded_list_error(path, len(tolerations))
    for position, toleration in enumerate(tolerations):
        if not toleration.key and toleration.operator != EXISTS:
            at = path.index(position).child("operator")
            detail = 'must be "Exists" when key is empty, which means all keys and all values; or name a key'
            yield invalid(at, toleration.operator or "Equal", detail)


def documented_rule_errors(new: DeviceTaintRule, old: DeviceTaintRule | None) -> Iterator[FieldError]:
    """Our annotations on a rule, if they are new or changed."""
    annotations = new.meta.annotations
    if not annotations:
        return
    before = old.meta.annotations if old else {}
    for name, errors in _ANNOTATION_RULES.items():
        text = annotations.get(name)
        if text is not None and text != before.get(name):
            yield from errors(ANNOTATIONS.key(name), text)


def _data_annotation(path: Path, text: str) -> Iterator[FieldError]:
    try:
        data = msgspec.json.decode(text.encode(errors="surrogatepass"))
    except (msgspec.DecodeError, RecursionError):
        yield invalid(path, text, 'must be a JSON object, such as {"temperature": 97}')
        return
    yield from data_errors(path, data, size_bytes(text))


def _rate_annotation(path: Path, text: str) -> Iterator[FieldError]:
    if not _DIGITS.fullmatch(text) or int(text) == 0:
        yield invalid(path, text, 'must be a whole number above zero, such as "10"')


def _evict_annotation(path: Path, text: str) -> Iterator[FieldError]:
    if text not in ("true", "false"):
        yield invalid(path, text, 'must be "true" or "false"')


def _time_annotation(path: Path, text: str) -> Iterator[FieldError]:
    if parse_time(text) is None:
        yield invalid(path, text, f"must be {A_TIME}")


def _scope_annotation(path: Path, text: str) -> Iterator[FieldError]:
    if text != HARDWARE:
        yield invalid(path, text, f'must be "{HARDWARE}"')


_ANNOTATION_RULES: Final[dict[str, Callable[[Path, str], Iterator[FieldError]]]] = {
    DATA: _data_annotation,
    DESCRIPTION: description_errors,
    EVICTIONS_PER_SECOND: _rate_annotation,
    EVICT: _evict_annotation,
    EXPIRES_AT: _time_annotation,
    NOT_BEFORE: _time_annotation,
    SCOPE: _scope_annotation,
}
