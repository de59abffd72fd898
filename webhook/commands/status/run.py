"""One run of `status`: it looks, and prints what it has found, once or again and again."""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from webhook.api.names import PROGRAM, WORKER
from webhook.api.rules import DeviceTaintRule
from webhook.api.slices import ResourceSlice
from webhook.api.taints import DeviceTaint
from webhook.commands.shared.flags import (
    INTERVAL_SECONDS,
    credentials_of,
    refuse_cluster_beside_dump,
    refuse_stdin_twice,
    use_color,
)
from webhook.commands.shared.main import USAGE, ClusterUnreachable, reading_cluster
from webhook.commands.shared.objects import StatusObject, StatusObjects, object_in, objects_in
from webhook.commands.shared.output import document, write, write_more
from webhook.commands.shared.policy_files import holds_policy, policy_of, row_of
from webhook.commands.shared.words import NODES, RULES, name_in, type_in
from webhook.commands.status.report import StatusReport, as_text, as_values, lines_of
from webhook.commands.status.views import StatusSettings, mode_by_conditions
from webhook.config.command_line import CommandLine, did_you_mean
from webhook.eviction.modes import InTree, Mode, WorkerSays
from webhook.files.read import Manifest
from webhook.files.report import STRUCTURED, UNREADABLE, Level, Row
from webhook.policy.model import BUILTIN, InTreeEvictor, Policy

if TYPE_CHECKING:
    from webhook.commands.shared.snapshot import ClusterFacts

# Otherwise the worker's own code would log to standard error what is in reports.
logging.getLogger("webhook.eviction").addHandler(logging.NullHandler())
NOT_SERVED: Final = "the cluster does not serve DeviceTaintRules (feature gate DRADeviceTaints)"
_LAST_ANSWER: Final = "this is the last answer"
_NEEDED: Final = {
    "DeviceTaintRule": "DeviceTaintRules",
    "ResourceSlice": "ResourceSlices, so published devices and taints on them are unknown",
    "ResourceClaim": "ResourceClaims, so it is unknown which pods use a device",
    "Pod": "Pods, so no pod is counted",
    "Namespace": "Namespaces, so their holds and labels are unknown",
    "PodDisruptionBudget": "PodDisruptionBudgets, so pods are shown as due that one blocks",
}


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Print the status. Returns 0, or 2 for bad input, an unknown rule or no cluster."""
    refuse_cluster_beside_dump(options, parser)
    refuse_stdin_twice([*options.dump, options.policy], parser)
    if options.watch and options.dump:
        parser.error("--watch and --dump may not be given together")
    if options.interval is not None and not options.watch:
        parser.error("--interval has no effect without --watch")
    if options.time is not None and not options.dump:
        parser.error("--time has no effect without --dump")
    if options.names and type_in(options.names[0]) in RULES:
        del options.names[0]
    options.names = [name_in(each, RULES) or each for each in options.names]
    first = look(options)
    unknown = _unknown(options.names, first)
    if unknown:
        sys.stderr.write("".join(f"{parser.prog}: {text}\n" for text in unknown))
        return USAGE
    show, report = _renderer(options), _choose(options.names, first)
    if options.watch:
        return _watch(options, report, show)
    return write(show(report), USAGE if first.rows else 0)


def _unknown(names: Sequence[str], report: StatusReport) -> list[str]:
    known = [line.name for line in report.lines]
    texts = []
    for name in names:
        if node := name_in(name, NODES):
            texts.append(f"{name} is a node: list --node={node} shows what taints its devices")
        elif name not in known:
            text = f"there is no DeviceTaintRule {name!r}, and no driver of that name taints devices"
            texts.append(f"{text}{did_you_mean(name, known)}")
    return texts


def _choose(names: Sequence[str], report: StatusReport) -> StatusReport:
    """Leave only the lines of these names, if any are given; a note for those that are gone."""
    if names:
        known = {line.name for line in report.lines}
        report.notes += [f"{name} is gone" for name in names if name not in known]
        report.lines = [line for line in report.lines if line.name in names]
    return report


def _renderer(options: argparse.Namespace) -> Callable[[StatusReport], str]:
    if options.output in STRUCTURED:
        structured = partial(document, options.output) if options.watch else STRUCTURED[options.output]
        return lambda report: structured(as_values(report))
    color = use_color(options.color)

    def text(report: StatusReport) -> str:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        return as_text(report, limit=options.limit, width=width, color=color)

    return text


def _watch(options: argparse.Namespace, report: StatusReport, show: Callable[[StatusReport], str]) -> int:
    """Show `report`, then what is there every so often, until standard output is closed.

    While the cluster does not answer, the last report stays, with a note. Returns the exit code; ends by an interrupt.
    """
    screen = options.output == "text" and sys.stdout.isatty()
    written = write_more("\x1b[2J" if screen else "", screen=screen)
    while written is None:
        content = show(report)
        written = write_more(framed(content, shutil.get_terminal_size().lines) if screen else content, screen=screen)
        if written is None:
            time.sleep(INTERVAL_SECONDS if options.interval is None else options.interval)
            try:
                report = _choose(options.names, look(options))
            except ClusterUnreachable as error:
                notes = [each for each in report.notes if not each.startswith(_LAST_ANSWER)]
                report.notes = [*notes, f"{_LAST_ANSWER}, because the cluster cannot be read now: {error}"]
    return written


def framed(content: str, height: int) -> str:
    """Return text in place of what the screen has shown: each line is overwritten, so nothing is blank in between."""
    lines = content.splitlines()
    if len(lines) >= height > 1:
        rest = len(lines) - height + 2
        lines = [*lines[: height - 2], f"and {rest} more lines; {PROGRAM} status without --watch shows all"]
    body = "".join(f"{each}\x1b[K\n" for each in lines)  # to the end of the line
    # From the top on, to the end of the screen; what is wider would otherwise take more lines than were counted.
    return f"\x1b[H\x1b[?7l{body}\x1b[J\x1b[?7h"


@dataclass(slots=True)
class ClusterReading:
    """What was read once, from a dump or a cluster."""

    objects: StatusObjects
    settings: StatusSettings
    missing: frozenset[str]
    """Kinds that could not be read, or that a dump lacks."""
    cluster: ClusterFacts | None
    """None for a dump."""
    notes: list[str]
    """Problems with the worker's Lease."""
    rows: list[Row]
    """Files, objects and policies with an error."""


def read_once(
    options: argparse.Namespace, see: Callable[[Any], None] = lambda _: None, within: str | None = None
) -> ClusterReading:
    """Read everything once; `see` is called with each object, `within` as in `facts_of_cluster`.

    Raises ClusterUnreachable.
    """
    now = (options.time or datetime.now(UTC)).replace(microsecond=0)  # noqa: TID251 -- the shell asks
    config_map, heard_at = options.policy_configmap, None
    holding: list[Manifest] = []
    leases: dict[str, list[Any]] = {}
    rows: list[Row] = []
    notes: list[str] = []
    cluster = None
    if options.dump:
        objects, kinds = StatusObjects(), set[str]()
        for manifest in objects_in(options.dump, rows):
            see(manifest.value)
            row = row_of(manifest)
            kinds.add(row.kind)
            if (row.kind, row.name) == ("Lease", WORKER):
                leases.setdefault(row.namespace, []).append(manifest.value)
            if holds_policy(manifest.value):
                holding.append(manifest)
            value, errors = object_in(manifest.value)
            if errors:
                rows.append(row.failed(f"{row.reference}: left out: {errors[0]}", UNREADABLE))
            elif value is not None:
                objects.add(_as_served(value, now))
        missing = frozenset(_NEEDED.keys() - kinds)
    else:
        from webhook.commands.shared.snapshot import facts_of_cluster  # noqa: PLC0415

        with reading_cluster():
            reading = facts_of_cluster(
                credentials_of(options), config_map, with_policy=options.policy is None, within=within, see=see
            )
            cluster = asyncio.run(reading)
        objects, missing = cluster.objects, frozenset(cluster.missing)
        if cluster.lease_refused:
            notes.append(f"no permission to read the worker's Lease, so its mode is not known: {cluster.lease_refused}")
        leases = {} if cluster.lease is None else {config_map.namespace: [cluster.lease]}
        heard_at = datetime.now(UTC)  # noqa: TID251 -- the shell asks
        holding = [] if cluster.policy is None else [cluster.policy]
    policy, judged = _policy_of(options.policy, holding)
    said = {WorkerSays.of(each, heard_at) for each in leases.get(config_map.namespace, ())}
    if len(said) > 1:
        where = f"Leases {config_map.namespace}/{WORKER}"
        notes.append(
            f"the dump has {len(said)} different {where}, so the worker's mode is not known; say it with --mode"
        )
    elif leases and not said:
        where = ", ".join(f"{each}/{WORKER}" for each in sorted(leases))
        notes.append(
            f"the dump has Lease {where}, but none in namespace {config_map.namespace}; if the worker runs there, "
            "name that namespace in --policy-configmap"
        )
    settings = _settings(options, policy, said, objects, now)
    return ClusterReading(objects, settings, missing, cluster, notes, rows + judged)


def _policy_of(file: str | None, holding: Sequence[Manifest]) -> tuple[Policy, list[Row]]:
    """Return the policy of the file, or else of the objects read, or else the built-in one; rows with errors."""
    found = policy_of(file, next(iter(holding), None))
    rows = list(found.rows)
    if file is None and len(holding) > 1:
        problem = f"contains {len(holding)} policies; choose one with --policy"
        rows.insert(0, Row(holding[1].file).failed(problem, UNREADABLE))
    return found.policy or BUILTIN, [row for row in rows if row.count(Level.ERROR)]


def _settings(
    options: argparse.Namespace,
    policy: Policy,
    said: Collection[WorkerSays | None],
    objects: StatusObjects,
    now: datetime,
) -> StatusSettings:
    """Return how the cluster evicts, by the flags, the worker's Lease, the conditions of rules, and the policy."""
    in_tree = InTree.ABSENT if policy.in_tree_evictor is InTreeEvictor.ABSENT else InTree.ACTIVE
    mode = Mode(options.mode) if options.mode else None
    [worker] = said if len(said) == 1 else [None]
    if worker is not None:
        mode = mode or worker.mode
        in_tree = in_tree if worker.in_tree is InTree.UNKNOWN else worker.in_tree
        # It does not run beside the in-tree controller, and its Lease says nothing if a flag rules that out.
        in_tree = InTree.ABSENT if worker.mode is Mode.REPLACEMENT else in_tree
    in_tree = InTree(options.in_tree) if options.in_tree else in_tree
    known = mode is not None
    if mode is None and said != {None}:  # a Lease that no one holds says that there is no worker
        mode = mode_by_conditions(objects.inventory.rules.values(), in_tree)
    return StatusSettings(policy, mode or Mode.OBSERVE, in_tree, now, mode_said=known, worker=mode is not None)


def _as_served(value: StatusObject, now: datetime) -> StatusObject:
    """Add what a server shows and a manifest leaves out: taints without a time were added now (E-12)."""

    def timed(taint: DeviceTaint) -> DeviceTaint:
        return structs.replace(taint, time_added=now) if taint.time_added is None else taint

    if isinstance(value, DeviceTaintRule):
        return structs.replace(value, taint=timed(value.taint))
    if isinstance(value, ResourceSlice):
        devices = [structs.replace(each, taints=tuple(map(timed, each.taints))) for each in value.devices]
        return structs.replace(value, devices=tuple(devices))
    return value


def look(options: argparse.Namespace) -> StatusReport:
    """Read everything once. Raises ClusterUnreachable."""
    found = read_once(options)
    cluster = found.cluster
    if cluster is None:
        notes = [f"the dump has no {text}" for kind, text in _NEEDED.items() if kind in found.missing]
    else:
        from webhook.commands.shared.snapshot import LACKING  # noqa: PLC0415

        notes = [] if cluster.rules_served else [NOT_SERVED]
        for each, error in cluster.refused.items():
            notes.append(f"no permission to read {each.name}, so {LACKING[each]}: {error}")
        if cluster.policy_refused:
            notes.append(f"no permission to read the policy, so the built-in one is used: {cluster.policy_refused}")
    lines, tripped = lines_of(found.objects, found.settings, found.missing)
    return StatusReport(
        settings=found.settings,
        server=None if cluster is None else cluster.server,
        missing=found.missing,
        lines=lines,
        tripped=tripped,
        show_pods=options.pods or bool(options.names),
        notes=[*notes, *found.notes],
        rows=found.rows,
    )
