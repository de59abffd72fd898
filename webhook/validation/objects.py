"""All that an API server refuses in an object beyond taints and tolerations: for files, which no server has seen yet.

On a cluster the server judges an object before it calls the webhook, so reviews have no need of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.api.meta import GROUP
from webhook.validation.claim_objects import claim_spec_errors
from webhook.validation.decoding import decoding_errors
from webhook.validation.nodes import Node
from webhook.validation.object_metadata import metadata_errors, template_metadata_errors
from webhook.validation.slice_objects import slice_spec_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.api.field import JSON, FieldError
    from webhook.api.meta import GroupVersionKind
    from webhook.validation.releases import Release

_NAMESPACED: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate"})
_IMMUTABLE: Final = "ResourceClaim"


def object_errors(value: JSON, old: JSON, kind: GroupVersionKind, release: Release) -> Iterator[FieldError]:
    """What is wrong with an object that is created (`old` is None) or updated, where reviews do not look.

    Wrong types end the walk. What an update left wrong is not reported again: for most fields the server ratchets,
    and a claim's spec cannot change.
    """
    errors = list(decoding_errors(value, kind, release))
    if errors or kind.group != GROUP:
        yield from errors
        return
    found = _rule_errors(value, kind, release, created=old is None)
    if old is None or any(decoding_errors(old, kind, release)):
        yield from found
        return
    before = {_key(error) for error in _rule_errors(old, kind, release, created=False)}
    for error in found:
        if _key(error) not in before:
            yield error


def _key(error: FieldError) -> tuple[str, str, str]:
    return error.field, error.type.value, error.body


def _rule_errors(value: JSON, kind: GroupVersionKind, release: Release, *, created: bool) -> Iterator[FieldError]:
    root = Node.of(value)
    yield from metadata_errors(root.child("metadata"), namespaced=kind.kind in _NAMESPACED, created=created)
    rules = _RULES.get(kind.kind)
    if rules is not None and (created or kind.kind != _IMMUTABLE):
        yield from rules(root.child("spec"), kind.version, release)


def _template_errors(spec: Node, version: str, release: Release) -> Iterator[FieldError]:
    yield from template_metadata_errors(spec.child("metadata"))
    yield from claim_spec_errors(spec.child("spec"), version, release)


_RULES: Final[dict[str, Callable[[Node, str, Release], Iterator[FieldError]]]] = {
    "ResourceClaim": claim_spec_errors,
    "ResourceClaimTemplate": _template_errors,
    "ResourceSlice": slice_spec_errors,
}
