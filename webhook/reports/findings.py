"""Findings as reports have them: about one object, with an outcome, a severity and the name of a rule.

Fields and values: https://github.com/openreports/reports-api, apis/openreports.io/v1alpha1/report_types.go.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

_MESSAGE_MOST: Final = 1024


class ReportOutcome(StrEnum):
    """Values of `result`: FAIL would be refused, WARN would pass with a warning, ERROR could not be judged."""

    FAIL = "fail"
    WARN = "warn"
    ERROR = "error"


class ReportSeverity(StrEnum):
    """Values of `severity` that are used."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"


class ReportSubject(NamedTuple):
    """The object that a finding is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    """Empty for a cluster-wide object."""
    uid: str = ""


class ReportFinding(NamedTuple):
    """One result of a report, without its time."""

    subject: ReportSubject
    policy: str
    """What was checked: `DeviceTaintPolicy` for stored claims and templates, else a name of ours."""
    rule: str
    outcome: ReportOutcome
    severity: ReportSeverity
    message: str
    properties: tuple[tuple[str, str], ...] = ()

    def shortened(self) -> ReportFinding:
        """With a message of at most 1,024 characters."""
        if len(self.message) <= _MESSAGE_MOST:
            return self
        return self._replace(message=f"{self.message[: _MESSAGE_MOST - 3]}...")
