"""Specs of claims and templates that were read before, by their text: most claims come from a few templates.

Whatever follows from a spec alone is computed once. Reading the spec again would give the same result, so no decision
changes (ADR 30).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import ref

import msgspec
from msgspec import UNSET, Raw, UnsetType, structs

from webhook.admission.excess import excess_of
from webhook.admission.lint import lint_of_requests
from webhook.api.claims import ResourceClaim, ResourceClaimTemplate, decode_claim, decode_template
from webhook.api.decode import Reader
from webhook.api.field import JSON, FieldError, Path
from webhook.policy.evaluation import ScopedJudge
from webhook.policy.model import Action
from webhook.validation.claims import SPEC, TEMPLATE_SPEC, everything_asked, request_errors
from webhook.validation.documented import documented_request_errors
from webhook.validation.releases import NEWEST

Claiming: TypeAlias = ResourceClaim | ResourceClaimTemplate
Drivers: TypeAlias = tuple[frozenset[str] | None, ...]

_LONGEST: Final = 4096
"""Bytes of a spec that is kept: 40 tolerations, for example."""
_MOST_OBJECTS: Final = 128
"""Objects and lists in such a spec: each takes a hundred times the memory of its text."""
_MOST: Final = 256
"""Specs of each kind that are kept, those that were used last: up to 27 MiB, 10 MiB with ordinary tolerations."""
_MOST_JUDGES: Final = 8
"""Rulings kept for each spec, one for each set of rules."""

_decode: Final = msgspec.json.Decoder().decode


class _Settled(NamedTuple):
    """The ruling of one judge on a spec. The reference to the judge is weak, as its policy may be replaced."""

    judge: ref[ScopedJudge]
    drivers: Drivers
    names: tuple[tuple[str, Action], ...]


class KnownSpec:
    """The spec of a claim or template that was read without a fault. It is shared, so it is never changed."""

    __slots__ = ("_settled", "_value", "classes", "quiet", "spec")

    def __init__(self, spec: JSON, value: Claiming, path: Path) -> None:
        """`path` is SPEC or TEMPLATE_SPEC."""
        requests = value.requests
        self.spec = spec
        self._value = value
        self.classes = tuple([asked.exact.device_class_name for asked in everything_asked(path, requests)])
        """The device class of each request and alternative, in order."""
        errors = chain(request_errors(path, requests, NEWEST), documented_request_errors(path, requests))
        self.quiet = next(errors, None) is None and next(lint_of_requests(path, requests), None) is None
        """Whether it has no field errors in the newest release, keeps to the documents, and has no lint findings."""
        self._settled: dict[int, _Settled] = {}

    def is_of(self, value: JSON) -> bool:
        """Tell whether this is the spec of an object: another one may be in its place, as /mutate proposes."""
        return value.__class__ is dict and value.get("spec") is self.spec

    def within(self, value: JSON, errors: list[FieldError]) -> Claiming:
        """Return the claim or template; `value` has the rest of it and no status. Add type errors to `errors`."""
        return structs.replace(self._value, meta=Reader.of(value, errors).meta())

    def settled(self, judge: ScopedJudge, drivers: Drivers) -> tuple[tuple[str, Action], ...] | None:
        """Return the rules that match, if `settle` was called for this judge and the same drivers; else None."""
        found = self._settled.get(id(judge))
        if found is None or found.judge() is not judge or found.drivers != drivers:
            return None
        return found.names

    def settle(self, judge: ScopedJudge, drivers: Drivers, names: tuple[tuple[str, Action], ...]) -> None:
        """Keep that everything the spec asks for is allowed with nothing to report, and which rules matched.

        `drivers` are the known ones behind each of `classes`. The ruling must depend on nothing else.
        """
        if len(self._settled) >= _MOST_JUDGES:
            self._settled.clear()
        self._settled[id(judge)] = _Settled(ref(judge), drivers, names)


class KnownSpecs:
    """The specs of one kind. Safe to share between threads."""

    __slots__ = ("_known", "_of_template")

    def __init__(self, *, of_template: bool) -> None:
        self._of_template = of_template
        self._known = lru_cache(maxsize=_MOST)(self._read)

    def get(self, text: bytes) -> KnownSpec | None:
        """Return what is known of a spec, as JSON, or is read now; None if it is to be read with the object.

        Raises one of UNREADABLE if it is not JSON.
        """
        return self._known(text) if len(text) <= _LONGEST else None

    def _read(self, text: bytes) -> KnownSpec | None:
        if text.count(b"{") + text.count(b"[") > _MOST_OBJECTS:
            return None
        spec = _decode(text)
        rest: dict[str, Any] = {"spec": spec}
        if excess_of(rest, of_template=self._of_template) is not None:
            return None
        errors: list[FieldError] = []
        decode = decode_template if self._of_template else decode_claim
        value: Claiming = decode(Reader.of(rest, errors))
        if errors:
            return None
        return KnownSpec(spec, value, TEMPLATE_SPEC if self._of_template else SPEC)


class ClaimText(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A claim or template whose spec is still text. Decoding fails for any other shape."""

    api_version: Any = UNSET
    kind: Any = UNSET
    metadata: Any = UNSET
    spec: Raw | UnsetType = UNSET
    status: Any = UNSET

    def to_object(self, specs: KnownSpecs) -> tuple[dict[str, JSON], KnownSpec | None]:
        """Return the object, and what is known of its spec if it has no status. Raises one of UNREADABLE."""
        found: dict[str, JSON] = {"apiVersion": self.api_version, "kind": self.kind, "metadata": self.metadata}
        known = None
        if self.spec is not UNSET:
            text = bytes(self.spec)
            known = specs.get(text) if self.status is UNSET else None
            found["spec"] = _decode(text) if known is None else known.spec
        if self.status is not UNSET:
            found["status"] = self.status
        if UNSET in found.values():
            found = {name: value for name, value in found.items() if value is not UNSET}
        return found, known


KNOWN: Final = {
    "resourceclaims": KnownSpecs(of_template=False),
    "resourceclaimtemplates": KnownSpecs(of_template=True),
}
"""By resource."""
