"""Runs the cases of a policy's test suite: each is a review, answered by the same functions as in the server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec import structs

from webhook.admission.chain import explain
from webhook.admission.claim_view import DEFAULTED, REQUESTED_BY, UNNAMEABLE, annotation_of
from webhook.admission.context import UNLIMITED
from webhook.admission.guard import GUARD
from webhook.admission.impact_text import IMPACT, Measured, measured_in
from webhook.admission.review import AdmissionRequest
from webhook.admission.softening import SOFTENED
from webhook.api.decode import Reader
from webhook.api.field import JSON, FieldError, Finding, Path, Severity, not_supported, required
from webhook.api.meta import GROUP, GroupVersionKind
from webhook.api.rules import DeviceTaintRule, decode_rule
from webhook.api.taints import DeviceToleration
from webhook.commands.shared.entries import entries_of, unreadable_row
from webhook.commands.shared.manifest_review import Verdict, verdict_on
from webhook.commands.shared.policy_files import read_policy
from webhook.commands.shared.walks import values_of
from webhook.commands.test.results import CaseReport, Mismatch, Results, Tested, listed, mismatches_of
from webhook.expressions.drivers import drivers_of
from webhook.files.manifests import CLAIMS, Stock, child, kind_of, meta, says_version, text
from webhook.files.read import Manifest, read
from webhook.files.report import Entry, Level
from webhook.files.spots import NOWHERE, find
from webhook.inventory.state import Sight
from webhook.patches.patch_reach import KnownPatches
from webhook.policy.decide import Judge, PolicyStore
from webhook.policy.match import ClusterNames, KnownNames, Requester, authenticated
from webhook.policy.model import CLAIM_CONTROLLER, NAMESPACE_NAME_LABEL, Action, Policy
from webhook.policy.suites import Case, InventorySource, PriorRule, Suite, Word, toleration_in
from webhook.server.state import AssumedRules, RecentTaints, ReviewState
from webhook.validation.kinds import BY_KIND
from webhook.validation.releases import NEWEST
from webhook.validation.rules import SELECTOR
from webhook.validation.slices import SPEC
from webhook.validation.strict import strict_findings

_FIGURES_AT: Final = frozenset({str(SELECTOR), str(SPEC.child("devices"))})


class Trial:
    """A replica for one case. Rules that it admits stay in the inventory until `undo`."""

    def __init__(self, judge: Judge, names: ClusterNames, stock: Stock | None) -> None:
        self._now = datetime.min.replace(tzinfo=UTC)
        self._names = names
        found = Stock() if stock is None else stock
        self._inventory = found.inventory
        self._state = ReviewState(
            policies=PolicyStore(judge),
            authors_unproved=str,
            sight=None if stock is None else lambda: Sight(found.inventory),
            patches=lambda: KnownPatches({}, found.classes),
            read_policy=read_policy,
            assumed_rules=AssumedRules(self._seconds),
            recent_taints=RecentTaints(self._seconds),
        )
        self._before: dict[str, DeviceTaintRule | None] = {}

    def _seconds(self) -> float:
        return self._now.timestamp()

    def verdict_on(self, request: AdmissionRequest, now: datetime) -> Verdict:
        """Return the verdict at that time, which must not be earlier than that of the previous one."""
        self._now = now
        self.context = self._state.context(now, UNLIMITED, self._names)
        return verdict_on(request, self.context)

    def admit(self, verdict: Verdict) -> None:
        """Store a rule that was allowed, and remember its victims as the server does."""
        assumed = self._state.assumed_rules
        if verdict.decision.assumed is not None:
            assumed.add(verdict.decision.assumed, verdict.request.username)
        self.store(verdict.request.object)
        assumed.stored(decode_rule(Reader.of(verdict.request.object, [])))

    def store(self, value: JSON) -> None:
        """Store a rule as a server does; fields of a wrong type count as missing."""
        rule = decode_rule(Reader.of(value, []))
        self._before.setdefault(rule.meta.name, self._inventory.rules.get(rule.meta.name))
        self._inventory.apply(None, rule)

    def undo(self) -> None:
        """Leave the inventory as it was."""
        for name, rule in self._before.items():
            stored = self._inventory.rules.get(name)
            if rule is not None or stored is not None:
                self._inventory.apply(stored, rule)


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
        self, suite: Suite, policy: Policy, manifest: Manifest, cluster: Stock | None = None, *, now: datetime
    ) -> None:
        self._suite = suite
        self._policy = policy
        self._judge = Judge(policy)
        self._manifest = manifest
        self._now = now
        self._stock = cluster
        found = Stock() if cluster is None else cluster
        drivers = {
            name: drivers_of([each.expression for each in known.selectors if each.expression is not None])
            for name, known in found.classes.items()
        }
        labels = {name: {**given, NAMESPACE_NAME_LABEL: name} for name, given in suite.namespaces.items()}
        self._names = KnownNames({**found.namespaces, **labels}, {**drivers, **suite.device_classes})

    def outcome_of(self, case: Case) -> Tested:
        """Run a case and compare what comes of it. Raises BadCase."""
        trial = Trial(self._judge, self._names, self._stock)
        now = case.time or self._now
        try:
            refused = tuple(self._refusals_before(case, trial, now))
            request = self._request(case, case.author)
            self._check_stored(case, request, trial)
            verdict = trial.verdict_on(request, now)
            tested = self._compared(case, request, verdict)
            mismatches = (*refused, *tested.case.mismatches)
            if not mismatches:
                return tested
            explained = values_of(explain(verdict.request, trial.context), NOWHERE) if tested.case.mismatches else None
        finally:
            trial.undo()
        failed = structs.replace(tested.case, result="failed", explanation=explained, mismatches=mismatches)
        return tested._replace(case=failed)

    def _refusals_before(self, case: Case, trial: Trial, now: datetime) -> Iterator[Mismatch]:
        """Admit the rules of `before`, one after the other; one that is refused is a mismatch."""
        for position, step in enumerate(case.before):
            request = structs.replace(self._request(step), dry_run=False)
            if request.kind.kind != DeviceTaintRule.__name__ or not request.name:
                raise BadCase("must be a DeviceTaintRule with a name", step.path)
            self._check_stored(step, request, trial)
            verdict = trial.verdict_on(request, now - timedelta(seconds=step.seconds_ago))
            denials = [finding for finding in (*verdict.strict, *verdict.findings) if finding.severity is Severity.DENY]
            if denials or not verdict.decision.allowed:
                said = listed(str(finding.error) for finding in denials) if denials else verdict.decision.problem
                yield Mismatch(f"before[{position}]", "allowed", f"denied {said}")
            else:
                trial.admit(verdict)

    def _check_stored(self, sent: Case | PriorRule, request: AdmissionRequest, trial: Trial) -> None:
        """Store the rule as it is before an update; a rule that is created must not exist yet."""
        if request.kind.kind != DeviceTaintRule.__name__ or self._stock is None:
            return
        if request.operation == "UPDATE":
            trial.store(request.old_object)
        elif request.name in self._stock.inventory.rules:
            message = f"DeviceTaintRule {request.name} already exists; an update needs oldObject"
            raise BadCase(message, sent.path.child("object"))

    def _compared(self, case: Case, request: AdmissionRequest, verdict: Verdict) -> Tested:
        decision = verdict.decision
        annotation = decision.annotations.get(IMPACT)
        measured = None if annotation is None else measured_in(annotation)
        # advice is left out
        said = [
            each for each in (*verdict.strict, *verdict.findings) if each.code is None or each.severity is Severity.DENY
        ]
        weighty = [finding for finding in said if not _is_figure(finding, measured)]
        softened = [each for each in verdict.remarks if each.code == SOFTENED]
        defaulted = _defaulted(request, verdict)
        defaults = self._policy.default_tolerations
        matched = {name for name, _ in decision.hits}
        matched |= {each.name for each in defaults if any(added in defaulted for added in each.tolerations)}
        # an exception counts for the rule that it excuses
        exceptions = {exception.name for exception in self._policy.exceptions}
        rules = {name for name, action in decision.hits if action is not Action.ALLOW or name in exceptions}
        rules |= {finding.rule for finding in weighty if finding.rule is not None}
        problem = () if decision.problem is None else (decision.problem,)
        position = find(self._manifest.spot, case.path)[0].position
        report = CaseReport(
            file=self._manifest.file,
            suite=self._suite.name or self._manifest.file,
            name=case.name,
            line=position.line,
            column=position.column,
            result="passed",
            decision=_word_of([*weighty, *softened], verdict),
            rules=tuple(sorted(rules)),
            matched=tuple(sorted(matched)),
            impact=None if measured is None else measured.figures,
            reasons=() if measured is None else tuple(sorted(measured.over)),
            messages=(*map(str, said), *problem, *map(str, softened)),
        )
        fields = {name for finding in said for name in (finding.error.field, finding.error.path.written)}
        mismatches = mismatches_of(case.expect, report, fields, defaulted, softened=bool(softened))
        return Tested(structs.replace(report, mismatches=tuple(mismatches)), measured)

    def _request(self, case: Case | PriorRule, author: Requester | None = None) -> AdmissionRequest:
        value = case.object if case.object is not None else self._object_in(case.file)
        kind = kind_of(value)
        if kind not in BY_KIND:
            known = ", ".join(sorted({known.kind for known in BY_KIND}))
            raise BadCase(f"the webhook does not review {kind}; it reviews {known}")
        namespace = text(meta(value), "namespace") or self._suite.namespace
        requester = case.requester or authenticated(CLAIM_CONTROLLER)
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
            object=value if author is None else _written_by(author, value, kind),
            old_object=case.old_object,
        )

    def _object_in(self, name: str) -> JSON:
        path = beside(self._manifest.file, name)
        manifests = []
        for file in read([path]):
            if file.unreadable:
                raise BadCase(f"{path}: {file.unreadable[0].message}")
            manifests += file.manifests
        if len(manifests) != 1 or not isinstance(manifests[0].value, dict):
            raise BadCase(f"{path}: must contain one object, but contains {len(manifests)}")
        return manifests[0].value


def beside(suite: str, name: str) -> str:
    """Return the path of a file that a suite in a file of this name names; the suite may be on standard input."""
    folder = os.path.dirname("" if suite.startswith("<") else suite)  # noqa: PTH120 -- shown as it is put together
    return os.path.join(folder, name)  # noqa: PTH118 -- as above


def _written_by(author: Requester, value: JSON, kind: GroupVersionKind) -> JSON:
    """Return the claim as the controller makes it from a template that the author wrote."""
    if kind.kind != "ResourceClaim":
        raise BadCase(f"author is for claims that are made from a template, not for a {kind.kind}")
    annotation = annotation_of(author)
    if annotation is None:
        raise BadCase(f"author: {UNNAMEABLE}")
    annotations = {**child(meta(value), "annotations"), REQUESTED_BY: annotation}
    return {**value, "metadata": {**meta(value), "annotations": annotations}}


def _is_figure(finding: Finding, measured: Measured | None) -> bool:
    """Tell if the guard only reports what a taint hits, as it does for every taint, and finds it within the limits."""
    if finding.rule != GUARD or finding.severity is not Severity.WARN or str(finding.error.path) not in _FIGURES_AT:
        return False
    return measured is not None and (not measured.over or measured.confirmed)


def _word_of(findings: list[Finding], verdict: Verdict) -> Word:
    severities = {finding.severity for finding in findings}
    if Severity.DENY in severities or not verdict.decision.allowed:
        return Word.DENIED
    return Word.WARNED if Severity.WARN in severities else Word.ALLOWED


def _defaulted(request: AdmissionRequest, verdict: Verdict) -> tuple[DeviceToleration, ...]:
    """Return the tolerations that /mutate added, in the order of requests, from the annotation that lists them."""
    before, after = (child(meta(value), "annotations") for value in (request.object, verdict.request.object))
    note = after.get(DEFAULTED)
    if note is None or before.get(DEFAULTED) == note:
        return ()
    added = (Reader.of(each, []) for tolerations in msgspec.json.decode(note).values() for each in tolerations)
    return tuple(map(toleration_in, added))


# --- the cluster of a suite -----------------------------------------------------------------------


_OBJECTS: Final = Path.root().child("inventory", "objects")
_HELD: Final = frozenset({(GROUP, "ResourceSlice"), (GROUP, "ResourceClaim"), (GROUP, "DeviceTaintRule"), ("", "Pod")})
_NAMES: Final = frozenset({(GROUP, "DeviceClass"), ("", "Namespace")})
_KINDS: Final = sorted(kind for _, kind in _HELD | _NAMES)
_EMPTY: Final = f"contains none of {', '.join(_KINDS)}"


def cluster_of(given: InventorySource, suite: Manifest, results: Results) -> Stock | None:
    """Return the cluster of a suite, in which inline objects replace those in files; None after faults."""
    cluster = Stock(whole=True)
    before = len(results.faults)
    for name in given.files:
        _add_files(cluster, beside(suite.file, name), results)
    errors = [error for position, value in enumerate(given.objects) for error in _add_object(cluster, value, position)]
    if errors:
        results.add_fault(suite.file, entries_of(suite.spot, (Finding(Severity.DENY, error) for error in errors)))
    return None if len(results.faults) > before else cluster


def _add_files(cluster: Stock, name: str, results: Results) -> None:
    known, found = len(cluster.malformed), False
    for file in read([name]):
        unreadable = unreadable_row(file)
        if unreadable is not None:
            results.faults.append(unreadable)
        ours = [manifest for manifest in file.manifests if _sort_of(kind_of(manifest.value)) in _HELD | _NAMES]
        found = found or unreadable is not None or bool(ours)
        cluster.add(ours)
    for manifest, error in cluster.malformed[known:]:
        results.add_fault(manifest.file, entries_of(manifest.spot, [Finding(Severity.DENY, error)]))
    if not found:
        results.add_fault(name, [Entry(Level.ERROR, _EMPTY)])


def _add_object(cluster: Stock, value: JSON, position: int) -> Iterator[FieldError]:
    """Add one inline object. Unknown fields are errors here, since no server will report them."""
    path = _OBJECTS.index(position)
    kind = kind_of(value)
    if _sort_of(kind) not in _NAMES | _HELD:
        yield not_supported(path.child("kind"), value.get("kind"), _KINDS)
    elif not says_version(value):
        yield required(path.child("apiVersion"))
    else:
        found, errors = cluster.kept(value, path)
        yield from errors
        for finding in strict_findings(value, kind, NEWEST, path) if _sort_of(kind) in _HELD else ():
            if finding.severity is Severity.DENY:
                yield finding.error
        if found is not None:
            cluster.put(found)


def _sort_of(kind: GroupVersionKind) -> tuple[str, str]:
    return kind.group, kind.kind
