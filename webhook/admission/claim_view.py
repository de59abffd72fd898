"""What rules look at: a claim or template, its requester or author, and the facts of namespace and classes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from webhook.admission.context import AdmissionContext
from webhook.admission.excess import Excess
from webhook.admission.known_specs import KnownSpec
from webhook.admission.review import AdmissionRequest
from webhook.api.claims import EXTENDED_RESOURCE, ResourceClaim, ResourceClaimTemplate
from webhook.api.field import JSON
from webhook.api.meta import OWN_GROUP
from webhook.api.taints import EQUAL, DeviceToleration
from webhook.policy.match import Requester, Scope, Target
from webhook.validation.claims import SPEC, TEMPLATE_SPEC, Asked, everything_asked

REQUESTED_BY: Final = f"{OWN_GROUP}/requested-by"
GROUPS_MAX_BYTES: Final = 8192
"""Bytes of all group names that are written down. The groups of a requester with more count as unknown."""
UNNAMEABLE: Final = "a name of the requester has control characters"
_ANNOTATION_MAX: Final = 64 * 1024
_CONTROL: Final = re.compile(r"[\x00-\x1f]")


class _Author(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The annotation's value."""

    username: str
    groups: tuple[str, ...] = ()
    groups_truncated: bool = False


_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(_Author)


def texts_of(requester: Requester) -> tuple[str, ...]:
    """Return the annotations that the policy accepts: with all groups and without; () for control characters."""
    if any(_CONTROL.search(name) for name in (requester.username, *requester.groups)):
        return ()
    entries = _Author(requester.username, requester.groups), _Author(requester.username, groups_truncated=True)
    return tuple([_encoder.encode(entry).decode() for entry in entries])


def annotation_of(requester: Requester) -> str | None:
    """Return the annotation that is written for a requester; None if a name has control characters."""
    texts = texts_of(requester)
    return texts[sum(len(group.encode()) for group in requester.groups) > GROUPS_MAX_BYTES] if texts else None


def author_of(annotation: str | None) -> Requester | None:
    """Return the author that an annotation names; None if there is none, or another text than the policy accepts."""
    if not annotation or len(annotation) > _ANNOTATION_MAX:
        return None
    try:
        entry = _decoder.decode(annotation)
    except (msgspec.DecodeError, RecursionError):
        return None
    author = Requester(entry.username, entry.groups, not entry.groups_truncated)
    return author if annotation in texts_of(author) else None


DEFAULTED: Final = f"{OWN_GROUP}/defaulted-tolerations"
"""Annotation that lists the tolerations added by default."""
_OUR_NOTES: Final = frozenset({REQUESTED_BY, DEFAULTED})
"""Rules do not see what /mutate writes: no object must be refused for that."""
SCHEDULER: Final = "system:kube-scheduler"
_EXACT_COUNT: Final = "ExactCount"
"""The allocation mode of a request that names none; its count is then 1, if it names none either."""


class Ask(NamedTuple):
    """One request or alternative, with what rules need to know about it."""

    asked: Asked
    target: Target


class ClaimView:
    """A claim or a template as rules see it."""

    def __init__(
        self,
        new: ResourceClaim | ResourceClaimTemplate,
        request: AdmissionRequest,
        context: AdmissionContext,
        excess: Excess | None = None,
    ) -> None:
        self.new = new
        self.excess = excess
        self._request = request
        self._context = context
        self.is_template = isinstance(new, ResourceClaimTemplate)
        self.spec = TEMPLATE_SPEC if self.is_template else SPEC
        self.namespace = request.namespace or new.meta.namespace
        self.generated = not self.is_template and request.username in context.policy.trusted_controllers
        self._names = context.names
        self._of_claim: tuple[Scope, dict[str, JSON]] | None = None
        self._of_asked: tuple[Asked, Scope, dict[str, JSON]] | None = None

    @property
    def for_extended_resource(self) -> bool:
        """Whether the scheduler made it for an extended resource: it has no tolerations, and no use for any."""
        return self._request.username == SCHEDULER and self.new.meta.annotations.get(EXTENDED_RESOURCE) == "true"

    @property
    def tolerates(self) -> bool:
        """Whether any toleration is asked for."""
        return any(asked.exact.tolerations for asked in everything_asked(self.spec, self.new.requests))

    def scope(self) -> Scope:
        """Return the template's author if the claim was generated, else the sender; and the namespace."""
        request = self._request
        requester: Requester | None = Requester(request.username, request.groups)
        if self.generated:
            proved = not self._context.authors_unproved
            requester = author_of(self.new.meta.annotations.get(REQUESTED_BY)) if proved else None
        return Scope(requester, self.namespace, self._names.namespace(self.namespace))

    @property
    def known(self) -> KnownSpec | None:
        """What is known of its spec."""
        known = self._request.known
        return known if known is not None and known.spec is self.new.spec else None

    def drivers(self, known: KnownSpec) -> tuple[frozenset[str] | None, ...]:
        """Return the drivers behind each class that it asks for, in the order of `known.classes`."""
        return tuple(map(self._names.drivers, known.classes))

    @property
    def cut(self) -> bool:
        """Whether only a part of the object is judged."""
        return self.excess is not None and self.excess.cut

    def asks(self) -> Iterator[Ask]:
        """Yield each exact request and alternative."""
        for asked in everything_asked(self.spec, self.new.requests):
            exact = asked.exact
            drivers = self._names.drivers(exact.device_class_name)
            yield Ask(asked, Target(exact.device_class_name, drivers, exact.admin_access))

    def variables(
        self, asked: Asked, target: Target, scope: Scope, toleration: DeviceToleration | None
    ) -> Mapping[str, JSON]:
        """Return the variables of `when`. What is not known is left out."""
        last = self._of_asked
        if last is None or last[0] is not asked or last[1] is not scope:
            variables = {"request": _request_variable(self._raw(asked), asked), **self._claim_variables(scope)}
            if target.drivers is not None:
                variables["drivers"] = sorted(target.drivers)
            last = self._of_asked = asked, scope, variables
        if toleration is None:
            return last[2]
        return {**last[2], "toleration": toleration_variable(toleration)}

    def _claim_variables(self, scope: Scope) -> dict[str, JSON]:
        """Return the variables that are the same for everything that is asked for."""
        last = self._of_claim
        if last is not None and last[0] is scope:
            return last[1]
        new, meta = self.new, self.new.meta
        # Claims get spec.metadata of their template.
        given = new.claim_meta if isinstance(new, ResourceClaimTemplate) else meta
        variables: dict[str, JSON] = {
            "claim": {
                "name": meta.name,
                "generateName": meta.generate_name,
                "namespace": self.namespace,
                "labels": _labels(new.spec if self.is_template else self._request.object),
                "annotations": {key: text for key, text in given.annotations.items() if key not in _OUR_NOTES},
                "template": self.is_template,
                "generated": self.generated,
            }
        }
        if scope.facts is not None:
            variables["namespace"] = {"name": scope.namespace, "labels": dict(scope.facts.labels)}
        if scope.requester is not None:
            variables["requester"] = requester_variable(scope.requester)
        self._of_claim = scope, variables
        return variables

    def _raw(self, asked: Asked) -> Mapping[str, Any]:
        """Return the request or alternative as it was sent. It was decoded before, so it exists."""
        spec: Any = self.new.spec
        if self.is_template:
            spec = spec["spec"]
        raw = spec["devices"]["requests"][asked.position]
        if asked.alternative is not None:
            raw = raw["firstAvailable"][asked.alternative]
        elif isinstance(raw.get("exactly"), dict):
            raw = raw["exactly"]
        return raw if isinstance(raw, dict) else {}


def requester_variable(requester: Requester) -> dict[str, JSON]:
    """Return `requester` of a `when`."""
    variable: dict[str, JSON] = {
        "username": requester.username,
        "serviceAccount": requester.service_account or "",
    }
    if requester.groups_known:
        variable["groups"] = list(requester.groups)
    return variable


def toleration_variable(toleration: DeviceToleration) -> dict[str, JSON]:
    """Return `toleration` of a `when`, without tolerationSeconds if it has no time limit."""
    variable: dict[str, JSON] = {
        "key": toleration.key,
        "operator": toleration.operator or EQUAL,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    if toleration.toleration_seconds is not None:
        variable["tolerationSeconds"] = toleration.toleration_seconds
    return variable


def _request_variable(raw: Mapping[str, Any], asked: Asked) -> dict[str, JSON]:
    """Return `request` of a `when`, without a count if all are requested, so that no count looks small."""
    count, mode = raw.get("count"), raw.get("allocationMode")
    mode = mode if isinstance(mode, str) and mode else _EXACT_COUNT
    variable: dict[str, JSON] = {
        "name": asked.exact.name,
        "deviceClassName": asked.exact.device_class_name,
        "allocationMode": mode,
        "adminAccess": asked.exact.admin_access,
        "alternative": asked.alternative is not None,
    }
    if mode == _EXACT_COUNT:
        variable["count"] = count if count.__class__ is int and count else 1
    return variable


def _labels(value: JSON) -> dict[str, str]:
    meta = value.get("metadata") if isinstance(value, dict) else None
    labels = meta.get("labels") if isinstance(meta, dict) else None
    if not isinstance(labels, dict):
        return {}
    return {key: text for key, text in labels.items() if isinstance(text, str)}
