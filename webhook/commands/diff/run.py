"""One run of `diff`: how two policies judge each object, as if it were created now, and where they differ."""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from msgspec import structs

from webhook.admission.audit import audited
from webhook.admission.chain import mutate, validate
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import apply_patch
from webhook.admission.policy_check import AUTHOR_RULE
from webhook.admission.review import AdmissionRequest
from webhook.api.claims import FROM_TEMPLATE
from webhook.api.field import JSON, Finding, Severity
from webhook.api.messages import counted
from webhook.api.meta import GroupVersionKind
from webhook.commands.diff.command import LIVE
from webhook.commands.shared.flags import credentials_of, refuse_cluster_beside_dump, refuse_stdin_twice
from webhook.commands.shared.main import reading_cluster
from webhook.commands.shared.manifest_review import DEFAULT_NAMESPACE
from webhook.commands.shared.objects import objects_in
from webhook.commands.shared.output import write
from webhook.commands.shared.policy_files import holds_policy, policy_of, row_of
from webhook.config.command_line import CommandLine
from webhook.files.manifests import CLAIMS, Dump, Stock, meta, text
from webhook.files.read import Manifest, shown
from webhook.files.report import STRUCTURED, Level, Row, line, visible
from webhook.files.spots import NOWHERE
from webhook.inventory.state import Sight
from webhook.patches.patch_reach import KnownPatches
from webhook.policy.decide import Judge
from webhook.policy.match import KnownNames, asks_who, authenticated
from webhook.policy.model import Policy
from webhook.validation.kinds import BY_KIND

_BESIDE: Final = ("eviction", "pause", "breaker", "reactions")
"""Parts of a policy that judge no object."""
_SERVERS: Final = frozenset({"resourceVersion", "uid", "generation", "creationTimestamp", "managedFields", "selfLink"})
"""What a server writes into the metadata; an object that is created has none of it."""
_RANK: Final = {Severity.DENY: 2, Severity.WARN: 1, Severity.AUDIT: 0}


_WORDS: Final = {
    "refused": "newly refused",
    "allowed": "no longer refused",
    "warned": "newly warned about",
    "silent": "no longer warned about",
    "defaults": "changed otherwise by defaults",
}
"""How the new policy may differ, as in the JSON and in the order of the text, and what is said of the objects."""
_ORDER: Final = list(_WORDS)


class PolicyChange(NamedTuple):
    """One difference. `rule` is that of the policy that speaks; empty for defaults."""

    kind: str
    path: str
    rule: str
    message: str


ChangedObject = tuple[Row, list[PolicyChange]]
"""An object that is judged differently, and how."""


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Print the differences. Returns 0 if there is none, 1 if there are some, 2 for wrong usage or bad input."""
    refuse_cluster_beside_dump(options, parser)
    refuse_stdin_twice([*options.dump, options.old, options.new], parser)
    if options.group and not options.user:
        parser.error("--group needs --user: groups belong to a user")
    if options.old == options.new:
        parser.error(f"OLD and NEW are both {options.old}")
    rows: list[Row] = []
    notes: list[str] = []
    if options.dump:
        manifests, source = list(objects_in(options.dump, rows)), "dump"
        holding = [manifest for manifest in manifests if holds_policy(manifest.value)]
    else:
        manifests, holding, source = _from_cluster(options, notes)
    old, new = (_policy(word, holding, rows) for word in (options.old, options.new))
    stock = Stock(whole=True)
    stock.add(manifests)
    rows += [row_of(each).failed(f"{row_of(each).reference}: left out: {error}") for each, error in stock.malformed]
    if options.dump and stock.inventory.rules and not stock.inventory.slices:
        notes.append("the dump has no ResourceSlices, so limits on devices are compared by allocated ones only")
    judged, changed = 0, list[ChangedObject]()
    if old is not None and new is not None:
        milder = (_without_pending(old), _without_pending(new))
        if milder != (old, new) and not (stock.classes and stock.inventory.slices):
            notes.append("there are no DeviceClasses or no ResourceSlices, so limits on pendingPods are not compared")
            old, new = milder
        left_out = {id(each) for each, _ in stock.malformed}
        objects = [each for each in manifests if _is_compared(each, options) and id(each) not in left_out]
        judged, changed = len(objects), list(_changed_objects(objects, manifests, stock, (old, new), options))
        notes += _notes(old, new, options.user)
        found = judged and (not options.namespace or any(row_of(each).kind in CLAIMS for each in objects))
        if options.dump and not found and not rows:
            there = f"no claim or template in namespace {options.namespace} that the webhook is asked about"
            nothing = there if judged else "nothing to compare"
            rows.append(Row(", ".join(map(shown, options.dump))).failed(f"contains {nothing}"))
    counts = Counter(kind for _, changes in changed for kind in {each.kind for each in changes})
    values = {  # while `version` is 1, fields may be added, but none is removed
        "version": 1,
        "source": source,
        "judged": judged,
        "different": len(changed),
        "summary": {kind: counts[kind] for kind in _WORDS},
        "objects": [_object_values(*each) for each in changed],
        "notes": notes,
        "findings": [finding for row in rows for finding in row.findings],
    }
    code = 2 if rows else int(bool(changed))
    if options.output == "text":
        return write("\n".join(map(visible, _lines(values, rows, changed, options.limit))) + "\n", code)
    return write(STRUCTURED[options.output](values), code)


def _object_values(row: Row, changes: list[PolicyChange]) -> dict[str, Any]:
    names = {"kind": row.kind, "namespace": row.namespace, "name": row.name}
    return {**names, "changes": [each._asdict() for each in changes]}


# --- input ----------------------------------------------------------------------------------------


def _from_cluster(options: argparse.Namespace, notes: list[str]) -> tuple[list[Manifest], list[Manifest], str]:
    from webhook.commands.shared.snapshot import objects_of_cluster  # noqa: PLC0415

    with reading_cluster():
        config_map = options.policy_configmap if LIVE in (options.old, options.new) else None
        found = asyncio.run(objects_of_cluster(credentials_of(options), config_map, options.namespace))
    notes += found.notes
    manifests = [Manifest(found.server, number, value, NOWHERE) for number, value in enumerate(found.objects, 1)]
    return manifests, [] if found.policy is None else [found.policy], found.server


def _policy(word: str, holding: list[Manifest], rows: list[Row]) -> Policy | None:
    """Return the policy of a file, or the one that is live. Errors become rows."""
    if word == LIVE and len(holding) != 1:
        there = f"there are {len(holding)} policies" if holding else "there is no policy"
        rows.append(Row(LIVE).failed(f"{there}, so {LIVE!r} names none; name a file"))
        return None
    found = policy_of(None, holding[0]) if word == LIVE else policy_of(word, None)
    rows += [row for row in found.rows if row.count(Level.ERROR)]
    return found.policy


def _without_pending(policy: Policy) -> Policy:
    """Return the policy without limits on pods that find no other device."""
    limits = tuple([structs.replace(each, pending_pods=None) for each in policy.impact.limits])
    return structs.replace(policy, impact=structs.replace(policy.impact, limits=limits))


def _is_compared(manifest: Manifest, options: argparse.Namespace) -> bool:
    row = row_of(manifest)
    if GroupVersionKind.parse(row.api_version, row.kind) not in BY_KIND or "deletionTimestamp" in meta(manifest.value):
        return False
    if row.kind in CLAIMS and row.namespace in options.exempt_namespaces:
        return False
    return row.kind not in CLAIMS or options.namespace in (None, row.namespace or DEFAULT_NAMESPACE)


def _notes(old: Policy, new: Policy, user: str) -> Iterator[str]:
    differing = [name for name in _BESIDE if getattr(old, name) != getattr(new, name)]
    if differing:
        yield f"the policies also differ in {', '.join(differing)}, which judge no object; see preview and status"
    if not user and any(map(asks_who, (old, new))):
        yield (
            "who wrote rules, patches and slices is unknown (see --user), and so is who wrote claims that are not made "
            "from templates: for claims, rules on requesters count as matching if they refuse"
        )


# --- differences ----------------------------------------------------------------------------------


def _changed_objects(
    objects: list[Manifest],
    manifests: list[Manifest],
    stock: Stock,
    policies: tuple[Policy, Policy],
    options: argparse.Namespace,
) -> Iterator[ChangedObject]:
    """Yield objects with their differences, in the order of the paths. `manifests` say what names mean."""
    now = options.time or datetime.now(UTC)  # noqa: TID251 -- the shell asks
    dump = Dump()
    dump.add(manifests)
    names, sight = KnownNames(dump.namespaces, dump.device_classes), Sight(stock.inventory)
    patches = KnownPatches({}, stock.classes)
    contexts = [
        AdmissionContext(now=now, judge=Judge(policy), names=names, sight=sight, patches=patches) for policy in policies
    ]
    groups = authenticated(options.user, options.group).groups if options.user else ()
    for manifest in objects:
        row, value = row_of(manifest), manifest.value
        kind = GroupVersionKind.parse(row.api_version, row.kind)
        request = AdmissionRequest(
            uid="diff",
            operation="CREATE",
            resource=BY_KIND[kind],
            kind=kind,
            name=text(meta(value), "name"),
            namespace=row.namespace,
            username=options.user,
            groups=groups,
            dry_run=True,
            object=_as_created(value),
        )
        (before, old_patch), (after, new_patch) = (_judged(request, value, context) for context in contexts)
        changes = [*_changed(before, after, unnamed=not options.user), *_defaults(old_patch, new_patch)]
        if changes:
            changes.sort(key=lambda each: (_ORDER.index(each.kind), each.path))
            yield row, changes


def _judged(
    request: AdmissionRequest, stored: JSON, context: AdmissionContext
) -> tuple[dict[str, Finding], tuple[dict[str, JSON], ...]]:
    """Return the worst finding at each path, and what /mutate would do. Raises OutOfTime."""
    patch: tuple[dict[str, JSON], ...] = ()
    claim = request.kind.kind in CLAIMS
    if not claim or FROM_TEMPLATE not in (meta(stored).get("annotations") or {}):
        patch = mutate(request, context).patch
    if claim:
        # That a template does not prove its author is a fact about what is stored.
        findings = [each.finding for each in audited(stored, context) if each.finding.rule != AUTHOR_RULE]
    else:
        patched = structs.replace(request, object=apply_patch(request.object, patch)) if patch else request
        findings = list(validate(patched, context).findings)
    worst: dict[str, Finding] = {}
    for finding in findings:
        path = finding.error.field
        if path not in worst or _RANK[finding.severity] > _RANK[worst[path].severity]:
            worst[path] = finding
    return worst, patch


def _as_created(value: dict[str, Any]) -> dict[str, Any]:
    """Return the object as its author would send it now: without what servers write, and a rule without timeAdded."""
    about = {name: entry for name, entry in meta(value).items() if name not in _SERVERS}
    made = {name: entry for name, entry in value.items() if name != "status"} | {"metadata": about}
    spec = made.get("spec")
    if text(value, "kind") == "DeviceTaintRule" and isinstance(spec, dict) and isinstance(spec.get("taint"), dict):
        taint = {name: entry for name, entry in spec["taint"].items() if name != "timeAdded"}
        made["spec"] = {**spec, "taint": taint}
    return made


def _changed(before: Mapping[str, Finding], after: Mapping[str, Finding], *, unnamed: bool) -> Iterator[PolicyChange]:
    for path in {**before, **after}:
        was, now = before.get(path), after.get(path)
        old, new = (0 if each is None else _RANK[each.severity] for each in (was, now))
        worst = max(old, new) == _RANK[Severity.DENY]
        if now is not None and new > old:
            kind, said = "refused" if worst else "warned", now
        elif was is not None and new < old:
            kind, said = "allowed" if worst else "silent", was
        else:
            continue
        # A message calls a user without a name by two quotes.
        message = said.body.replace('""', "an unknown user", 1) if unnamed else said.body
        yield PolicyChange(kind, path, said.name, message)


def _defaults(before: Iterable[dict[str, JSON]], after: Iterable[dict[str, JSON]]) -> Iterator[PolicyChange]:
    for each in after:
        if each not in before:
            message = f"would set {each['path']} to {each.get('value')}"
            yield PolicyChange("defaults", each["path"], "", message)
    for path in (each["path"] for each in before):
        if all(path != each["path"] for each in after):
            yield PolicyChange("defaults", path, "", f"would no longer set {path}")


def _lines(values: dict[str, Any], rows: list[Row], changed: list[ChangedObject], limit: int) -> Iterator[str]:
    """Yield what could not be read, at most `limit` lines of differences (0 for all), then counts and notes."""
    yield from (line(row, entry, color=False) for row in rows for entry in row.entries)
    pairs = [(row, change) for row, changes in changed for change in changes]
    pairs.sort(key=lambda pair: _ORDER.index(pair[1].kind))
    for row, change in pairs[: limit or None]:
        name = f"{row.namespace}/{row.name}" if row.namespace else row.name
        place = f" {change.path}:" if change.path and change.kind != "defaults" else ""
        yield f"{change.kind:<8} {row.kind} {name}:{place} {change.message}"
    if limit and len(pairs) > limit:
        yield f"and {len(pairs) - limit} more; --limit 0 shows all"
    parts = ", ".join(f"{number} {_WORDS[kind]}" for kind, number in values["summary"].items() if number)
    ending = f", {len(changed)} judged differently: {parts}" if parts else ": no difference"
    yield f"{counted(values['judged'], 'object')} compared{ending}"
    yield from (f"note: {note}" for note in values["notes"])
