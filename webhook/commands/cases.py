"""Running the cases of a policy's test suite: each is a review, answered by the functions that answer a server's."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import structs

from webhook.admission.author import REQUESTED_BY, digest, signed
from webhook.admission.context import AdmissionContext
from webhook.admission.facts import DEFAULTED
from webhook.admission.review import AdmissionRequest
from webhook.api.claims import ResourceClaim
from webhook.api.decode import Reader
from webhook.api.field import Severity
from webhook.api.meta import GroupVersionKind
from webhook.api.taints import EQUAL, DeviceToleration, decode_toleration
from webhook.commands.entries import meta, text
from webhook.commands.policies import read_policy
from webhook.commands.verdicts import verdict_on
from webhook.files.read import read
from webhook.policy.decide import Judge
from webhook.policy.defaults import rendered
from webhook.policy.model import CLAIM_CONTROLLER, NAMESPACE_NAME_LABEL, Action, Policy
from webhook.policy.names import KnownNames
from webhook.policy.requesters import authenticated
from webhook.policy.suites import Case, Suite, Word
from webhook.validation.kinds import BY_KIND, KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from webhook.admission.decision import Decision
    from webhook.api.field import JSON, Finding
    from webhook.commands.verdicts import Verdict

_TOLD: Final = frozenset({Severity.DENY, Severity.WARN})


class BadCase(Exception):  # noqa: N818 -- it says what is wrong, and is told, not handled
    """A case that cannot be run."""


class Mismatch(NamedTuple):
    """One thing that came otherwise than expected."""

    about: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.about}: expected {self.expected}, got {self.got}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case. `rules` spoke, `matched` are all that were hit, those that allow too."""

    case: Case
    word: Word
    rules: tuple[str, ...]
    matched: frozenset[str]
    messages: tuple[str, ...]
    mismatches: tuple[Mismatch, ...] = ()


class Runner:
    """Runs cases of one suite against its policy. `now` is the time of cases without one; `key` signs authors."""

    def __init__(self, suite: Suite, policy: Policy, folder: str, *, now: datetime, key: bytes) -> None:
        self._suite = suite
        self._folder = folder
        labels = {name: {**given, NAMESPACE_NAME_LABEL: name} for name, given in suite.namespaces.items()}
        self._context = AdmissionContext(
            now=now,
            judge=Judge(policy),
            names=KnownNames(labels, suite.device_classes),
            key=key,
            read_policy=read_policy,
        )
        self._key = key

    def outcome_of(self, case: Case) -> Outcome:
        """The case, run and compared. Raises BadCase."""
        request = self._request(case)
        context = self._context if case.time is None else structs.replace(self._context, now=case.time)
        verdict = verdict_on(request, context)
        told = [finding for finding in (*verdict.strict, *verdict.findings) if not _is_advice(finding)]
        messages = tuple(str(finding.error) for finding in told)
        if verdict.decision.problem is not None:
            messages += (verdict.decision.problem,)
        defaulted = _defaulted(request, verdict)
        matched = {*(name for name, _ in verdict.decision.hits), *_defaulting(context.policy, defaulted)}
        rules = tuple(sorted(_spoken(verdict.decision, told, context.policy)))
        outcome = Outcome(case, _word(told, verdict), rules, frozenset(matched), messages)
        fields = {name for finding in told for name in (finding.error.field, finding.error.path.written)}
        return replace(outcome, mismatches=tuple(_mismatches(outcome, fields, defaulted)))

    def _request(self, case: Case) -> AdmissionRequest:
        value = case.object if case.object is not None else self._object_in(case.file)
        kind = GroupVersionKind.parse(text(value, "apiVersion"), text(value, "kind"))
        if kind not in BY_KIND:
            known = ", ".join(sorted({known.kind for known in BY_KIND}))
            raise BadCase(f"{kind} is not judged by the webhook; kinds that are: {known}")
        namespace = text(meta(value), "namespace") or self._suite.namespace
        requester = case.requester or authenticated(CLAIM_CONTROLLER)
        if case.author is not None:
            value = self._signed(case, value, kind, namespace)
        namespaced = kind.kind in {"ResourceClaim", "ResourceClaimTemplate"}
        return AdmissionRequest(
            uid=case.name,
            operation=case.operation,
            resource=BY_KIND[kind],
            kind=kind,
            name=text(meta(value), "name"),
            namespace=namespace if namespaced else "",
            username=requester.username,
            groups=requester.groups,
            dry_run=True,
            object=value,
            old_object=case.old_object,
        )

    def _object_in(self, name: str) -> JSON:
        path = os.path.join(self._folder, name)  # noqa: PTH118 -- shown as it is put together
        manifests = []
        for file in read([path]):
            if file.unreadable:
                raise BadCase(f"{path}: {file.unreadable[0].message}")
            manifests += file.manifests
        if len(manifests) != 1 or not isinstance(manifests[0].value, dict):
            raise BadCase(f"{path}: must hold one object, and holds {len(manifests)}")
        return manifests[0].value

    def _signed(self, case: Case, value: JSON, kind: GroupVersionKind, namespace: str) -> JSON:
        """The claim as the controller makes it from a template that the author wrote."""
        claim = KINDS[BY_KIND[kind]].decode(Reader.of(value, []))
        if not isinstance(claim, ResourceClaim) or case.author is None:
            raise BadCase(f"author is for claims that are made from a template, not for a {kind.kind}")
        annotation = signed(case.author, namespace, case.name, digest(claim.requests), self._key)
        annotations = {**_annotations(value), REQUESTED_BY: annotation}
        return {**value, "metadata": {**meta(value), "annotations": annotations}}


def _is_advice(finding: Finding) -> bool:
    return finding.code is not None and finding.severity is not Severity.DENY


def _word(told: list[Finding], verdict: Verdict) -> Word:
    severities = {finding.severity for finding in told}
    if Severity.DENY in severities or not verdict.decision.allowed:
        return Word.DENIED
    return Word.WARNED if Severity.WARN in severities else Word.ALLOWED


def _spoken(decision: Decision, told: list[Finding], policy: Policy) -> set[str]:
    """The rules and exceptions that had something to say. An exception says that a rule would have."""
    exceptions = {exception.name for exception in policy.exceptions}
    names = {name for name, action in decision.hits if action is not Action.ALLOW or name in exceptions}
    return names | {finding.rule for finding in told if finding.rule is not None}


def _defaulting(policy: Policy, defaulted: tuple[DeviceToleration, ...]) -> Iterator[str]:
    """The entries of `defaultTolerations` of which something was added."""
    for entry in policy.default_tolerations:
        if any(toleration in defaulted for toleration in entry.tolerations):
            yield entry.name


def _defaulted(request: AdmissionRequest, verdict: Verdict) -> tuple[DeviceToleration, ...]:
    """What /mutate added, in the order of requests; it says so in an annotation."""
    note = _annotations(verdict.request.object).get(DEFAULTED)
    if note is None or _annotations(request.object).get(DEFAULTED) == note:
        return ()
    return tuple(_tolerations(note))


def _annotations(value: JSON) -> Mapping[str, JSON]:
    found = meta(value).get("annotations")
    return found if isinstance(found, dict) else {}


def _tolerations(note: str) -> Iterator[DeviceToleration]:
    for tolerations in msgspec.json.decode(note).values():
        for each in tolerations:
            toleration = decode_toleration(Reader.of(each, []))
            yield structs.replace(toleration, operator=toleration.operator or EQUAL)


def _mismatches(outcome: Outcome, fields: set[str], defaulted: tuple[DeviceToleration, ...]) -> Iterator[Mismatch]:
    expect = outcome.case.expect
    if outcome.word is not expect.decision:
        yield Mismatch("decision", expect.decision.value, outcome.word.value)
    if expect.rules is not None and expect.rules != set(outcome.rules):
        yield Mismatch("rules", _listed(sorted(expect.rules)), _listed(outcome.rules))
    if expect.message is not None and not any(expect.message in message for message in outcome.messages):
        yield Mismatch("message", f'one with "{expect.message}"', _listed(outcome.messages))
    if expect.field is not None and expect.field not in fields:
        yield Mismatch("field", expect.field, _listed(sorted(fields)))
    if expect.defaulted is not None and expect.defaulted != defaulted:
        yield Mismatch("defaulted", _shown(expect.defaulted), _shown(defaulted))


def _listed(names: Any) -> str:
    return f"[{', '.join(names)}]"


def _shown(tolerations: tuple[DeviceToleration, ...]) -> str:
    maps = (", ".join(f"{name}: {value}" for name, value in rendered(each).items()) for each in tolerations)
    return _listed(f"{{{fields}}}" for fields in maps)
