"""A report as SARIF 2.1.0, which code scanning of GitHub, GitLab and Azure DevOps reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from webhook import __version__
from webhook.api.names import DOCS, PROGRAM
from webhook.files.places import Fingerprints, check_name, repository_path
from webhook.files.report import UNREADABLE, Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.files.report import Entry, Report, Row

_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: Final = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "note"}
_SEVERITIES: Final = {"error": "error", "warning": "warning", "note": "recommendation"}
"""What GitHub sorts by."""
_ROOT: Final = "%SRCROOT%"
_ROOT_TEXT: Final = "The folder in which the program ran: the root of the repository."
_FINGERPRINT: Final = "deviceTaint/v1"
_REASONS: Final = {
    "FieldValueRequired": "a field is missing",
    "FieldValueInvalid": "a field has an invalid value",
    "FieldValueNotSupported": "a field has a value that is not one of those supported",
    "FieldValueForbidden": "a field is forbidden here, unknown, or refused by the policy",
    "FieldValueDuplicate": "a list has an entry twice",
    "FieldValueNotFound": "a field refers to something that is not there",
    "FieldValueTooLong": "a field is too long",
    "FieldValueTooMany": "a list has too many entries",
    "FieldValueTypeInvalid": "a field has a value of the wrong type",
    "DuplicateKey": "a key stands twice in the same map",
    "BadRequest": "an AdmissionReview cannot be answered",
    "Mismatch": "a case of a policy test came out differently",
    "Uncovered": "no case of a policy test hits this rule",
}


def sarif_values(report: Report, verb: str, texts: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """One run: findings as results, by code, policy rule or reason; unreadable input as notifications.

    `texts` has the title and the text, in Markdown, of each warning code.
    """
    results, unread = [], []
    rules: dict[str, dict[str, Any]] = {}
    indices: dict[str, int] = {}
    fingerprints = Fingerprints()
    for row, entry in report.entries():
        if entry.reason == UNREADABLE:
            unread.append({"level": "error", "message": {"text": entry.message}, **_places(row, entry)})
            continue
        name = check_name(entry)
        rules.setdefault(name, _rule(name, entry, texts))
        index = indices.setdefault(name, len(indices))
        results.append(_result(row, entry, index, fingerprints.of(row, entry)))
    if report.nothing_checked:
        unread.append({"level": "error", "message": {"text": report.nothing_checked}})
    invocation = {
        "executionSuccessful": not unread,
        "exitCode": report.exit_code,
        "toolExecutionNotifications": [*unread, *_notes(report.notes)],
    }
    driver = {
        "name": PROGRAM,
        "semanticVersion": __version__,
        "informationUri": f"{DOCS}ci.md",
        "rules": list(rules.values()),
    }
    run = {
        "tool": {"driver": driver},
        # Uploads of the same category replace each other, so each verb has its own.
        "automationDetails": {"id": f"{PROGRAM}-{verb}/"},
        "originalUriBaseIds": {_ROOT: {"description": {"text": _ROOT_TEXT}}},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(name: str, entry: Entry, texts: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """What a viewer shows about all results of a check."""
    level = _LEVELS[entry.level]
    found: dict[str, Any] = {"id": name}
    if name in texts:
        title, markdown = texts[name]
        found["name"] = "".join(word.capitalize() for word in re.findall(r"\w+", title))
        plain = markdown.replace("*Do:*", "Do:").replace("`", "")
        anchor = re.sub(r"[^\w -]", "", f"{name} {title}".lower()).replace(" ", "-")
        page = f"admission.md#{anchor}"
    else:
        title = _REASONS.get(name) or (f"rule {name} of the policy" if name == entry.rule else "remark")
        page = "policy.md" if name == entry.rule else "admission.md"
        plain = markdown = f"{title[:1].upper()}{title[1:]}. The message names the field and what is expected."
    found |= {
        "shortDescription": {"text": title},
        "fullDescription": {"text": plain},
        "help": {"text": plain, "markdown": markdown},
        "helpUri": f"{DOCS}{page}",
        "defaultConfiguration": {"level": level},
        "properties": {"problem.severity": _SEVERITIES[level], "tags": ["kubernetes", "dynamic-resource-allocation"]},
    }
    return found


def _result(row: Row, entry: Entry, index: int, fingerprint: str) -> dict[str, Any]:
    return {
        "ruleId": check_name(entry),
        "ruleIndex": index,
        "level": _LEVELS[entry.level],
        "message": {"text": entry.text},
        "partialFingerprints": {_FINGERPRINT: fingerprint},
        **_places(row, entry),
    }


def _places(row: Row, entry: Entry) -> dict[str, Any]:
    """Where it is: in a file, and in which object and field."""
    place: dict[str, Any] = {}
    path = repository_path(row)
    if path is not None:
        place["physicalLocation"] = {"artifactLocation": _artifact(path)}
        if entry.position is not None:
            region = {"startLine": entry.position.line, "startColumn": entry.position.column}
            place["physicalLocation"]["region"] = region
    if row.reference:
        name = f"{row.reference}: {entry.field}" if entry.field else row.reference
        place["logicalLocations"] = [{"fullyQualifiedName": name}]
    return {"locations": [place]} if place else {}


def _artifact(path: str) -> dict[str, str]:
    """A file of the repository relative to its root, any other by its whole address."""
    if path.startswith("/"):
        return {"uri": f"file://{quote(path, errors='replace')}"}
    return {"uri": quote(path, errors="replace"), "uriBaseId": _ROOT}


def _notes(notes: Iterable[str]) -> list[dict[str, Any]]:
    return [{"level": "note", "message": {"text": note}} for note in notes]
