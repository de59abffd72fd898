"""Reports for CI (SARIF, workflow commands of GitHub Actions, GitLab's Code Quality), and OpenReports for clusters."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from webhook import __version__
from webhook.api.counts import counted
from webhook.api.names import PROGRAM, TREE
from webhook.files import STDIN_NAME
from webhook.files.manifests import CONFIRMED
from webhook.files.report import (
    UNREADABLE,
    Entry,
    Level,
    Report,
    Row,
    encodable,
    in_order,
    line,
    shortened,
    summary,
    visible,
)

_OTHER: Final = "Finding"


def check_name(entry: Entry) -> str:
    """What a tool groups findings by: the warning code, else the policy's rule, else the API server's reason."""
    return entry.code or entry.rule or entry.reason or _OTHER


def repository_path(row: Row) -> str | None:
    """The row's file seen from the current folder, with slashes; an absolute path for files outside it.

    None for what is no file of this machine: standard input, a cluster, or a remark about the run itself.
    """
    if not row.local or row.file == STDIN_NAME or "://" in row.file:
        return None
    here = os.path.normpath(row.file)
    if os.path.isabs(here):  # noqa: PTH117 -- as the file was named: a Path would resolve more
        inside = os.path.relpath(here)
        here = here if inside.startswith(os.pardir) else inside
    elif here.startswith(os.pardir):
        here = os.path.abspath(here)  # noqa: PTH100 -- as above
    return here.replace(os.sep, "/")


class Fingerprints:
    """Fingerprints of the findings of one report: the same in the next run, even if lines above were added.

    They are made of the file, the check, the object and the field, so neither of line nor of message. Findings that
    agree in all of these are numbered in the order of the report.
    """

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def of(self, row: Row, entry: Entry) -> str:
        """64 hexadecimal digits."""
        subject = row.reference or str(row.document)
        about = "\0".join((repository_path(row) or "", check_name(entry), subject, entry.field))
        self._seen[about] += 1
        number = self._seen[about]
        return sha256(f"{about}\0{number}".encode(errors="backslashreplace")).hexdigest()


# --- SARIF ---------------------------------------------------------------------------------------

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
    """Return one run of SARIF 2.1.0: findings as results, by code, rule or reason; unreadable input as notifications.

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
        "informationUri": f"{TREE}docs/ci.md",
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
        address = f"{TREE}webhook/commands/explain/codes.md#{anchor}"
    else:
        title = _REASONS.get(name) or (f"rule {name} of the policy" if name == entry.rule else "remark")
        address = f"{TREE}docs/{'policy' if name == entry.rule else 'admission'}.md"
        plain = markdown = f"{title[:1].upper()}{title[1:]}. The message names the field and what is expected."
    found |= {
        "shortDescription": {"text": title},
        "fullDescription": {"text": plain},
        "help": {"text": plain, "markdown": markdown},
        "helpUri": address,
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


# --- GitHub --------------------------------------------------------------------------------------

ANNOTATIONS: Final = 10
"""Of each level, in one step: GitHub shows no more, and drops the others without a word."""
_COMMANDS: Final = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "notice"}


def as_github(report: Report) -> str:
    """Return ten workflow commands of each level, a group of further findings as text, the notes, and the summary."""
    lines, rest = [], []
    sent: Counter[Level] = Counter()
    for row, entry in in_order(report):
        sent[entry.level] += 1
        if sent[entry.level] <= ANNOTATIONS:
            lines.append(_command(row, entry))
        else:
            rest.append(_plain(encodable(line(row, entry, color=False))))
    if rest:
        title = f"{counted(len(rest), 'more finding')}: GitHub shows {ANNOTATIONS} annotations of each level"
        lines += [f"::group::{title}", *rest, "::endgroup::"]
    lines += [f"::notice::{_escaped(visible(note))}" for note in report.notes]
    return "\n".join([*lines, summary(report)]) + "\n"


def _command(row: Row, entry: Entry) -> str:
    """The annotation of a finding. The message begins with the place, since the log does not show the properties."""
    name, path = _COMMANDS[entry.level], repository_path(row)
    about = {} if path is None else {"file": path}
    if entry.position is not None and about:
        about |= {"line": str(entry.position.line), "col": str(entry.position.column)}
    check = entry.code or entry.rule or entry.reason
    about["title"] = " ".join(filter(None, (check and check_name(entry), row.reference))) or name
    properties = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in about.items())
    place = ":".join(map(str, (row.file, *(entry.position or ()))))
    return f"::{name} {properties}::{_escaped(visible(f'{place}: {entry.text}'))}"


def _escaped(text: str, more: str = "") -> str:
    """The text with those characters escaped that end a value of a workflow command."""
    text = encodable(text).replace("##[", "## [")
    return "".join(f"%{ord(each):02X}" if each in f"%\r\n{more}" else visible(each) for each in text)


def _plain(text: str) -> str:
    """The line so that it is no command: those begin with two colons, or have the older `##[name]` anywhere."""
    text = text.replace("##[", "## [")
    return f"./{text}" if text.lstrip().startswith("::") else text


# --- GitLab --------------------------------------------------------------------------------------

_CLIMATE_LEVELS: Final = {Level.ERROR: "critical", Level.WARNING: "minor", Level.INFO: "info"}


def code_quality_values(report: Report) -> list[dict[str, Any]]:
    """Return an issue for each finding, in the subset of Code Climate's format that GitLab shows."""
    fingerprints = Fingerprints()
    return [
        {
            "description": entry.text if not row.reference else f"{row.reference}: {entry.text}",
            "check_name": check_name(entry),
            "fingerprint": fingerprints.of(row, entry),
            "severity": "major" if entry.reason == UNREADABLE else _CLIMATE_LEVELS[entry.level],
            # what is no file of the repository is listed all the same, under the name that it has in the text
            "location": {
                "path": repository_path(row) or row.file,
                "lines": {"begin": entry.position.line if entry.position else 1},
            },
        }
        for row, entry in report.entries()
    ]


# --- OpenReports ---------------------------------------------------------------------------------
#
# `openreports.io/v1alpha1`, for `kubectl apply`. Every namespace gets a Report, without results if nothing was found in
# it, so that applying the next audit takes back what is no longer so. They follow what Kyverno writes and Policy
# Reporter reads: label app.kubernetes.io/managed-by, `source` at the report and at each result, one entry in
# `resources`. There is no `scope`: Policy Reporter would take its kind for that of all results.
#
# Fields and values: https://github.com/openreports/reports-api, apis/openreports.io/v1alpha1/report_types.go.

OPEN_REPORTS: Final = "openreports"
"""The name of the format."""
_VERSION: Final = "openreports.io/v1alpha1"
_POLICY: Final = "DeviceTaintPolicy"
_CATEGORY: Final = "Device Taints"
_RESULTS_MOST: Final = 200
"""In one object: with messages of 1,024 characters that JSON writes with six bytes each, below etcd's 1.5 MiB."""
_MESSAGE_MOST: Final = 1024
_LABELS: Final = {"app.kubernetes.io/managed-by": PROGRAM, "app.kubernetes.io/part-of": PROGRAM}
_OUTCOMES: Final = ("pass", "fail", "warn", "error", "skip")
_DEFAULT_NAMESPACE: Final = "default"


def open_reports(report: Report, namespaces: Collection[str], terminating: Collection[str]) -> list[dict[str, Any]]:
    """Return the Reports of these namespaces and of those with findings, but for those that take no objects any more.

    Of more than 200 findings in a namespace the most severe are listed; the summary counts all. Rules and patches are
    in no namespace, and so in no Report.
    """
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list, {name: [] for name in namespaces if name})
    for row, entry in report.entries():
        if row.name and row.kind not in CONFIRMED and entry.level is not Level.INFO:
            found[row.namespace or _DEFAULT_NAMESPACE].append(_policy_result(row, entry))
    return [_namespace_report(name, results) for name, results in sorted(found.items()) if name not in terminating]


def _namespace_report(namespace: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    counts = Counter(each["result"] for each in results)
    return {
        "apiVersion": _VERSION,
        "kind": "Report",
        "metadata": {"name": PROGRAM, "namespace": namespace, "labels": dict(_LABELS)},
        "source": PROGRAM,
        "configuration": {"limits": {"maxResults": _RESULTS_MOST}},
        "summary": {outcome: counts[outcome] for outcome in _OUTCOMES},
        "results": sorted(results, key=lambda each: not each["scored"])[:_RESULTS_MOST],
    }


def _policy_result(row: Row, entry: Entry) -> dict[str, Any]:
    refused = entry.level is Level.ERROR
    namespace = row.namespace or _DEFAULT_NAMESPACE
    resource = {"apiVersion": row.api_version, "kind": row.kind, "name": row.name, "namespace": namespace}
    properties = {"field": entry.field, "reason": entry.reason}
    return {
        "source": PROGRAM,
        "policy": _POLICY,
        "rule": entry.rule or entry.code or entry.reason,
        "category": _CATEGORY,
        "severity": "high" if refused else "low",
        "result": "fail" if refused else "warn",
        "scored": refused,
        "resources": [resource],
        "message": shortened(entry.text, _MESSAGE_MOST),
        "properties": {name: text for name, text in properties.items() if text},
    }
