"""Policies in texts: YAML or JSON read by `policy.document`, with every error at its position.

Nothing here keeps state between calls, so a server may call it from a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from webhook.api.field import ErrorType, FieldError, Finding, Path, Severity, forbidden, invalid, required, too_long
from webhook.api.names import OWN_NAMESPACE
from webhook.files.read import documents
from webhook.files.spots import Document, Unreadable, path_of
from webhook.files.traps import explained
from webhook.policy.document import Loaded, load
from webhook.policy.lint import MISREAD
from webhook.policy.model import KIND
from webhook.policy.schema import PHASE

Check = Callable[[str], None]

MAX_BYTES: Final = 512 * 1024
"""The limit for a policy's text: half the size of a ConfigMap, so that a candidate fits, too."""
_ROOT: Final = Path.root()
_LONGEST_LINE: Final = 80
_MOST_DUPLICATES: Final = 100
"""The most duplicate keys that are reported."""
_MOST_REMARKS: Final = 10


def _go_on(_: str) -> None:
    """No budget."""


def read_policy(content: str, at: Path = _ROOT, check: Check = _go_on, namespace: str = OWN_NAMESPACE) -> Loaded:
    """The policy in a text, YAML or JSON; faults of either are errors at `at` that name line and column.

    A text of more than MAX_BYTES is refused unread. `check` is called with the phase's name between steps and may
    raise to stop; nothing else is raised. `namespace` is the one of our own service accounts, which no policy may lock
    out.
    """
    if len(content) > MAX_BYTES or len(content.encode(errors="replace")) > MAX_BYTES:
        return _refused(too_long(at, MAX_BYTES))
    check(PHASE)
    found = list(islice(documents(content), 2))
    check(PHASE)
    if not found:
        return _refused(required(at, f"must be a document of kind {KIND}"))
    document = found[0]
    if isinstance(document, Unreadable):
        return _refused(_unreadable(document, content, at))
    if len(found) > 1:
        return _refused(forbidden(at, "must be one document, not several"))
    return _loaded(document, at, check, namespace)


def _refused(*errors: FieldError) -> Loaded:
    return Loaded(None, errors)


def _loaded(document: Document, at: Path, check: Check, namespace: str) -> Loaded:
    loaded = load(document.value, at, check, namespace)
    twice = tuple(
        FieldError(
            ErrorType.DUPLICATE,
            path_of(problem.steps, at),
            problem.steps[-1],
            f"line {problem.position.line}, column {problem.position.column}: {problem.message}",
        )
        for problem in islice(document.problems, _MOST_DUPLICATES)
    )
    errors = tuple([explained(error, document.spot, at) for error in loaded.errors])
    remarks = tuple(
        Finding(Severity.WARN, forbidden(path_of(problem.steps, at), problem.message), MISREAD)
        for problem in islice(document.remarks, _MOST_REMARKS)
    )
    return Loaded(None if twice else loaded.policy, twice + errors, remarks + loaded.warnings)


def _unreadable(fault: Unreadable, content: str, at: Path) -> FieldError:
    """The fault as a field error whose value is its line."""
    line, column = fault.position or (1, 1)
    lines = content.splitlines()
    shown = lines[line - 1].strip() if line <= len(lines) else ""
    return invalid(at, shown[:_LONGEST_LINE], f"line {line}, column {column}: {fault.message}")
