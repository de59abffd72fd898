"""The facts that rules look at: requesters, namespaces and device classes, and the port to the cluster's names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from webhook.policy.patterns import Texts

if TYPE_CHECKING:
    from webhook.policy.model import Match, Policy

_SERVICE_ACCOUNT: Final = "system:serviceaccount:"


class Requester(msgspec.Struct, frozen=True, dict=True):
    """The sender of a request, as authenticated by the API server.

    `groups_known` is false where the list had to be cut (the author of a template with very many groups): rules on
    groups then treat the requester as unknown.
    """

    username: str
    groups: tuple[str, ...] = ()
    groups_known: bool = True

    @cached_property
    def sorted_groups(self) -> Texts:
        """The groups, for rules that compare many of them with patterns."""
        return Texts(self.groups)

    @property
    def service_account(self) -> str | None:
        """`namespace/name` of a service account; None for other users."""
        if not self.username.startswith(_SERVICE_ACCOUNT):
            return None
        namespace, colon, name = self.username.removeprefix(_SERVICE_ACCOUNT).partition(":")
        return f"{namespace}/{name}" if colon else None


class NamespaceFacts:
    """A namespace as rules see it.

    Compared by identity on purpose: caches make a new one when labels change, so that evaluations kept for the old
    one are not found again.
    """

    __slots__ = ("labels", "name")

    def __init__(self, name: str, labels: Mapping[str, str]) -> None:
        self.name = name
        self.labels = labels


class ClusterNames(Protocol):
    """What the cluster knows about namespaces and device classes; None for what is not, or not yet, known."""

    def namespace(self, name: str) -> NamespaceFacts | None:
        """The namespace, or None if it is not known."""
        ...

    def drivers(self, device_class: str) -> frozenset[str] | None:
        """The drivers whose devices the class can select; None if the class is not known or may select any."""
        ...


class KnownNames:
    """Names from a table: for files, test suites and dumps. What is not in it is not known."""

    def __init__(
        self,
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
        device_classes: Mapping[str, frozenset[str] | None] | None = None,
    ) -> None:
        self._namespaces = {name: NamespaceFacts(name, labels) for name, labels in (namespaces or {}).items()}
        self._device_classes = device_classes or {}

    def namespace(self, name: str) -> NamespaceFacts | None:
        """The namespace, if it is in the table."""
        return self._namespaces.get(name)

    def drivers(self, device_class: str) -> frozenset[str] | None:
        """The drivers behind the class, if it is in the table."""
        return self._device_classes.get(device_class)


NO_NAMES: Final = KnownNames()
"""Nothing is known of the cluster."""


# --- requesters ----------------------------------------------------------------------------------

ANONYMOUS: Final = "system:anonymous"
_SERVICE_ACCOUNTS: Final = "system:serviceaccounts"
_VARIABLE: Final = re.compile(r"\brequester\b")


def authenticated(username: str, groups: Iterable[str] = ()) -> Requester:
    """A requester with the groups that an API server adds by itself (apiserver/pkg/endpoints/filters/impersonation)."""
    found = list(groups)
    account = Requester(username).service_account
    if account is not None:
        found += [_SERVICE_ACCOUNTS, f"{_SERVICE_ACCOUNTS}:{account.partition('/')[0]}"]
    found.append("system:unauthenticated" if username == ANONYMOUS else "system:authenticated")
    return Requester(username, tuple(dict.fromkeys(found)))


def asks_who(policy: Policy) -> bool:
    """Whether a rule, an exception or a default looks at the requester."""
    return any(
        match.requesters is not None or (match.when is not None and bool(_VARIABLE.search(match.when.source)))
        for match in _matches(policy)
    )


def _matches(policy: Policy) -> Iterator[Match]:
    for entries in (policy.rules, policy.taint_rules, policy.exceptions, policy.default_tolerations):
        for entry in entries:
            yield entry.match
