"""Requesters as an API server would name them, and whether a policy cares who they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.policy.ports import Requester

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.policy.model import Match, Policy

ANONYMOUS: Final = "system:anonymous"
_SERVICE_ACCOUNTS: Final = "system:serviceaccounts"
_VARIABLE: Final = re.compile(r"\brequester\b")


def authenticated(username: str, groups: Iterable[str] = ()) -> Requester:
    """A requester with the groups that an API server adds by itself.

    Source: apiserver/pkg/endpoints/filters/impersonation, which does so for `kubectl --as`.
    """
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
