"""The formats of names, in the API server's words, and those in the metadata of objects (`semantics.md` R-1).

Each function returns the messages for a value, none if it is right. Lengths are bytes, expressions ASCII and anchored
to the end of the text (T-6). Answers for short values are remembered: a slice repeats the same keys hundreds of times.
Source: apimachinery/pkg/api/validate/content, apimachinery/pkg/util/validation. Names with a domain before them:
pkg/apis/resource/validation (validateQualifiedName), apimachinery/pkg/api/validate/strfmt.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from webhook.api.field import FieldError, Path, invalid, required, too_long
from webhook.api.meta import ObjectMeta
from webhook.api.remembered import remembered
from webhook.validation.releases import Release

_ALNUM: Final = "[A-Za-z0-9]"
_NAME_PATTERN: Final = f"([A-Za-z0-9][-A-Za-z0-9_.]*)?{_ALNUM}"
_LABEL_PATTERN: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_PATTERN: Final = rf"{_LABEL_PATTERN}(\.{_LABEL_PATTERN})*"
_C_IDENTIFIER_PATTERN: Final = "[A-Za-z_][A-Za-z0-9_]*"
_REASON_PATTERN: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_NAME: Final = re.compile(_NAME_PATTERN)
_LABEL: Final = re.compile(_LABEL_PATTERN)
_SUBDOMAIN: Final = re.compile(_SUBDOMAIN_PATTERN)
_SUBDOMAINS: Final = re.compile(f"{_SUBDOMAIN_PATTERN}(/{_SUBDOMAIN_PATTERN})*")
_C_IDENTIFIER: Final = re.compile(_C_IDENTIFIER_PATTERN)
_REASON: Final = re.compile(_REASON_PATTERN)
# Semantic Versioning 2.0.0, as github.com/blang/semver parses it: no leading zeros, no `v`.
_SEMVER, _SHORT_SEMVER = (
    re.compile(
        rf"{number}\.{number}\.{number}"
        rf"(?:-(?:{number}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:{number}|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*)?"
        r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
    )
    for number in ("(?:0|[1-9][0-9]*)", "(?:0|[1-9][0-9]{0,17})")
)
_ALPHANUMERIC: Final = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_NAME_WRONG: Final = (
    f"must {_ALPHANUMERIC} (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    f"regex used for validation is '{_NAME_PATTERN}')"
)
_KEY_WRONG: Final = (
    f"a valid label key must {_ALPHANUMERIC} (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    f"regex used for validation is '{_NAME_PATTERN}') "
    "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_VALUE_WRONG: Final = (
    f"a valid label must be an empty string or {_ALPHANUMERIC} (e.g. 'MyValue',  or 'my_value',  or '12345', "
    f"regex used for validation is '({_NAME_PATTERN})?')"
)
_SUBDOMAIN_WRONG: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_PATTERN}')"
)
_LABEL_WRONG: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_PATTERN}')"
)
LABEL_MAX_BYTES: Final = 63
SUBDOMAIN_MAX_BYTES: Final = 253
DRIVER_MAX_BYTES: Final = 63
_LOOKED_AT: Final = 4096
"""Characters of a name that are checked; a longer name is reported as too long and costs no more than this."""
Messages = tuple[str, ...]
IDENTIFIER_MAX_BYTES: Final = 32
VALUE_MAX_BYTES: Final = 64
"""Of an attribute that is a text or a version."""
_LOWER: Final = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def size_bytes(value: str) -> int:
    """Count the bytes in UTF-8; lone surrogates, which JSON can spell, count as the three bytes Go turns them into."""
    return len(value) if value.isascii() else len(value.encode(errors="surrogatepass"))


def length_errors(path: Path, value: str, max_bytes: int) -> tuple[FieldError, ...]:
    """Return `Too long` for a text of more than `max_bytes` bytes; nothing for any other."""
    return (too_long(path, max_bytes),) if size_bytes(value) > max_bytes else ()


def dns1123_subdomain(value: str) -> Messages:
    """A lower-case DNS-1123 subdomain of at most 253 bytes; its labels have no limit of their own (T-5)."""
    if len(value) <= SUBDOMAIN_MAX_BYTES and _SUBDOMAIN.fullmatch(value):  # which is all ASCII
        return ()
    messages: list[str] = []
    if size_bytes(value) > SUBDOMAIN_MAX_BYTES:
        messages.append(f"must be no more than {SUBDOMAIN_MAX_BYTES} bytes")
    if not _SUBDOMAIN.fullmatch(value, 0, _LOOKED_AT):
        messages.append(_SUBDOMAIN_WRONG)
    return tuple(messages)


def dns1123_label(value: str) -> Messages:
    """A lower-case DNS-1123 label of at most 63 bytes (R-5)."""
    if len(value) <= LABEL_MAX_BYTES and _LABEL.fullmatch(value):
        return ()
    messages: list[str] = []
    if size_bytes(value) > LABEL_MAX_BYTES:
        messages.append(f"must be no more than {LABEL_MAX_BYTES} bytes")
    if not _LABEL.fullmatch(value, 0, _LOOKED_AT):
        messages.append("must not contain dots" if _SUBDOMAIN.fullmatch(value, 0, _LOOKED_AT) else _LABEL_WRONG)
    return tuple(messages)


@remembered(4096)
def label_key(value: str) -> Messages:
    """A label key: `name` or `prefix/name` (T-2 to T-5)."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        return (_KEY_WRONG,)
    messages: list[str] = []
    if slash and not prefix:
        messages.append("prefix part must be non-empty")
    elif slash:
        messages.extend(f"prefix part {message}" for message in dns1123_subdomain(prefix))
    if not name:
        messages.append("name part must be non-empty")
    elif size_bytes(name) > LABEL_MAX_BYTES:
        messages.append(f"name part must be no more than {LABEL_MAX_BYTES} bytes")
    if not _NAME.fullmatch(name, 0, _LOOKED_AT):
        messages.append(f"name part {_NAME_WRONG}")
    return tuple(messages)


@remembered(4096)
def label_value(value: str) -> Messages:
    """A label value: empty, or like a name (T-7)."""
    messages: list[str] = []
    if size_bytes(value) > LABEL_MAX_BYTES:
        messages.append(f"must be no more than {LABEL_MAX_BYTES} bytes")
    if value and not _NAME.fullmatch(value, 0, _LOOKED_AT):
        messages.append(_VALUE_WRONG)
    return tuple(messages)


def condition_reason(value: str) -> Messages:
    """A condition's reason (R-12)."""
    if _REASON.fullmatch(value):
        return ()
    return (
        (
            "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
            "characters or '_,:', and must end with an alphanumeric character or '_' "
            f"(e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', "
            f"regex used for validation is '{_REASON_PATTERN}')"
        ),
    )


def c_identifier(value: str) -> Messages:
    """A C identifier (P-5)."""
    if _C_IDENTIFIER.fullmatch(value, 0, _LOOKED_AT):
        return ()
    return (
        (
            "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
            f"characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', "
            f"regex used for validation is '{_C_IDENTIFIER_PATTERN}')"
        ),
    )


def semantic_version(value: str, *, short: bool = False) -> Messages:
    """A version by semver.org 2.0.0 (P-7). `short`: its numbers have 18 digits at most."""
    if (_SHORT_SEMVER if short else _SEMVER).fullmatch(value, 0, _LOOKED_AT):
        return ()
    limit = ", with at most 18 digits in numbers" if short else ""
    return (f"must be a string compatible with semver.org spec 2.0.0{limit}",)


def driver_name(path: Path, value: str, *, empty_twice: bool = False) -> Iterator[FieldError]:
    """A driver's name: as CSI drivers, so upper case passes, by way of Unicode's lower case (R-3)."""
    if not value:
        yield required(path)
        if not empty_twice:
            return
    yield from length_errors(path, value, DRIVER_MAX_BYTES)
    for message in dns1123_subdomain(go_lower(value[:_LOOKED_AT])):
        yield invalid(path, value, message)


def is_driver_name(value: str) -> bool:
    """Whether `driver_name` would yield no error, without a path. False for some right names that are not ASCII."""
    return len(value) <= DRIVER_MAX_BYTES and value.isascii() and _SUBDOMAIN.fullmatch(value.lower()) is not None


def go_lower(value: str) -> str:
    """Lower case one character at a time, as Go's strings.ToLower; Python's adds a combining dot to `İ`."""
    return value.lower() if value.isascii() else "".join(char.lower()[:1] for char in value)


def pool_name(path: Path, value: str) -> Iterator[FieldError]:
    """A pool's name: subdomains with slashes between (R-4)."""
    if not value:
        yield required(path)
        return
    yield from length_errors(path, value, SUBDOMAIN_MAX_BYTES)
    for part in dict.fromkeys(value[:_LOOKED_AT].split("/")):  # as the server, which tells the same fault once
        for message in dns1123_subdomain(part):
            yield invalid(path, part, message)


def is_pool_name(value: str) -> bool:
    """Whether `pool_name` would yield no error, without a path."""
    return len(value) <= SUBDOMAIN_MAX_BYTES and _SUBDOMAINS.fullmatch(value) is not None  # which is all ASCII


def each_invalid(path: Path, value: str, messages: Messages, *, declarative: bool = False) -> tuple[FieldError, ...]:
    """Return an `Invalid` for each message."""
    if not messages:  # as for most values
        return ()
    return tuple([invalid(path, value, message, declarative=declarative) for message in messages])


def qualified_name(path: Path, name: str, release: Release) -> Iterator[FieldError]:
    """`name` or `domain/name`. A name with two slashes passes in the server up to 1.37."""
    return _qualified_name(path, name, release, driver_name, ("the domain", "the name"))


def fully_qualified_name(path: Path, name: str, release: Release) -> Iterator[FieldError]:
    """`domain/name`; from 1.37 on the domain must be in lower case."""
    if "/" not in name:
        yield invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")
    if release.declarative:
        yield from _qualified_name(path, name, release, _prefix_errors, ("prefix", "name"))
    else:
        yield from qualified_name(path, name, release)


def _qualified_name(
    path: Path,
    name: str,
    release: Release,
    domain_errors: Callable[[Path, str], Iterator[FieldError]],
    words: tuple[str, str],
) -> Iterator[FieldError]:
    """Judge a name part by part; `words` are what messages call its domain and its last part."""
    parts = name.split("/", 2)
    if len(parts) > 2:
        if release.one_slash:
            yield invalid(path, name, "must not contain more than one slash")
        return
    if len(parts) == 2:
        if not parts[0]:
            yield invalid(path, "", f"{words[0]} must not be empty")
        else:
            yield from domain_errors(path, parts[0])
        if not parts[1]:
            yield invalid(path, "", f"{words[1]} must not be empty")
            return
    yield from identifier(path, parts[-1])


def _prefix_errors(path: Path, domain: str) -> Iterator[FieldError]:
    yield from length_errors(path, domain, DRIVER_MAX_BYTES)
    yield from each_invalid(path, domain, tuple([f"prefix: {message}" for message in dns1123_subdomain(domain)]))


def identifier(path: Path, name: str) -> tuple[FieldError, ...]:
    """Judge a C identifier of at most 32 bytes."""
    if len(name) <= IDENTIFIER_MAX_BYTES and _C_IDENTIFIER.fullmatch(name):  # which is all ASCII
        return ()
    return (*length_errors(path, name, IDENTIFIER_MAX_BYTES), *each_invalid(path, name, c_identifier(name)))


def opaque_driver(path: Path, name: str, release: Release) -> Iterator[FieldError]:
    """The driver that a configuration is for; from 1.37 on only ASCII counts as lower case."""
    if not release.declarative:
        yield from driver_name(path, name, empty_twice=release.empty_driver_twice)
        return
    if not name:
        yield required(path)
        return
    yield from length_errors(path, name, DRIVER_MAX_BYTES)
    yield from each_invalid(path, name, dns1123_subdomain(name.translate(_LOWER)))


# --- the metadata of objects -----------------------------------------------------------------------

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
