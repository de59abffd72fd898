"""Report and ClusterReport objects: one for each namespace, one for cluster-wide objects, more where these are large.

They follow what Kyverno writes and Policy Reporter reads: label app.kubernetes.io/managed-by, `source` at the report
and at each result, one entry in `resources`. There is no `scope`: Policy Reporter would take its kind for that of all
results.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from webhook.api.counts import counted
from webhook.api.meta import OWN_GROUP
from webhook.api.names import PROGRAM
from webhook.reports.findings import ReportOutcome
from webhook.reports.shards import SizedFinding, shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from webhook.reports.findings import ReportFinding

REPORTS_GROUP: Final = "openreports.io"
REPORTS_VERSION: Final = "v1alpha1"
REPORT: Final = "Report"
CLUSTER_REPORT: Final = "ClusterReport"
DIGEST: Final = f"{OWN_GROUP}/report-digest"
"""Annotation with the digest of everything but times."""
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
CATEGORY: Final = "Device Taints"
_SHARD_BYTES: Final = 512 * 1024
"""Of results in one object, as the API server stores them: half of the 1 MiB that an object should stay below, as etcd
takes 1.5 MiB and the object's own head comes on top."""
_OF_SUBJECT_MOST: Final = 64
"""Results about one subject; the last one then says how many were left out."""
_TIME_BYTES: Final = 50
_ESCAPED: Final = (b"<", b">", b"&")
_ESCAPE_BYTES: Final = 5
"""What the API server's JSON adds for each of those characters."""
_encoder: Final = msgspec.json.Encoder(order="deterministic")


class ReportId(NamedTuple):
    """One object of ours. The namespace of a ClusterReport is empty."""

    namespace: str
    name: str

    @property
    def kind(self) -> str:
        """Report or ClusterReport."""
        return REPORT if self.namespace else CLUSTER_REPORT


class ReportObject(NamedTuple):
    """An object to be written: its results in order, and a digest that changes with anything but times."""

    identity: ReportId
    findings: tuple[ReportFinding, ...]
    digest: str

    def manifest(self, found_at: Mapping[ReportFinding, int]) -> dict[str, Any]:
        """The object as it is applied. `found_at`: when a finding was first found, in seconds since 1970."""
        namespace, name = self.identity
        return {
            "apiVersion": f"{REPORTS_GROUP}/{REPORTS_VERSION}",
            "kind": self.identity.kind,
            "metadata": {
                "name": name,
                **({"namespace": namespace} if namespace else {}),
                "labels": {MANAGED_BY: PROGRAM, "app.kubernetes.io/part-of": PROGRAM},
                "annotations": {DIGEST: self.digest},
            },
            "source": PROGRAM,
            "summary": _summary(self.findings),
            "results": [
                {**_result(each), "timestamp": {"seconds": found_at[each], "nanos": 0}} for each in self.findings
            ],
        }


def report_objects(findings: Iterable[ReportFinding]) -> Iterator[ReportObject]:
    """The objects that hold the findings, by namespace. A finding that comes twice counts once."""
    by_namespace: defaultdict[str, set[ReportFinding]] = defaultdict(set)
    for each in findings:
        by_namespace[each.subject.namespace].add(each.shortened())
    for namespace, found in sorted(by_namespace.items()):
        sized = [SizedFinding(each, _size(each)) for each in _bounded(found)]
        for bits, part in shards(sized, _SHARD_BYTES):
            name = f"{PROGRAM}-{bits}" if bits else PROGRAM
            yield _object(ReportId(namespace, name), [each.finding for each in part])


def _bounded(findings: Iterable[ReportFinding]) -> Iterator[ReportFinding]:
    """A bounded number of results about each subject."""
    by_subject: defaultdict[Any, list[ReportFinding]] = defaultdict(list)
    for each in sorted(findings):
        by_subject[each.subject].append(each)
    for found in by_subject.values():
        yield from found[:_OF_SUBJECT_MOST]
        if len(found) > _OF_SUBJECT_MOST:
            more = len(found) - _OF_SUBJECT_MOST
            message = counted(more, "more finding")
            yield found[_OF_SUBJECT_MOST]._replace(rule="more", message=message, properties=())


def _object(identity: ReportId, findings: Sequence[ReportFinding]) -> ReportObject:
    digest = hashlib.sha256(_encoder.encode([_result(each) for each in findings])).hexdigest()[:32]
    return ReportObject(identity, tuple(findings), digest)


def _size(finding: ReportFinding) -> int:
    text = _encoder.encode(_result(finding))
    return len(text) + _TIME_BYTES + _ESCAPE_BYTES * sum(map(text.count, _ESCAPED))


def _result(finding: ReportFinding) -> dict[str, Any]:
    subject = finding.subject
    resource = {"apiVersion": subject.api_version, "kind": subject.kind, "name": subject.name}
    if subject.namespace:
        resource["namespace"] = subject.namespace
    if subject.uid:
        resource["uid"] = subject.uid
    return {
        "source": PROGRAM,
        "policy": finding.policy,
        "rule": finding.rule,
        "category": CATEGORY,
        "severity": finding.severity.value,
        "result": finding.outcome.value,
        "scored": finding.outcome is ReportOutcome.FAIL,
        "resources": [resource],
        "message": finding.message,
        **({"properties": dict(finding.properties)} if finding.properties else {}),
    }


def _summary(findings: Iterable[ReportFinding]) -> dict[str, int]:
    counts = Counter(each.outcome for each in findings)
    counted = {outcome.value: counts[outcome] for outcome in ReportOutcome}
    return {"pass": 0, "skip": 0, **counted}
