"""One run of `diff`: how two policies judge each object, as if it were created now, and where they differ.

While `version` of the values is 1, fields may be added, but none is removed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from webhook.admission.audit import audited
from webhook.admission.chain import mutate, validate
from webhook.admission.config_maps import POLICY_KEY
from webhook.admission.context import AdmissionContext
from webhook.admission.jsonpatch import apply_patch
from webhook.admission.policy_check import AUTHOR_RULE
from webhook.admission.review import AdmissionRequest
from webhook.api.claims import FROM_TEMPLATE
from webhook.api.counts import counted
from webhook.api.field import Severity
from webhook.api.meta import GroupVersionKind
from webhook.commands.diff.command import LIVE
from webhook.commands.shared.entries import meta, text, unreadable_row
from webhook.commands.shared.entries import text as text_of
from webhook.commands.shared.flags import credentials_of, known_names, refuse_cluster_beside_dump, refuse_stdin_twice
from webhook.commands.shared.main import reading_cluster
from webhook.commands.shared.output import write
from webhook.commands.shared.policy_files import holds_policy, policy_file, review_policy, row_of
from webhook.files.dump import CLAIMS, Dump, Stock
from webhook.files.read import Manifest, read
from webhook.files.render import line, visible
from webhook.files.report import UNREADABLE, Level, Row
from webhook.files.spots import NOWHERE
from webhook.files.structured import STRUCTURED
from webhook.inventory.state import Sight
from webhook.policy.decide import Judge
from webhook.policy.ports import asks_who, authenticated
from webhook.validation.kinds import BY_KIND

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.api.field import JSON, Finding
    from webhook.config.command_line import CommandLine
    from webhook.policy.model import Policy

_COMPARED = CLAIMS | {"DeviceTaintRule", "ResourceSlice", "ResourceSlicePatch"}
_DEFAULT_NAMESPACE = "default"
_BESIDE: Final = ("eviction", "pause", "breaker", "reactions")
"""Parts of a policy that judge no object."""
_SERVERS: Final = frozenset({"resourceVersion", "uid", "generation", "creationTimestamp", "managedFields", "selfLink"})
"""What a server writes into the metadata; an object that is created has none of it."""
_NO_NAME: Final = '""'
"""What a message calls a user without a name."""
_RANK: Final = {Severity.DENY: 2, Severity.WARN: 1, Severity.AUDIT: 0}
VERSION: Final = 1


class Compared(NamedTuple):
    """Two policies, None where unusable, and what they judge. `rows`: what could not be read. `notes`: what is unknown.

    `dump` has what names mean, `stock` the inventory that limits look at.
    """

    old: Policy | None
    new: Policy | None
    objects: list[Manifest]
    dump: Dump
    stock: Stock
    source: str
    rows: list[Row]
    notes: list[str]


def compared(options: argparse.Namespace) -> Compared:
    """Reads everything once. Raises ClusterUnreachable."""
    rows: list[Row] = []
    notes: list[str] = []
    if options.dump:
        manifests, source = list(_from_files(options.dump, rows)), "dump"
        holding = [manifest for manifest in manifests if holds_policy(manifest.value)]
    else:
        manifests, holding, source = _from_cluster(options, notes)
    policies = [_policy(word, holding, rows) for word in (options.old, options.new)]
    dump, stock = Dump(), Stock()
    dump.add(manifests)
    stock.add(manifests)
    rows += [row_of(each).failed(f"{row_of(each).reference}: left out: {error}") for each, error in stock.malformed]
    if options.dump and stock.inventory.rules and not stock.inventory.slices:
        notes.append("the dump has no ResourceSlices, so limits on devices are compared by allocated ones only")
    left_out = {id(each) for each, _ in stock.malformed}
    objects = [each for each in manifests if _is_compared(each, options.namespace) and id(each) not in left_out]
    return Compared(policies[0], policies[1], objects, dump, stock, source, rows, notes)


def _is_compared(manifest: Manifest, namespace: str | None) -> bool:
    row = row_of(manifest)
    if row.kind not in _COMPARED or "deletionTimestamp" in meta(manifest.value):
        return False
    return row.kind not in CLAIMS or namespace in (None, row.namespace or _DEFAULT_NAMESPACE)


def _from_files(names: Iterable[str], rows: list[Row]) -> Iterable[Manifest]:
    for file in read(names):
        unreadable = unreadable_row(file)
        if unreadable is not None:
            rows.append(unreadable)
        yield from file.manifests


def _from_cluster(options: argparse.Namespace, notes: list[str]) -> tuple[list[Manifest], list[Manifest], str]:
    # Late: see commands/shared/main.py.
    from webhook.commands.diff.from_cluster import objects_of_cluster  # noqa: PLC0415

    asks = LIVE in (options.old, options.new)
    with reading_cluster():
        config_map = options.policy_configmap if asks else None
        found = asyncio.run(objects_of_cluster(credentials_of(options), config_map, options.namespace))
    notes += found.notes
    manifests = [Manifest(found.server, number, value, NOWHERE) for number, value in enumerate(found.objects, 1)]
    return manifests, [] if found.policy is None else [found.policy], found.server


def _policy(word: str, holding: list[Manifest], rows: list[Row]) -> Policy | None:
    """The policy of a file, or the one that is live. Errors become rows."""
    if word != LIVE:
        found = policy_file(word)
        rows += [row for row in found.rows if row.count(Level.ERROR)]
        return found.policy
    if len(holding) != 1:
        there = f"there are {len(holding)} policies" if holding else "there is no policy"
        rows.append(Row(LIVE).failed(f"{there}, so {LIVE!r} names none; name a file", UNREADABLE))
        return None
    judged = review_policy(holding[0], row_of(holding[0]))
    if judged.row.count(Level.ERROR):
        rows.append(judged.row)
    loaded = judged.loaded.get(POLICY_KEY)
    return None if loaded is None else loaded.policy


def reference_of(manifest: Manifest) -> tuple[str, str, str]:
    """Kind, namespace and name."""
    about = meta(manifest.value)
    return row_of(manifest).kind, text(about, "namespace"), text(about, "name") or row_of(manifest).name


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Prints the differences. Returns 0 if there is none, 1 if there are some, 2 for wrong usage or bad input."""
    refuse_cluster_beside_dump(options, parser)
    refuse_stdin_twice([*options.dump, options.old, options.new], parser)
    if options.group and not options.user:
        parser.error("--group needs --user: groups belong to a user")
    if options.old == options.new:
        parser.error(f"OLD and NEW are both {options.old}")
    found = compared(options)
    report = DiffReport(found.source, notes=found.notes, rows=found.rows)
    if found.old is not None and found.new is not None:
        now = options.time or datetime.now(UTC)  # noqa: TID251 -- the shell asks
        report.changed = list(_changed_objects(found, (found.old, found.new), options, now))
        report.judged = len(found.objects)
        report.notes += _notes(found.old, found.new, options.user)
    if options.output == "text":
        return write(as_text(report, limit=options.limit), report.exit_code)
    return write(STRUCTURED[options.output](as_values(report)), report.exit_code)


def _changed_objects(
    found: Compared, policies: tuple[Policy, Policy], options: argparse.Namespace, now: datetime
) -> Iterator[ChangedObject]:
    names = known_names(found.dump, (), None, {})
    sight = Sight(found.stock.inventory)
    old, new = (AdmissionContext(now=now, judge=Judge(policy), names=names, sight=sight) for policy in policies)
    groups = authenticated(options.user, options.group).groups if options.user else ()
    for manifest in found.objects:
        kind = GroupVersionKind.parse(text(manifest.value, "apiVersion"), text(manifest.value, "kind"))
        if kind in BY_KIND:
            changes = changes_of(manifest.value, old, new, options.user, groups)
            if changes:
                yield ChangedObject(*reference_of(manifest), changes)


def _notes(old: Policy, new: Policy, user: str) -> Iterator[str]:
    differing = [name for name in _BESIDE if getattr(old, name) != getattr(new, name)]
    if differing:
        yield f"the policies also differ in {', '.join(differing)}, which judge no object; see preview and status"
    if not user and any(map(asks_who, (old, new))):
        yield (
            "who wrote rules, patches and slices is unknown (see --user), and so is who wrote claims that are not made "
            "from templates: for claims, rules on requesters count as matching if they refuse"
        )


class ChangeKind(StrEnum):
    """How the new policy differs; the values are those of the JSON, in the order of the text."""

    REFUSED = "refused"
    ALLOWED = "allowed"
    WARNED = "warned"
    SILENT = "silent"
    """It no longer warns."""
    DEFAULTS = "defaults"
    """It would change the object otherwise, such as by other default tolerations."""


class PolicyChange(NamedTuple):
    """One difference. `rule` is that of the policy that speaks; empty for defaults."""

    kind: ChangeKind
    path: str
    rule: str
    message: str


class _Judged(NamedTuple):
    """The worst finding at each path, and what /mutate would do."""

    findings: dict[str, Finding]
    patch: tuple[dict[str, JSON], ...]


def changes_of(
    value: dict[str, Any], old: AdmissionContext, new: AdmissionContext, username: str, groups: tuple[str, ...]
) -> list[PolicyChange]:
    """The differences between two policies on an object, in the order of their paths. Raises OutOfTime."""
    before, after = (_judged(value, context, username, groups) for context in (old, new))
    found = list(_changed(before.findings, after.findings))
    if not username:
        found = [each._replace(message=each.message.replace(_NO_NAME, "an unknown user", 1)) for each in found]
    if before.patch != after.patch:
        found += _defaults(before.patch, after.patch)
    return sorted(found, key=lambda each: (list(ChangeKind).index(each.kind), each.path))


def _judged(value: dict[str, Any], context: AdmissionContext, username: str, groups: tuple[str, ...]) -> _Judged:
    kind = GroupVersionKind.parse(text_of(value, "apiVersion"), text_of(value, "kind"))
    request = AdmissionRequest(
        uid="diff",
        operation="CREATE",
        resource=BY_KIND[kind],
        kind=kind,
        name=text_of(meta(value), "name"),
        namespace=text_of(meta(value), "namespace"),
        username=username,
        groups=groups,
        dry_run=True,
        object=as_created(value),
    )
    if kind.kind not in CLAIMS:
        patch = mutate(request, context).patch
        patched = structs.replace(request, object=apply_patch(request.object, patch)) if patch else request
        findings: Iterable[Finding] = validate(patched, context).findings
    else:
        generated = FROM_TEMPLATE in (meta(value).get("annotations") or {})
        patch = () if generated else mutate(request, context).patch
        # That a template does not prove its author is a fact about what is stored.
        findings = [each.finding for each in audited(value, context) if each.finding.rule != AUTHOR_RULE]
    return _Judged(_worst(findings), patch)


def as_created(value: dict[str, Any]) -> dict[str, Any]:
    """The object as its author would send it now: without what servers write, and a rule without timeAdded."""
    about = {name: entry for name, entry in meta(value).items() if name not in _SERVERS}
    made = {name: entry for name, entry in value.items() if name != "status"} | {"metadata": about}
    spec = made.get("spec")
    if text_of(value, "kind") == "DeviceTaintRule" and isinstance(spec, dict) and isinstance(spec.get("taint"), dict):
        taint = {name: entry for name, entry in spec["taint"].items() if name != "timeAdded"}
        made["spec"] = {**spec, "taint": taint}
    return made


def _worst(findings: Iterable[Finding]) -> dict[str, Finding]:
    worst: dict[str, Finding] = {}
    for finding in findings:
        path = finding.error.field
        if path not in worst or _RANK[finding.severity] > _RANK[worst[path].severity]:
            worst[path] = finding
    return worst


def _changed(before: Mapping[str, Finding], after: Mapping[str, Finding]) -> Iterator[PolicyChange]:
    for path in {**before, **after}:
        was, now = before.get(path), after.get(path)
        old, new = (0 if each is None else _RANK[each.severity] for each in (was, now))
        kind = _kind(old, new)
        if kind is not None:
            said = now if kind in (ChangeKind.REFUSED, ChangeKind.WARNED) else was
            assert said is not None
            yield PolicyChange(kind, path, said.name, said.body)


def _kind(old: int, new: int) -> ChangeKind | None:
    """The change from one rank to another."""
    if old == new:
        return None
    deny, warn = _RANK[Severity.DENY], _RANK[Severity.WARN]
    if deny in (old, new):
        return ChangeKind.REFUSED if new == deny else ChangeKind.ALLOWED
    return ChangeKind.WARNED if new == warn else ChangeKind.SILENT


def _defaults(before: Iterable[dict[str, JSON]], after: Iterable[dict[str, JSON]]) -> Iterator[PolicyChange]:
    old, new = list(before), list(after)
    for each in new:
        if each not in old:
            yield PolicyChange(
                ChangeKind.DEFAULTS, each["path"], "", f"would set {each['path']} to {each.get('value')}"
            )
    for each in old:
        if each not in new and all(each["path"] != other["path"] for other in new):
            yield PolicyChange(ChangeKind.DEFAULTS, each["path"], "", f"would no longer set {each['path']}")


_WORDS: Final = {
    ChangeKind.REFUSED: "newly refused",
    ChangeKind.ALLOWED: "no longer refused",
    ChangeKind.WARNED: "newly warned about",
    ChangeKind.SILENT: "no longer warned about",
    ChangeKind.DEFAULTS: "changed otherwise by defaults",
}


class ChangedObject(NamedTuple):
    """An object that is judged differently."""

    kind: str
    namespace: str
    name: str
    changes: list[PolicyChange]

    @property
    def reference(self) -> str:
        """`Kind namespace/name`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(slots=True)
class DiffReport:
    """The result. `judged`: how many objects were compared. `rows`: what could not be read."""

    source: str
    judged: int = 0
    changed: list[ChangedObject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 no difference, 1 differences, 2 something could not be read."""
        return 2 if self.rows else int(bool(self.changed))

    @property
    def counts(self) -> Counter[ChangeKind]:
        """Numbers of objects by kind of change; an object may count under several."""
        return Counter(kind for each in self.changed for kind in {change.kind for change in each.changes})


def as_values(report: DiffReport) -> dict[str, Any]:
    """The structure behind JSON and YAML."""
    counts = report.counts
    return {
        "version": VERSION,
        "source": report.source,
        "judged": report.judged,
        "different": len(report.changed),
        "summary": {kind.value: counts[kind] for kind in ChangeKind},
        "objects": [
            {
                "kind": each.kind,
                "namespace": each.namespace,
                "name": each.name,
                "changes": [{**change._asdict(), "kind": change.kind.value} for change in each.changes],
            }
            for each in report.changed
        ],
        "notes": list(report.notes),
        "findings": [finding for row in report.rows for finding in row.findings],
    }


def as_text(report: DiffReport, *, limit: int) -> str:
    """At most `limit` lines of differences (0 for all), then counts and notes."""
    lines = [line(row, entry, color=False) for row in report.rows for entry in row.entries]
    found = list(_lines(report))
    lines += found[:limit] if limit else found
    if limit and len(found) > limit:
        lines.append(f"and {len(found) - limit} more; --limit 0 shows all")
    lines.append(_total(report))
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(map(visible, lines)) + "\n"


def _lines(report: DiffReport) -> Iterator[str]:
    for kind in ChangeKind:
        for each in report.changed:
            for change in each.changes:
                if change.kind is kind:
                    path = f" {change.path}:" if change.path and kind is not ChangeKind.DEFAULTS else ""
                    yield f"{kind.value:<8} {each.reference}:{path} {change.message}"


def _total(report: DiffReport) -> str:
    judged = counted(report.judged, "object")
    if not report.changed:
        return f"{judged} compared: no difference"
    counts = report.counts
    parts = ", ".join(f"{counts[kind]} {_WORDS[kind]}" for kind in ChangeKind if counts[kind])
    return f"{judged} compared, {len(report.changed)} judged differently: {parts}"
