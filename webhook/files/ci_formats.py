"""Reports in the format that is asked for, such as those for CI (JUnit, SARIF, GitHub, GitLab), and OpenReports."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from webhook import __version__
from webhook.api.messages import counted
from webhook.api.names import PROGRAM, TREE
from webhook.files import STDIN_NAME
from webhook.files.manifests import CLAIMS
from webhook.files.report import (
    STRUCTURED,
    UNREADABLE,
    Entry,
    Level,
    Report,
    Result,
    Row,
    as_text,
    as_values,
    encodable,
    in_order,
    json_text,
    line,
    shortened,
    summary,
    visible,
)


def check_name(entry: Entry) -> str:
    """Return the warning code, else the policy's rule, else the API server's reason; tools group findings by it."""
    return entry.code or entry.rule or entry.reason or "Finding"


def repository_path(row: Row) -> str | None:
    """Return the row's file as seen from the current folder, with slashes; an absolute path for files outside it.

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


def _with_fingerprints(findings: Iterable[tuple[Row, Entry]]) -> Iterator[tuple[Row, Entry, str]]:
    """Yield findings with their rows and with fingerprints, which stay the same even if lines above are added.

    They are made of the file, the check, the object and the field, so neither of line nor of message. Findings that
    agree in all of these are numbered in the order of the report.
    """
    seen: Counter[str] = Counter()
    for row, entry in findings:
        subject = row.reference or str(row.document)
        about = "\0".join((repository_path(row) or "", check_name(entry), subject, entry.field))
        seen[about] += 1
        yield row, entry, sha256(f"{about}\0{seen[about]}".encode(errors="backslashreplace")).hexdigest()


Texts = Mapping[str, tuple[str, str, str]]
"""By warning code: the code, its title and its text in Markdown."""


def rendered(verb: str, output: str, report: Report, texts: Callable[[], Texts], *, color: bool = False) -> str:
    """Return a report of a verb in one of FORMATS; `texts` is called if they are needed, `color` is for text only."""
    match output:
        case "text":
            return as_text(report, color=color)
        case "junit":
            return as_junit(report, verb)
        case "github":
            return as_github(report)
        case "gitlab":
            return json_text(code_quality_values(report))
        case "sarif":
            return json_text(sarif_values(report, verb, texts()))
        case _:
            return STRUCTURED[output](as_values(report))


# --- JUnit ---------------------------------------------------------------------------------------


def as_junit(report: Report, verb: str) -> str:
    """Return one suite per file, one test case per object; warnings that do not count go to the case's output."""
    # Late, as below: only here, and only to write.
    from xml.etree import ElementTree as ET  # noqa: PLC0415

    root = ET.Element("testsuites", {"name": f"{PROGRAM} {verb}"})
    by_file: defaultdict[str, list[Row]] = defaultdict(list)
    for row in report.rows:
        by_file[row.file].append(row)
    all_outcomes: list[str] = []
    for file, rows in by_file.items():
        suite = ET.SubElement(root, "testsuite", {"name": _xml(file)})
        outcomes = [_case(suite, row, strict=report.strict) for row in rows if row.entries or not row.judges]
        _count(suite, outcomes)
        all_outcomes += outcomes
    _count(root, all_outcomes)
    ET.indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(root, encoding='unicode')}\n"


def _count(element: Any, outcomes: list[str]) -> None:
    element.set("tests", str(len(outcomes)))
    for outcome in ("failures", "errors", "skipped"):
        element.set(outcome, str(outcomes.count(outcome)))


def _case(suite: Any, row: Row, *, strict: bool) -> str:
    """Add the test case of a row; return the counter to increase, or an empty text."""
    from xml.etree.ElementTree import SubElement  # noqa: PLC0415

    where = f" (document {row.document})" if row.document > 1 else ""
    name = (row.reference or "object") + where if row.document else "read"
    case = SubElement(suite, "testcase", {"name": _xml(name), "classname": _xml(row.file), "file": _xml(row.file)})
    if row.position:
        case.set("line", str(row.position.line))
    outcome = ""
    counting = (Level.ERROR, Level.WARNING) if strict else (Level.ERROR,)
    errors = [entry for entry in row.entries if entry.level in counting]
    if errors:
        outcome = "errors" if any(entry.reason == UNREADABLE for entry in errors) else "failures"
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        about = {"message": _xml(errors[0].text + more), "type": errors[0].reason}
        SubElement(case, outcome.removesuffix("s"), about).text = _xml_lines(row, errors)
    elif row.result is Result.SKIPPED:
        outcome = "skipped"
        SubElement(case, "skipped", {"message": _xml(row.skipped)})
    others = [entry for entry in row.entries if entry.level not in counting]
    if others:
        SubElement(case, "system-out").text = _xml_lines(row, others)
    return outcome


def _xml_lines(row: Row, entries: list[Entry]) -> str:
    return _xml("\n".join(line(row, entry, color=False) for entry in entries))


def _xml(text: str) -> str:
    """Return the text without characters that XML 1.0 cannot represent."""
    return "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text)


# --- SARIF ---------------------------------------------------------------------------------------

_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: Final = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "note"}
_SEVERITIES: Final = {"error": "error", "warning": "warning", "note": "recommendation"}
"""What GitHub sorts by."""
_ROOT: Final = "%SRCROOT%"
_ROOT_TEXT: Final = "The folder in which the program ran: the root of the repository."
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


def sarif_values(report: Report, verb: str, texts: Texts) -> dict[str, Any]:
    """Return one run of SARIF 2.1.0: findings as results by code, rule or reason, unreadable input as notifications."""
    unread = [
        {"level": "error", "message": {"text": entry.message}, **_places(row, entry)}
        for row, entry in report.entries()
        if entry.reason == UNREADABLE
    ]
    results = []
    rules: dict[str, dict[str, Any]] = {}
    for row, entry, fingerprint in _with_fingerprints(
        each for each in report.entries() if each[1].reason != UNREADABLE
    ):
        name = check_name(entry)
        rules.setdefault(name, _rule(name, entry, texts))
        result = {
            "ruleId": name,
            "ruleIndex": list(rules).index(name),
            "level": _LEVELS[entry.level],
            "message": {"text": entry.text},
            "partialFingerprints": {"deviceTaint/v1": fingerprint},
            **_places(row, entry),
        }
        results.append(result)
    if report.nothing_checked:
        unread.append({"level": "error", "message": {"text": report.nothing_checked}})
    invocation = {
        "executionSuccessful": not unread,
        "exitCode": report.exit_code,
        "toolExecutionNotifications": [
            *unread,
            *({"level": "note", "message": {"text": each}} for each in report.notes),
        ],
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


def _rule(name: str, entry: Entry, texts: Texts) -> dict[str, Any]:
    """Describe a check, for viewers that show it with all its results."""
    level = _LEVELS[entry.level]
    found: dict[str, Any] = {"id": name}
    if name in texts:
        _, title, markdown = texts[name]
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


def _places(row: Row, entry: Entry) -> dict[str, Any]:
    """Tell the file, and the object and field."""
    place: dict[str, Any] = {}
    path = repository_path(row)
    if path is not None:
        address = quote(path, errors="replace")
        # a file of the repository relative to its root, any other by its whole address
        file = {"uri": f"file://{address}"} if path.startswith("/") else {"uri": address, "uriBaseId": _ROOT}
        place["physicalLocation"] = {"artifactLocation": file}
        if entry.position is not None:
            region = {"startLine": entry.position.line, "startColumn": entry.position.column}
            place["physicalLocation"]["region"] = region
    if row.reference:
        name = f"{row.reference}: {entry.field}" if entry.field else row.reference
        place["logicalLocations"] = [{"fullyQualifiedName": name}]
    return {"locations": [place]} if place else {}


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
            text = encodable(line(row, entry, color=False)).replace("##[", "## [")
            # no command: those begin with two colons, or have the older `##[name]` anywhere
            rest.append(f"./{text}" if text.lstrip().startswith("::") else text)
    if rest:
        title = f"{counted(len(rest), 'more finding')}: GitHub shows {ANNOTATIONS} annotations of each level"
        lines += [f"::group::{title}", *rest, "::endgroup::"]
    lines += [f"::notice::{_escaped(visible(note))}" for note in report.notes]
    return "\n".join([*lines, summary(report)]) + "\n"


def _command(row: Row, entry: Entry) -> str:
    """Annotate a finding. The message begins with the place, since the log does not show the properties."""
    name, path = _COMMANDS[entry.level], repository_path(row)
    about = {} if path is None else {"file": path}
    if entry.position is not None and about:
        about |= {"line": str(entry.position.line), "col": str(entry.position.column)}
    about["title"] = " ".join(filter(None, (entry.code or entry.rule or entry.reason, row.reference))) or name
    properties = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in about.items())
    place = ":".join(map(str, (row.file, *(entry.position or ()))))
    return f"::{name} {properties}::{_escaped(visible(f'{place}: {entry.text}'))}"


def _escaped(text: str, more: str = "") -> str:
    """Escape the characters that end a value of a workflow command."""
    text = encodable(text).replace("##[", "## [")
    return "".join(f"%{ord(each):02X}" if each in f"%\r\n{more}" else visible(each) for each in text)


# --- GitLab --------------------------------------------------------------------------------------

_CLIMATE_LEVELS: Final = {Level.ERROR: "critical", Level.WARNING: "minor", Level.INFO: "info"}


def code_quality_values(report: Report) -> list[dict[str, Any]]:
    """Return an issue for each finding, in the subset of Code Climate's format that GitLab shows."""
    return [
        {
            "description": entry.text if not row.reference else f"{row.reference}: {entry.text}",
            "check_name": check_name(entry),
            "fingerprint": fingerprint,
            "severity": "major" if entry.reason == UNREADABLE else _CLIMATE_LEVELS[entry.level],
            # what is no file of the repository is listed all the same, under the name that it has in the text
            "location": {
                "path": repository_path(row) or row.file,
                "lines": {"begin": entry.position.line if entry.position else 1},
            },
        }
        for row, entry, fingerprint in _with_fingerprints(report.entries())
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
_RESULTS_MOST: Final = 200
"""In one object: with messages of 1,024 characters that JSON writes with six bytes each, below etcd's 1.5 MiB."""
_MESSAGE_MOST: Final = 1024
_DEFAULT_NAMESPACE: Final = "default"
_IN_REPORTS: Final = {*CLAIMS, "ConfigMap"}
"""Kinds that are in a namespace."""


def open_reports(report: Report, namespaces: Collection[str], terminating: Collection[str]) -> list[dict[str, Any]]:
    """Return the Reports of these namespaces and of those with findings, but for those that take no objects any more.

    Of more than 200 findings in a namespace the most severe are listed; the summary counts all. Rules, patches
    and slices are in no namespace, and so in no Report.
    """
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list, {name: [] for name in namespaces if name})
    for row, entry in report.entries():
        if row.name and row.kind in _IN_REPORTS and entry.level is not Level.INFO:
            found[row.namespace or _DEFAULT_NAMESPACE].append(_policy_result(row, entry))
    return [_namespace_report(name, results) for name, results in sorted(found.items()) if name not in terminating]


def _namespace_report(namespace: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    counts = Counter(each["result"] for each in results)
    labels = {f"app.kubernetes.io/{name}": PROGRAM for name in ("managed-by", "part-of")}
    return {
        "apiVersion": "openreports.io/v1alpha1",
        "kind": "Report",
        "metadata": {"name": PROGRAM, "namespace": namespace, "labels": labels},
        "source": PROGRAM,
        "configuration": {"limits": {"maxResults": _RESULTS_MOST}},
        "summary": {outcome: counts[outcome] for outcome in ("pass", "fail", "warn", "error", "skip")},
        "results": sorted(results, key=lambda each: not each["scored"])[:_RESULTS_MOST],
    }


def _policy_result(row: Row, entry: Entry) -> dict[str, Any]:
    refused = entry.level is Level.ERROR
    namespace = row.namespace or _DEFAULT_NAMESPACE
    resource = {"apiVersion": row.api_version, "kind": row.kind, "name": row.name, "namespace": namespace}
    properties = {"field": entry.field, "reason": entry.reason}
    return {
        "source": PROGRAM,
        "policy": "DeviceTaintPolicy",
        "rule": entry.rule or entry.code or entry.reason,
        "category": "Device Taints",
        "severity": "high" if refused else "low",
        "result": "fail" if refused else "warn",
        "scored": refused,
        "resources": [resource],
        "message": shortened(entry.text, _MESSAGE_MOST),
        "properties": {name: text for name, text in properties.items() if text},
    }
