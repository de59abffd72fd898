"""The table of kinds: for each resource and version how it is read and which rules hold.

The decoder goes by the row, so an object that says it is of another kind than its resource is refused before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.api.claims import decode_claim, decode_template
from webhook.api.decode import Reader
from webhook.api.field import FieldError
from webhook.api.meta import GROUP, OWN_GROUP, SERVED_VERSIONS, GroupVersionKind, GroupVersionResource
from webhook.api.patches import decode_first_revision_patch, decode_patch
from webhook.api.rules import decode_rule
from webhook.api.slices import decode_slice
from webhook.validation.claims import claim_errors, claim_status_errors, template_errors
from webhook.validation.documented import (
    documented_claim_errors,
    documented_rule_errors,
    documented_template_errors,
)
from webhook.validation.patches import patch_errors
from webhook.validation.releases import Release
from webhook.validation.rules import (
    rule_errors,
    rule_status_errors,
    versioned_rule_errors,
    versioned_rule_status_errors,
)
from webhook.validation.slices import first_revision_slice_errors, slice_errors


@dataclass(frozen=True, slots=True)
class KindRules:
    """How objects of one resource and version are read and judged.

    The functions take the new object and the old one, which is None when the object is created. `status_errors`
    is for the status subresource, where the rest of the object cannot change. Rows decode to different types; each
    row's functions agree on theirs, for which Any stands here.
    """

    kind: str
    decode: Callable[[Reader], Any]
    errors: Callable[[Any, Any, Release], Iterator[FieldError]]
    status_errors: Callable[[Any, Any, Release], Iterator[FieldError]] | None = None
    documented: Callable[[Any, Any], Iterator[FieldError]] | None = None


_CLAIM: Final = KindRules("ResourceClaim", decode_claim, claim_errors, claim_status_errors, documented_claim_errors)
_TEMPLATE: Final = KindRules(
    "ResourceClaimTemplate", decode_template, template_errors, None, documented_template_errors
)
_SLICE: Final = KindRules("ResourceSlice", decode_slice, slice_errors)
_FIRST_SLICE: Final = KindRules("ResourceSlice", decode_slice, first_revision_slice_errors)
_RULE: Final = KindRules("DeviceTaintRule", decode_rule, rule_errors, rule_status_errors, documented_rule_errors)
_VERSIONED_RULE: Final = KindRules(
    "DeviceTaintRule", decode_rule, versioned_rule_errors, versioned_rule_status_errors, documented_rule_errors
)
_PATCH: Final = KindRules("ResourceSlicePatch", decode_patch, patch_errors)
_FIRST_PATCH: Final = KindRules("ResourceSlicePatch", decode_first_revision_patch, patch_errors)


def _rows() -> Iterator[tuple[GroupVersionResource, KindRules]]:
    for version in (*SERVED_VERSIONS, "v1alpha3"):
        yield GroupVersionResource(GROUP, version, "resourceclaims"), _CLAIM
        yield GroupVersionResource(GROUP, version, "resourceclaimtemplates"), _TEMPLATE
    for version in SERVED_VERSIONS:
        yield GroupVersionResource(GROUP, version, "resourceslices"), _SLICE
    yield GroupVersionResource(GROUP, "v1", "devicetaintrules"), _VERSIONED_RULE
    yield GroupVersionResource(GROUP, "v1beta2", "devicetaintrules"), _RULE
    yield GroupVersionResource(GROUP, "v1alpha3", "devicetaintrules"), _RULE
    # Slices of v1alpha3 are those of the first revision of KEP-5055, and of 1.33, whose limits are lower still.
    yield GroupVersionResource(GROUP, "v1alpha3", "resourceslices"), _FIRST_SLICE
    yield GroupVersionResource(OWN_GROUP, "v1alpha1", "resourceslicepatches"), _PATCH
    # KEP-5027 planned the kind for Kubernetes' own group; files that follow it are judged by its revision.
    yield GroupVersionResource(GROUP, "v1alpha3", "resourceslicepatches"), _FIRST_PATCH


KINDS: Final[Mapping[GroupVersionResource, KindRules]] = dict(_rows())

BY_KIND: Final[Mapping[GroupVersionKind, GroupVersionResource]] = {
    GroupVersionKind(resource.group, resource.version, row.kind): resource for resource, row in KINDS.items()
}
