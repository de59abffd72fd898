"""Policy documents for tests: JSON as a parser gives it, and what `load` says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.api.field import Path
from webhook.policy.decide import Judge
from webhook.policy.document import load
from webhook.policy.model import API_VERSION, KIND

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.policy.evaluation import RuleHit, Variables
    from webhook.policy.match import Scope, Target
    from webhook.policy.model import Policy

AT: Final = Path.root()
EXPIRES: Final = "2026-09-01T00:00:00Z"

Json = dict[str, Any]


def make_document(**fields: Any) -> Json:
    return {"apiVersion": API_VERSION, "kind": KIND, **fields}


def make_entry(name: str = "example", action: str = "deny", match: Any = None, **fields: Any) -> Json:
    """A rule or taint rule."""
    return {"name": name, "action": action, **({} if match is None else {"match": match}), **fields}


def make_exception(name: str = "excused", rules: Any = ("default",), **fields: Any) -> Json:
    return {"name": name, "rules": list(rules), "expiresAt": EXPIRES, **fields}


def make_defaults(name: str = "added", **toleration: Any) -> Json:
    return {"name": name, "tolerations": [toleration or {"operator": "Exists"}]}


def make_window(**fields: Any) -> Json:
    """A window of a profile."""
    return {"schedule": "0 22 * * 1-5", "duration": "8h", **fields}


def errors_of(document: Any) -> list[str]:
    return [str(error) for error in load(document, AT).errors]


def errors_in(**fields: Any) -> list[str]:
    return errors_of(make_document(**fields))


def warnings_in(**fields: Any) -> list[str]:
    """Warnings as `code path: text`, of a document that loads."""
    loaded = load(make_document(**fields), AT)
    assert loaded.errors == ()
    return [f"{warning.code} {warning.error.field}: {warning.error.detail}" for warning in loaded.warnings]


def policy_of(**fields: Any) -> Policy:
    loaded = load(make_document(**fields), AT)
    assert loaded.errors == ()
    assert loaded.policy is not None
    return loaded.policy


def judge_of(*rules: Json, **fields: Any) -> Judge:
    """A policy with these rules, ready to decide."""
    return Judge(policy_of(rules=list(rules), **fields))


def on_request(judge: Judge, scope: Scope, target: Target, now: datetime, variables: Variables) -> tuple[RuleHit, ...]:
    """The rules with subject `request` that match a request, up to the one that decides."""
    return judge.scoped(scope, now).evaluate(target, None, variables).hits
