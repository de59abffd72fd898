"""One run of `status`: it looks, and prints what it has found, once or again and again."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from webhook.admission.config_maps import POLICY_KEY
from webhook.api.names import PROGRAM, WORKER
from webhook.api.rules import DeviceTaintRule
from webhook.api.slices import ResourceSlice
from webhook.commands.shared.entries import unreadable_row
from webhook.commands.shared.flags import (
    INTERVAL_SECONDS,
    credentials_of,
    refuse_cluster_beside_dump,
    refuse_stdin_twice,
    use_color,
)
from webhook.commands.shared.main import USAGE, ClusterUnreachable, reading_cluster
from webhook.commands.shared.output import document, write, write_more
from webhook.commands.shared.policy_files import holds_policy, policy_file, review_policy, row_of
from webhook.commands.shared.words import NODES, RULES, name_in, type_in
from webhook.commands.status.objects import StatusObjects, object_in
from webhook.commands.status.report import StatusReport, as_text, as_values, lines_of
from webhook.commands.status.views import StatusSettings, in_tree_of, mode_by_conditions
from webhook.config.command_line import did_you_mean
from webhook.eviction.modes import InTree, Mode, WorkerSays
from webhook.files.read import Manifest, read
from webhook.files.report import UNREADABLE, Level, Row
from webhook.files.structured import STRUCTURED
from webhook.policy.model import BUILTIN

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from webhook.api.meta import NamespacedName
    from webhook.api.taints import DeviceTaint
    from webhook.commands.status.from_cluster import ClusterFacts
    from webhook.commands.status.objects import StatusObject
    from webhook.config.command_line import CommandLine
    from webhook.policy.model import Policy

NOT_SERVED: Final = "the cluster does not serve DeviceTaintRules (feature gate DRADeviceTaints)"
_CLEAR: Final = "\x1b[2J"
_HOME: Final = "\x1b[H"
_TO_END_OF_LINE: Final = "\x1b[K"
_TO_END_OF_SCREEN: Final = "\x1b[J"
_CUT_LINES, _WRAP_LINES = "\x1b[?7l", "\x1b[?7h"
"""What is wider than the screen would otherwise take more lines than were counted."""
_NEEDED: Final = {
    "DeviceTaintRule": "DeviceTaintRules",
    "ResourceSlice": "ResourceSlices, so published devices and taints on them are unknown",
    "ResourceClaim": "ResourceClaims, so it is unknown which pods use a device",
    "Pod": "Pods, so no pod is counted",
    "Namespace": "Namespaces, so their holds and labels are unknown",
    "PodDisruptionBudget": "PodDisruptionBudgets, so pods are shown as due that one blocks",
}


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Prints the status. Returns 0, or 2 for bad input, an unknown rule or no cluster."""
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
    show = _renderer(options)
    chosen = partial(_choose, options.names)
    if not options.watch:
        return write(show(chosen(first)), first.exit_code)
    interval = INTERVAL_SECONDS if options.interval is None else options.interval
    screen = options.output == "text" and sys.stdout.isatty()
    return watch(chosen(first), lambda: chosen(look(options)), show, seconds=interval, screen=screen)


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
    """Only the lines of these names, if any are given; a note for those that are gone."""
    if names:
        known = {line.name for line in report.lines}
        report.notes += [f"{name} is gone" for name in names if name not in known]
        report.lines = [line for line in report.lines if line.name in names]
    return report


def _renderer(options: argparse.Namespace) -> Callable[[StatusReport], str]:
    if options.output in STRUCTURED:
        if options.watch:
            return lambda report: document(options.output, as_values(report))
        return lambda report: STRUCTURED[options.output](as_values(report))
    color = use_color(options.color)

    def text(report: StatusReport) -> str:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        return as_text(report, limit=options.limit, width=width, color=color)

    return text


def watch(
    report: StatusReport,
    look: Callable[[], StatusReport],
    show: Callable[[StatusReport], str],
    *,
    seconds: float,
    screen: bool,
) -> int:
    """Shows `report`, then what `look` returns, every so often, until standard output is closed.

    While the cluster does not answer, the last report stays, with a note. Returns the exit code; ends by an interrupt.
    """
    written = write_more(_CLEAR if screen else "", screen=screen)
    while written is None:
        content = show(report)
        written = write_more(framed(content, shutil.get_terminal_size().lines) if screen else content, screen=screen)
        if written is None:
            time.sleep(seconds)
            report = _next(report, look)
    return written


def _next(report: StatusReport, look: Callable[[], StatusReport]) -> StatusReport:
    try:
        return look()
    except ClusterUnreachable as error:
        note = f"this is the last answer, because the cluster cannot be read now: {error}"
        report.notes = [*[each for each in report.notes if not each.startswith("this is the last answer")], note]
        return report


def framed(content: str, height: int) -> str:
    """Text in place of what the screen has shown before: each line is overwritten, so nothing is blank in between."""
    lines = content.splitlines()
    if len(lines) >= height > 1:
        rest = len(lines) - height + 2
        lines = [*lines[: height - 2], f"and {rest} more lines; {PROGRAM} status without --watch shows all"]
    body = "".join(f"{each}{_TO_END_OF_LINE}\n" for each in lines)
    return f"{_HOME}{_CUT_LINES}{body}{_TO_END_OF_SCREEN}{_WRAP_LINES}"


class ClusterLook:
    """What was read so far, from a dump or a cluster. `explain` reads more of the same."""

    within: str | None = None
    """As `facts_of_cluster` has it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.objects = StatusObjects()
        self.policy: Policy = BUILTIN
        self.server: str | None = None
        self.missing: frozenset[str] = frozenset()
        self.notes: list[str] = []
        self.rows: list[Row] = []
        self.failed = False
        self._now = (options.time or datetime.now(UTC)).replace(microsecond=0)  # noqa: TID251 -- the shell asks
        self._worker: WorkerSays | None = None
        """What the Lease of the worker says; None if no one holds it, or it is not known."""
        self._unheld = False
        """Whether there is a Lease, and no one holds it."""
        if options.dump:
            self._read_dump(options)
        else:
            self._read_cluster(options)
        if options.policy is not None:
            found = policy_file(options.policy)
            self._report(found.rows)
            self.policy = found.policy or self.policy

    def _read_dump(self, options: argparse.Namespace) -> None:
        kinds: Counter[str] = Counter()
        holding: list[Manifest] = []
        leases: dict[str, list[Any]] = {}
        for file in read(options.dump):
            unreadable = unreadable_row(file)
            if unreadable is not None:
                self._report([unreadable])
            for manifest in file.manifests:
                self.take(manifest.value)
                value, errors = object_in(manifest.value)
                row = row_of(manifest)
                kinds[row.kind] += 1
                if (row.kind, row.name) == ("Lease", WORKER):
                    leases.setdefault(row.namespace, []).append(manifest.value)
                if errors:
                    self._report([row.failed(f"{row.reference}: left out: {errors[0]}", UNREADABLE)])
                elif value is not None:
                    self.objects.add(_as_served(value, self._now))
                if holds_policy(manifest.value):
                    holding.append(manifest)
        self.missing = frozenset(kind for kind in _NEEDED if not kinds[kind])
        self.tell_missing()
        self._hear(leases, options.policy_configmap.namespace)
        if options.policy is not None or not holding:
            return
        if len(holding) > 1:
            problem = f"contains {len(holding)} policies; choose one with --policy"
            self._report([Row(holding[1].file).failed(problem, UNREADABLE)])
        self.use(holding[0])

    def _read_cluster(self, options: argparse.Namespace) -> None:
        # Late: see commands/shared/main.py.
        from webhook.commands.status.from_cluster import facts_of_cluster  # noqa: PLC0415

        with reading_cluster():
            config_map, with_policy = options.policy_configmap, options.policy is None
            reading = facts_of_cluster(
                credentials_of(options), config_map, with_policy=with_policy, within=self.within, see=self.take
            )
            found = asyncio.run(reading)
        self.objects, self.server, self.missing = found.objects, found.server, frozenset(found.missing)
        self.tell_refused(found, config_map)
        if found.lease_refused:
            text = f"no permission to read the worker's Lease, so its mode is not known: {found.lease_refused}"
            self.notes.append(text)
        if found.lease is not None:
            now = datetime.now(UTC)  # noqa: TID251 -- the shell asks
            self._hear({config_map.namespace: [found.lease]}, config_map.namespace, now)
        if found.policy is not None:
            self.use(found.policy)

    def _hear(self, leases: Mapping[str, list[Any]], namespace: str, now: datetime | None = None) -> None:
        """Takes up what the Lease in the worker's namespace says, unless there are several that differ."""
        said = {WorkerSays.of(each, now) for each in leases.get(namespace, ())}
        if len(said) == 1:
            (self._worker,) = said
            self._unheld = self._worker is None
        elif said:
            where = f"Leases {namespace}/{WORKER}"
            text = f"the dump has {len(said)} different {where}, so the worker's mode is not known; say it with --mode"
            self.notes.append(text)
        elif leases:
            where = ", ".join(f"{each}/{WORKER}" for each in sorted(leases))
            self.notes.append(
                f"the dump has Lease {where}, but none in namespace {namespace}; if the worker runs there, "
                "name that namespace in --policy-configmap"
            )

    def take(self, value: Any) -> None:
        """One object of a dump or a cluster, before it is read."""

    def tell_missing(self) -> None:
        """Notes the kinds that a dump has no object of."""
        self.notes += [f"the dump has no {text}" for kind, text in _NEEDED.items() if kind in self.missing]

    def tell_refused(self, found: ClusterFacts, _: NamespacedName) -> None:
        """Notes what could not be read of a cluster."""
        # Late: see commands/shared/main.py.
        from webhook.commands.status.from_cluster import LACKING  # noqa: PLC0415

        if not found.rules_served:
            self.notes.append(NOT_SERVED)
        for each, error in found.refused.items():
            self.notes.append(f"no permission to read {each.name}, so {LACKING[each]}: {error}")
        if found.policy_refused:
            text = f"no permission to read the policy, so the built-in one is used: {found.policy_refused}"
            self.notes.append(text)

    def settings(self, options: argparse.Namespace) -> StatusSettings:
        """How the cluster evicts, by the flags, the worker's Lease, the conditions of rules, and the policy."""
        in_tree, worker = in_tree_of(self.policy), self._worker
        said = Mode(options.mode) if options.mode else None
        if worker is not None:
            said = said or worker.mode
            in_tree = in_tree if worker.in_tree is InTree.UNKNOWN else worker.in_tree
            # It does not run beside the in-tree controller, and its Lease says nothing if a flag rules that out.
            in_tree = InTree.ABSENT if worker.mode is Mode.REPLACEMENT else in_tree
        in_tree = InTree(options.in_tree) if options.in_tree else in_tree
        mode = said
        if mode is None and not self._unheld:
            mode = mode_by_conditions(self.objects.inventory.rules.values(), in_tree)
        return StatusSettings(
            self.policy, mode or Mode.OBSERVE, in_tree, self._now, mode_said=said is not None, worker=mode is not None
        )

    def use(self, manifest: Manifest) -> None:
        """The policy of a document or ConfigMap."""
        judged = review_policy(manifest, row_of(manifest))
        self._report([judged.row])
        loaded = judged.loaded.get(POLICY_KEY)
        if loaded is not None and loaded.policy is not None:
            self.policy = loaded.policy

    def _report(self, rows: Iterable[Row]) -> None:
        broken = [row for row in rows if row.count(Level.ERROR)]
        self.rows += broken
        self.failed = self.failed or bool(broken)


def _as_served(value: StatusObject, now: datetime) -> StatusObject:
    """What a manifest leaves out a server shows: taints without a time were added now (E-12)."""

    def timed(taint: DeviceTaint) -> DeviceTaint:
        return structs.replace(taint, time_added=now) if taint.time_added is None else taint

    if isinstance(value, DeviceTaintRule):
        return structs.replace(value, taint=timed(value.taint))
    if isinstance(value, ResourceSlice):
        devices = [structs.replace(each, taints=tuple(map(timed, each.taints))) for each in value.devices]
        return structs.replace(value, devices=tuple(devices))
    return value


def look(options: argparse.Namespace) -> StatusReport:
    """Reads everything once. Raises ClusterUnreachable."""
    read_now = ClusterLook(options)
    settings = read_now.settings(options)
    lines, tripped = lines_of(read_now.objects, settings)
    return StatusReport(
        source="dump" if options.dump else "cluster",
        settings=settings,
        server=read_now.server,
        missing=read_now.missing,
        lines=lines,
        tripped=tripped,
        show_pods=options.pods or bool(options.names),
        notes=read_now.notes,
        rows=read_now.rows,
        failed=read_now.failed,
    )
