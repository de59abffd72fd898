"""Runs the cases of a policy's test suite: each is a review, answered by the same functions as in the server."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from webhook.admission.chain import explain
from webhook.admission.claim_view import DEFAULTED, REQUESTED_BY, UNNAMEABLE, annotation_of
from webhook.admission.context import UNLIMITED
from webhook.admission.guard import GUARD
from webhook.admission.impact_text import IMPACT, measured_in
from webhook.admission.review import AdmissionRequest
from webhook.admission.softening import SOFTENED
from webhook.api.decode import Reader
from webhook.api.field import FieldError, Finding, Path, Severity, not_supported
from webhook.api.meta import GROUP, GroupVersionKind
from webhook.api.rules import DeviceTaintRule, decode_rule
from webhook.commands.shared.entries import entries_of, meta, text, unreadable_row
from webhook.commands.shared.manifest_review import verdict_on
from webhook.commands.shared.policy_files import read_policy, row_of
from webhook.commands.shared.walks import values_of
from webhook.commands.test.results import CaseResult, Mismatch, listed, mismatches_of
from webhook.files.dump import CLAIMS, Dump, Stock, held_in
from webhook.files.read import Manifest, read
from webhook.files.report import UNREADABLE, Entry, Level, Result, Row
from webhook.files.spots import NOWHERE
from webhook.inventory.patch_reach import KnownPatches
from webhook.inventory.state import Sight
from webhook.policy.decide import Judge
from webhook.policy.model import CLAIM_CONTROLLER, NAMESPACE_NAME_LABEL, Action
from webhook.policy.ports import KnownNames, authenticated
from webhook.policy.store import PolicyStore
from webhook.policy.suites import Word, toleration_in
from webhook.server.assumed_rules import AssumedRules, RecentTaints
from webhook.server.review_state import ReviewState
from webhook.validation.kinds import BY_KIND
from webhook.validation.releases import NEWEST
from webhook.validation.rules import SELECTOR
from webhook.validation.slices import SPEC
from webhook.validation.strict import strict_findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from webhook.admission.decision import Decision
    from webhook.admission.explanation import Explanation
    from webhook.admission.impact_text import Measured
    from webhook.api.field import JSON
    from webhook.api.taints import DeviceToleration
    from webhook.commands.shared.manifest_review import Verdict
    from webhook.inventory.state import Inventory
    from webhook.policy.model import Policy
    from webhook.policy.ports import ClusterNames, Requester
    from webhook.policy.suites import Case, InventorySource, PriorRule, Suite

_FIGURES_AT: Final = frozenset({str(SELECTOR), str(SPEC.child("devices"))})


class Trial:
    """A replica for one case. Rules that it admits stay in the inventory until `undo`."""

    def __init__(self, judge: Judge, names: ClusterNames, inventory: Inventory | None) -> None:
        self._now = datetime.min.replace(tzinfo=UTC)
        self._names = names
        self._inventory = inventory
        self._state = ReviewState(
            policies=PolicyStore(judge),
            authors_unproved=str,
            sight=None if inventory is None else lambda: Sight(inventory),
            patches=KnownPatches,
            read_policy=read_policy,
            assumed_rules=AssumedRules(self._seconds),
            recent_taints=RecentTaints(self._seconds),
        )
        self._before: dict[str, DeviceTaintRule | None] = {}

    def _seconds(self) -> float:
        return self._now.timestamp()

    def verdict_on(self, request: AdmissionRequest, now: datetime) -> Verdict:
        """The verdict at that time, which must not be earlier than that of the previous one."""
        self._now = now
        return verdict_on(request, self._state.context(now, UNLIMITED, self._names))

    def explanation_of(self, verdict: Verdict) -> Explanation:
        """Why the policy decided as it did in the last verdict."""
        return explain(verdict.request, self._state.context(self._now, UNLIMITED, self._names))

    def admit(self, verdict: Verdict) -> None:
        """Stores a rule that was allowed, and remembers its victims as the server does."""
        assumed = self._state.assumed_rules
        if verdict.decision.assumed is not None:
            assumed.add(verdict.decision.assumed, verdict.request.username)
        self.store(verdict.request.object)
        assumed.stored(decode_rule(Reader.of(verdict.request.object, [])))

    def store(self, value: JSON) -> None:
        """Stores a rule as a server does; fields of a wrong type count as missing."""
        rule = decode_rule(Reader.of(value, []))
        if self._inventory is not None:
            self._before.setdefault(rule.meta.name, self._inventory.rules.get(rule.meta.name))
            self._inventory.apply(None, rule)

    def undo(self) -> None:
        """Leaves the inventory as it was."""
        if self._inventory is None:
            return
        for name, rule in self._before.items():
            stored = self._inventory.rules.get(name)
            if rule is not None or stored is not None:
                self._inventory.apply(stored, rule)
        self._before.clear()


class BadCase(Exception):  # noqa: N818 -- it says what is wrong, and is reported rather than handled
    """A case that cannot be run; `path` is where, if that is not the case as a whole."""

    def __init__(self, message: str, path: Path | None = None) -> None:
        super().__init__(message)
        self.path = path


class Runner:
    """Runs cases of one suite against its policy and cluster, each as if it were the only one.

    `now` is the time of cases without one.
    """

    def __init__(
        self, suite: Suite, policy: Policy, folder: str, cluster: SuiteCluster | None = None, *, now: datetime
    ) -> None:
        self._suite = suite
        self._policy = policy
        self._judge = Judge(policy)
        self._folder = folder
        self._now = now
        self._inventory = None if cluster is None else cluster.inventory
        found = Dump() if cluster is None else cluster.names
        labels = {name: {**given, NAMESPACE_NAME_LABEL: name} for name, given in suite.namespaces.items()}
        self._names = KnownNames({**found.namespaces, **labels}, {**found.device_classes, **suite.device_classes})

    def outcome_of(self, case: Case) -> CaseResult:
        """The case, run and compared. Raises BadCase."""
        trial = Trial(self._judge, self._names, self._inventory)
        now = case.time or self._now
        try:
            refused = tuple(self._refusals_before(case, trial, now))
            request = self._request(case, case.author)
            self._check_stored(case, request, trial)
            verdict = trial.verdict_on(request, now)
            outcome = self._compared(case, request, verdict)
            if outcome.mismatches:
                outcome = replace(outcome, explanation=values_of(trial.explanation_of(verdict), NOWHERE))
        finally:
            trial.undo()
        return replace(outcome, mismatches=(*refused, *outcome.mismatches)) if refused else outcome

    def _refusals_before(self, case: Case, trial: Trial, now: datetime) -> Iterator[Mismatch]:
        """Admits the rules of `before`, one after the other; one that is refused is a mismatch."""
        for step in case.before:
            request = structs.replace(self._request(step), dry_run=False)
            if request.kind.kind != DeviceTaintRule.__name__ or not request.name:
                raise BadCase("must be a DeviceTaintRule with a name", step.path)
            self._check_stored(step, request, trial)
            verdict = trial.verdict_on(request, now - timedelta(seconds=step.seconds_ago))
            denials = [finding for finding in (*verdict.strict, *verdict.findings) if finding.severity is Severity.DENY]
            if denials or not verdict.decision.allowed:
                said = listed(str(finding.error) for finding in denials) if denials else verdict.decision.problem
                yield Mismatch(f"before[{case.before.index(step)}]", "allowed", f"denied {said}")
            else:
                trial.admit(verdict)

    def _check_stored(self, sent: Case | PriorRule, request: AdmissionRequest, trial: Trial) -> None:
        """Stores the rule as it is before an update; a rule that is created must not exist yet."""
        if request.kind.kind != DeviceTaintRule.__name__ or self._inventory is None:
            return
        if request.operation == "UPDATE":
            trial.store(request.old_object)
        elif request.name in self._inventory.rules:
            message = f"DeviceTaintRule {request.name} already exists; an update needs oldObject"
            raise BadCase(message, sent.path.child("object"))

    def _compared(self, case: Case, request: AdmissionRequest, verdict: Verdict) -> CaseResult:
        annotation = verdict.decision.annotations.get(IMPACT)
        measured = None if annotation is None else measured_in(annotation)
        said = [finding for finding in (*verdict.strict, *verdict.findings) if not _is_advice(finding)]
        weighty = [finding for finding in said if not _is_figure(finding, measured)]
        messages = tuple(map(str, said))
        if verdict.decision.problem is not None:
            messages += (verdict.decision.problem,)
        defaulted = _defaulted(request, verdict)
        matched = {*(name for name, _ in verdict.decision.hits), *_defaulting(self._policy, defaulted)}
        rules = tuple(sorted(_names_heard(verdict.decision, weighty, self._policy)))
        softened = [each for each in verdict.remarks if each.code == SOFTENED]
        word = _word_of([*weighty, *softened], verdict)
        messages += tuple(map(str, softened))
        outcome = CaseResult(case, word, rules, frozenset(matched), messages, measured, softened=bool(softened))
        fields = {name for finding in said for name in (finding.error.field, finding.error.path.written)}
        return replace(outcome, mismatches=tuple(mismatches_of(outcome, fields, defaulted)))

    def _request(self, case: Case | PriorRule, author: Requester | None = None) -> AdmissionRequest:
        value = case.object if case.object is not None else self._object_in(case.file)
        kind = GroupVersionKind.parse(text(value, "apiVersion"), text(value, "kind"))
        if kind not in BY_KIND:
            known = ", ".join(sorted({known.kind for known in BY_KIND}))
            raise BadCase(f"the webhook does not review {kind}; it reviews {known}")
        namespace = text(meta(value), "namespace") or self._suite.namespace
        requester = case.requester or authenticated(CLAIM_CONTROLLER)
        if author is not None:
            value = _written_by(author, value, kind)
        return AdmissionRequest(
            uid=str(case.path),
            operation=case.operation,
            resource=BY_KIND[kind],
            kind=kind,
            name=text(meta(value), "name"),
            namespace=namespace if kind.kind in CLAIMS else "",
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
            raise BadCase(f"{path}: must contain one object, but contains {len(manifests)}")
        return manifests[0].value


def _written_by(author: Requester, value: JSON, kind: GroupVersionKind) -> JSON:
    """The claim as the controller makes it from a template that the author wrote."""
    if kind.kind != "ResourceClaim":
        raise BadCase(f"author is for claims that are made from a template, not for a {kind.kind}")
    annotation = annotation_of(author)
    if annotation is None:
        raise BadCase(f"author: {UNNAMEABLE}")
    return {**value, "metadata": {**meta(value), "annotations": {**_annotations(value), REQUESTED_BY: annotation}}}


def _is_advice(finding: Finding) -> bool:
    return finding.code is not None and finding.severity is not Severity.DENY


def _is_figure(finding: Finding, measured: Measured | None) -> bool:
    """Whether the guard only reports what a taint hits, as it does for every taint, and finds it within the limits."""
    if finding.rule != GUARD or finding.severity is not Severity.WARN or str(finding.error.path) not in _FIGURES_AT:
        return False
    return measured is not None and (not measured.over or measured.confirmed)


def _word_of(findings: list[Finding], verdict: Verdict) -> Word:
    severities = {finding.severity for finding in findings}
    if Severity.DENY in severities or not verdict.decision.allowed:
        return Word.DENIED
    return Word.WARNED if Severity.WARN in severities else Word.ALLOWED


def _names_heard(decision: Decision, findings: list[Finding], policy: Policy) -> set[str]:
    """The rules and exceptions that matched with a finding; an exception counts for the rule that it excuses."""
    exceptions = {exception.name for exception in policy.exceptions}
    names = {name for name, action in decision.hits if action is not Action.ALLOW or name in exceptions}
    return names | {finding.rule for finding in findings if finding.rule is not None}


def _defaulting(policy: Policy, defaulted: tuple[DeviceToleration, ...]) -> Iterator[str]:
    """The entries of `defaultTolerations` of which something was added."""
    for entry in policy.default_tolerations:
        if any(toleration in defaulted for toleration in entry.tolerations):
            yield entry.name


def _defaulted(request: AdmissionRequest, verdict: Verdict) -> tuple[DeviceToleration, ...]:
    """The tolerations that /mutate added, in the order of requests, from the annotation that lists them."""
    note = _annotations(verdict.request.object).get(DEFAULTED)
    if note is None or _annotations(request.object).get(DEFAULTED) == note:
        return ()
    added = (Reader.of(each, []) for tolerations in msgspec.json.decode(note).values() for each in tolerations)
    return tuple(map(toleration_in, added))


def _annotations(value: JSON) -> Mapping[str, JSON]:
    found = meta(value).get("annotations")
    return found if isinstance(found, dict) else {}


# --- the cluster of a suite -----------------------------------------------------------------------


_OBJECTS: Final = Path.root().child("inventory", "objects")
_HELD: Final = frozenset({(GROUP, "ResourceSlice"), (GROUP, "ResourceClaim"), (GROUP, "DeviceTaintRule"), ("", "Pod")})
_NAMES: Final = frozenset({(GROUP, "DeviceClass"), ("", "Namespace")})
_KINDS: Final = sorted(kind for _, kind in _HELD | _NAMES)
_EMPTY: Final = f"contains none of {', '.join(_KINDS)}"


@dataclass(slots=True)
class SuiteCluster:
    """The objects and names of a cluster; incomplete if there are `faults`, which say what is unusable."""

    stock: Stock = field(default_factory=Stock)
    names: Dump = field(default_factory=Dump)
    faults: list[Row] = field(default_factory=list)

    @property
    def inventory(self) -> Inventory:
        """Slices, rules, claims and pods."""
        return self.stock.inventory


def cluster_of(given: InventorySource, suite: Manifest, folder: str) -> SuiteCluster:
    """The cluster of a suite in `folder`; inline objects replace those in files."""
    cluster = SuiteCluster()
    for name in given.files:
        _add_files(cluster, os.path.join(folder, name))  # noqa: PTH118 -- shown as it is put together
    errors = [error for position, value in enumerate(given.objects) for error in _add_object(cluster, value, position)]
    if errors:
        cluster.faults.append(_unusable(row_of(suite), [*entries_of(suite.spot, _denials(errors))]))
    return cluster


def _add_files(cluster: SuiteCluster, name: str) -> None:
    known, found = len(cluster.stock.malformed), False
    for file in read([name]):
        unreadable = unreadable_row(file)
        if unreadable is not None:
            cluster.faults.append(unreadable)
            found = True
        ours = [manifest for manifest in file.manifests if _kind_of(manifest.value) in _HELD | _NAMES]
        found = found or bool(ours)
        cluster.stock.add(ours)
        cluster.names.add(manifest for manifest in ours if _kind_of(manifest.value) in _NAMES)
    for manifest, error in cluster.stock.malformed[known:]:
        cluster.faults.append(_unusable(row_of(manifest), [*entries_of(manifest.spot, _denials([error]))]))
    if not found:
        cluster.faults.append(_unusable(Row(name), [Entry(Level.ERROR, _EMPTY)]))


def _add_object(cluster: SuiteCluster, value: JSON, position: int) -> Iterator[FieldError]:
    """One inline object. Unknown fields are errors here, since no server will report them."""
    path = _OBJECTS.index(position)
    kind = _kind_of(value)
    if kind in _NAMES:
        cluster.names.add([Manifest("", 0, value, NOWHERE)])
    elif kind in _HELD:
        held, errors = held_in(value, path)
        yield from errors
        for finding in strict_findings(value, GroupVersionKind.parse(text(value, "apiVersion"), kind[1]), NEWEST, path):
            if finding.severity is Severity.DENY:
                yield finding.error
        cluster.inventory.apply(None, held)
    else:
        yield not_supported(path.child("kind"), value.get("kind"), _KINDS)


def _kind_of(value: JSON) -> tuple[str, str]:
    if not isinstance(value, dict):
        return "", ""
    kind = GroupVersionKind.parse(text(value, "apiVersion"), text(value, "kind"))
    return kind.group, kind.kind


def _denials(errors: Sequence[FieldError]) -> Iterator[Finding]:
    return (Finding(Severity.DENY, error) for error in errors)


def _unusable(row: Row, entries: Sequence[Entry]) -> Row:
    """A fault that makes every case of the suite meaningless."""
    unreadable_entries = tuple(replace(entry, reason=UNREADABLE) for entry in entries)
    return replace(row, result=Result.DENIED, entries=unreadable_entries)
