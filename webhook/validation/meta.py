"""Field rules of the object metadata that a request can reach. `semantics.md` R-1, R-15."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.api.field import FieldError, Path, invalid, required
from webhook.api.meta import ObjectMeta
from webhook.validation.formats import dns1123_subdomain, each_invalid

_SUFFIX: Final = "xxxxx"
_PREFIX_MAX: Final = 63 - len(_SUFFIX)
METADATA: Final = Path.root().child("metadata")


def object_meta_errors(new: ObjectMeta, *, created: bool) -> Iterator[FieldError]:
    """Name and prefix of a new object; an update cannot change them, so nothing is asked again."""
    if not created:
        return
    if not new.name and not new.generate_name:
        yield required(METADATA.child("name"), "name or generateName is required")
    # The server completes a prefix before it looks, so a bad one is reported twice.
    name = new.name or (new.generate_name and new.generate_name[:_PREFIX_MAX] + _SUFFIX)
    if name and (messages := dns1123_subdomain(name)):
        yield from each_invalid(METADATA.child("name"), name, messages)
    if new.generate_name:
        # A prefix may end in a dash, which the server's suffix makes right; it also looks away from the character
        # before the dash (apimachinery, maskTrailingDash).
        prefix = new.generate_name
        if len(prefix) > 1 and prefix.endswith("-"):
            prefix = prefix[:-2] + "a"
        yield from each_invalid(METADATA.child("generateName"), new.generate_name, dns1123_subdomain(prefix))


def resource_version_errors(new: ObjectMeta) -> Iterator[FieldError]:
    """An update must say what it is based on (R-15)."""
    if not new.resource_version:
        yield invalid(METADATA.child("resourceVersion"), 0, "must be specified for an update")
