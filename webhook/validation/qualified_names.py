"""Names with a domain before them: of attributes, capacities and the drivers behind a configuration.

Source: pkg/apis/resource/validation (validateQualifiedName), apimachinery/pkg/api/validate/strfmt.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.api.field import FieldError, Path, invalid, required, too_long
from webhook.validation.formats import DRIVER_MAX_BYTES, c_identifier, dns1123_subdomain, driver_name, each_invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.validation.releases import Release

IDENTIFIER_MAX_BYTES: Final = 32
_LOWER: Final = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def qualified_name(path: Path, name: str, release: Release) -> Iterator[FieldError]:
    """`name` or `domain/name`. A name with two slashes passes in the server up to 1.37."""
    parts = name.split("/", 2)
    if len(parts) > 2:
        yield from _two_slashes(path, name, release)
        return
    if len(parts) == 2:
        if not parts[0]:
            yield invalid(path, "", "the domain must not be empty")
        else:
            yield from driver_name(path, parts[0])
        if not parts[1]:
            yield invalid(path, "", "the name must not be empty")
            return
    yield from identifier(path, parts[-1])


def fully_qualified_name(path: Path, name: str, release: Release) -> Iterator[FieldError]:
    """`domain/name`; from 1.37 on the domain must be in lower case."""
    if "/" not in name:
        yield invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")
    if not release.declarative:
        yield from qualified_name(path, name, release)
        return
    parts = name.split("/", 2)
    if len(parts) > 2:
        yield from _two_slashes(path, name, release)
        return
    if len(parts) == 2:
        if not parts[0]:
            yield invalid(path, "", "prefix must not be empty")
        else:
            if len(parts[0].encode(errors="surrogatepass")) > DRIVER_MAX_BYTES:
                yield too_long(path, DRIVER_MAX_BYTES)
            yield from each_invalid(path, parts[0], tuple([f"prefix: {m}" for m in dns1123_subdomain(parts[0])]))
        if not parts[1]:
            yield invalid(path, "", "name must not be empty")
            return
    yield from identifier(path, parts[-1])


def _two_slashes(path: Path, name: str, release: Release) -> Iterator[FieldError]:
    if release.one_slash:
        yield invalid(path, name, "must not contain more than one slash")


def identifier(path: Path, name: str) -> Iterator[FieldError]:
    """A C identifier of at most 32 bytes."""
    if len(name.encode(errors="surrogatepass")) > IDENTIFIER_MAX_BYTES:
        yield too_long(path, IDENTIFIER_MAX_BYTES)
    yield from each_invalid(path, name, c_identifier(name))


def opaque_driver(path: Path, name: str, release: Release) -> Iterator[FieldError]:
    """The driver that a configuration is for; from 1.37 on only ASCII counts as lower case."""
    if not release.declarative:
        yield from driver_name(path, name, empty_twice=release.empty_driver_twice)
        return
    if not name:
        yield required(path)
        return
    if len(name.encode(errors="surrogatepass")) > DRIVER_MAX_BYTES:
        yield too_long(path, DRIVER_MAX_BYTES)
    yield from each_invalid(path, name, dns1123_subdomain(name.translate(_LOWER)))
