"""One run of `diff`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.admission.config_maps import POLICY_KEY
from webhook.admission.context import AdmissionContext
from webhook.api.meta import GroupVersionKind
from webhook.commands.diff.command import LIVE
from webhook.commands.diff.report import ChangedObject, DiffReport, as_text, as_values, changes_of
from webhook.commands.shared.entries import meta, text, unreadable_row
from webhook.commands.shared.flags import credentials_of, known_names, refuse_cluster_beside_dump, refuse_stdin_twice
from webhook.commands.shared.main import reading_cluster
from webhook.commands.shared.output import write
from webhook.commands.shared.policy_files import holds_policy, policy_file, review_policy, row_of
from webhook.files.dump import CLAIMS, Dump, Stock
from webhook.files.read import Manifest, read
from webhook.files.report import UNREADABLE, Level, Row
from webhook.files.spots import NOWHERE
from webhook.files.structured import STRUCTURED
from webhook.inventory.state import Sight
from webhook.policy.decide import Judge
from webhook.policy.ports import asks_who, authenticated
from webhook.validation.kinds import BY_KIND

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from webhook.config.command_line import CommandLine
    from webhook.policy.model import Policy

_COMPARED = CLAIMS | {"DeviceTaintRule", "ResourceSlice", "ResourceSlicePatch"}
_DEFAULT_NAMESPACE = "default"


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
        found = objects_of_cluster(
            credentials_of(options), options.policy_configmap if asks else None, options.namespace
        )
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


_BESIDE: Final = ("eviction", "pause", "breaker", "reactions")
"""Parts of a policy that judge no object."""


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
        report.changed = list(_changed(found, (found.old, found.new), options, now))
        report.judged = len(found.objects)
        report.notes += _notes(found.old, found.new, options.user)
    if options.output == "text":
        return write(as_text(report, limit=options.limit), report.exit_code)
    return write(STRUCTURED[options.output](as_values(report)), report.exit_code)


def _changed(
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
