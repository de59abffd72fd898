"""The outcome of a review."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.counts import counted
from webhook.api.field import FieldError, Finding, Severity
from webhook.policy.model import Action

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.api.field import JSON
    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.fates import DeviceNames
    from webhook.inventory.impact import Impact

BREAK_GLASS: Final = "break-glass"
"""The name under which a refusal is reported that was waived for a member of a break-glass group."""
WARNING_MAX: Final = 256
"""Characters of one warning; the API server cuts longer ones (apiserver/pkg/endpoints/filters/warning.go)."""
WARNINGS_MAX: Final = 4096
"""Characters of all warnings of an answer."""
_ROOM_FOR_REST: Final = 40


class Change(StrEnum):
    """How the candidate policy differs."""

    DENIED = "denied"
    ALLOWED = "allowed"
    WARNED = "warned"
    SILENT = "silent"


class Assumed(NamedTuple):
    """A rule that acts (NoSchedule or more) once it is stored, or the rules that will come of a patch.

    `names` are the devices on which it begins to act; `impact` is what it hit when it was looked at.
    """

    rules: tuple[DeviceTaintRule, ...]
    names: tuple[DeviceNames, ...]
    impact: Impact


class Difference(NamedTuple):
    """One request or toleration on which the candidate policy decides differently.

    `rule` is the rule that makes the difference: the candidate's rule that matches now, else the active policy's rule
    that no longer does.
    """

    path: str
    what: str
    rule: str
    change: Change


@dataclass(frozen=True, slots=True)
class Decision:
    """Findings, and what to change. Whether the request is allowed follows from the findings."""

    findings: tuple[Finding, ...] = ()
    patch: tuple[dict[str, JSON], ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    hits: tuple[tuple[str, Action], ...] = ()
    """The policy's rules that matched, in order, with the action that took effect."""
    differences: tuple[Difference, ...] = ()
    """Where a candidate policy would have decided differently."""
    assumed: Assumed | None = None
    """What will act, unless this was a dry run: the next reviews must count it."""
    broke_glass: bool = False
    """Whether a refusal was waived for a member of a break-glass group."""
    softened: bool = False
    """Whether the patch softens a rule that was not softened before."""
    problem: str | None = None
    """Why the request itself made no sense, which refuses it with 400."""

    @property
    def allowed(self) -> bool:
        """No finding denies it."""
        return self.problem is None and not any(finding.severity is Severity.DENY for finding in self.findings)

    @property
    def turned_down(self) -> bool:
        """Whether it is allowed only because the policy turns a refusal into a warning."""
        return self.allowed and any(finding.turned_down for finding in self.findings)

    @property
    def names(self) -> tuple[str, ...]:
        """The sorted names of all findings: codes, rules of the policy that did more than allow, and names of ours."""
        names = {finding.name for finding in self.findings}
        names.update(name for name, action in self.hits if action is not Action.ALLOW)
        if self.broke_glass:
            names.add(BREAK_GLASS)
        return tuple(sorted(names))

    @property
    def denials(self) -> tuple[Finding, ...]:
        """The findings that refuse the request."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.DENY)

    @property
    def errors(self) -> tuple[FieldError, ...]:
        """The field errors that refuse the request."""
        return tuple(finding.error for finding in self.denials)

    @property
    def code(self) -> int:
        """200; 400 for a request that makes no sense; 403 where policy refuses; 422 where the object is wrong."""
        if self.problem is not None:
            return 400
        if not self.findings:
            return 200
        denials = self.denials
        if not denials:
            return 200
        return 403 if all(finding.policy for finding in denials) else 422

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings to show, cut to what the API server lets through."""
        texts = [_warning(finding) for finding in self.findings if finding.severity is Severity.WARN]
        kept: list[str] = []
        room = WARNINGS_MAX - _ROOM_FOR_REST
        for text in texts:
            room -= len(text)
            if room < 0:
                rest = len(texts) - len(kept)
                kept.append(f"and {counted(rest, 'more warning')}")
                break
            kept.append(text)
        return tuple(kept)


ALLOWED: Final = Decision()


def _warning(finding: Finding) -> str:
    tail = f" [{finding.code}]" if finding.code else f" (rule {finding.rule})" if finding.rule else ""
    text = " ".join(str(finding).split())
    if len(text) + len(tail) > WARNING_MAX:
        text = f"{text[: WARNING_MAX - len(tail) - 3]}..."
    return text + tail
