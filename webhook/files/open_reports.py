"""A report of an audit as OpenReports (`openreports.io/v1alpha1`), for `kubectl apply`.

Every namespace gets a Report, without results if nothing was found in it, so that applying the next audit takes back
what is no longer so. They follow what Kyverno writes and Policy Reporter
reads: label app.kubernetes.io/managed-by, `source` at the report and at each result, one entry in `resources`. There is
no `scope`: Policy Reporter would take its kind for that of all results.

Fields and values: https://github.com/openreports/reports-api, apis/openreports.io/v1alpha1/report_types.go.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Any, Final

from webhook.api.names import PROGRAM
from webhook.files.dump import CONFIRMED
from webhook.files.render import shortened
from webhook.files.report import Entry, Level, Report, Row

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
            found[row.namespace or _DEFAULT_NAMESPACE].append(_result(row, entry))
    return [_object(name, results) for name, results in sorted(found.items()) if name not in terminating]


def _object(namespace: str, results: list[dict[str, Any]]) -> dict[str, Any]:
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


def _result(row: Row, entry: Entry) -> dict[str, Any]:
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
