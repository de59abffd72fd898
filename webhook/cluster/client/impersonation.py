"""Acting as another user, as `kubectl --as` does, and kubeconfigs whose user has `as`.

Source: k8s.io/client-go/transport/round_trippers.go (headers), k8s.io/client-go/tools/clientcmd/api/v1 (fields).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from webhook.cluster.client.errors import NoCredentials

_HEADER_CHARACTERS: Final = "!#$&'*+-.^_`|~"
"""What may stand in the name of a header besides letters and digits; `%` escapes all others."""
_LAST_CONTROL: Final = "\x1f"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Impersonation(NamedTuple):
    """The user to act as; none if all of it is empty."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def over(self, other: Impersonation) -> Impersonation:
        """Field by field, this one's value where it has one; so kubectl merges its flags into a kubeconfig."""
        return Impersonation(
            self.user or other.user, self.uid or other.uid, self.groups or other.groups, self.extra or other.extra
        )

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers of each request. Raises NoCredentials if no user is named, or a value fits into no header."""
        if self == Impersonation():
            return ()
        if not self.user:
            raise NoCredentials("groups, a UID or extra values to act with, but no user to act as: name one with --as")
        named = [("Impersonate-User", self.user)]
        named += [("Impersonate-Uid", self.uid)] if self.uid else []
        named += [("Impersonate-Group", group) for group in self.groups]
        for key, values in self.extra:
            escaped = quote(key.lower(), safe=_HEADER_CHARACTERS)
            named += [(f"Impersonate-Extra-{escaped}", value) for value in values]
        for _, value in named:
            if any(character <= _LAST_CONTROL or character == "\x7f" for character in value):
                raise NoCredentials(f"the user to act as has control characters: {value!r}")
            if not value.isascii() and _SURROGATE.search(value):  # from bytes of a command line, or JSON
                raise NoCredentials(f"the user to act as is not UTF-8: {value!r}")
        return tuple(named)


def impersonation_in(user: Mapping[str, Any], where: str) -> Impersonation:
    """What the user of a kubeconfig says; `where` names it in errors. Raises NoCredentials."""
    extra = user.get("as-user-extra")
    extra = {} if extra is None else extra
    if not isinstance(extra, Mapping) or not all(isinstance(key, str) for key in extra):
        raise NoCredentials(f"{where}: as-user-extra must be an object")
    found = [(key, _texts(values, f"{where}: as-user-extra: {key}")) for key, values in sorted(extra.items())]
    groups = _texts(user.get("as-groups"), f"{where}: as-groups")
    return Impersonation(_text(user, "as", where), _text(user, "as-uid", where), groups, tuple(found))


def _text(user: Mapping[str, Any], name: str, where: str) -> str:
    value = user.get(name)
    if value is not None and not isinstance(value, str):
        raise NoCredentials(f"{where}: {name} must be a string")
    return value or ""


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise NoCredentials(f"{where} must be a list of strings")
    return tuple(value)
