"""One drain: closes what it is about with rules, again whenever more belongs to it, and looks until it has ended."""

from __future__ import annotations

import asyncio
import math
import shlex
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.counts import counted
from webhook.api.rules import DESCRIPTION, EVICT
from webhook.cluster.client.errors import Refused
from webhook.cluster.client.rest import Cluster
from webhook.commands.shared.cluster_reading import CLAIMS, PODS, SLICES, RuleStore
from webhook.commands.shared.device_selection import belonging, nodes_of, refuse_missing
from webhook.commands.shared.flags import credentials_of, given_cluster_flags
from webhook.commands.shared.main import ClusterUnreachable, ServerRefusal, reading_cluster
from webhook.commands.shared.node_devices import allocated, read_inventory
from webhook.commands.shared.output import write_more
from webhook.commands.shared.tainting import DryRun, OnExisting, TaintOrder, TaintResult, texts_by_rule, write_taints
from webhook.commands.shared.words import NAME, WantedRule
from webhook.commands.status.views import PodState
from webhook.config.command_line import program
from webhook.eviction.conditions import ConditionReason
from webhook.eviction.released import in_use_message
from webhook.files.report import visible
from webhook.inventory.fates import DeviceNames
from webhook.inventory.holders import devices_to_look_at, named_holders
from webhook.inventory.usage import is_pod

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from webhook.commands.shared.device_selection import DeviceSelection
    from webhook.commands.shared.node_devices import ReadInventory
    from webhook.commands.shared.words import DeviceAddress, TaintSpec
    from webhook.commands.status.report import StatusReport, TaintLine
    from webhook.commands.status.views import PodStatus
    from webhook.config.command_line import CommandLine

_DAEMON_SET: Final = "DaemonSet"
_CALM_SECONDS: Final = 5.0
"""After a rule was written, until no scheduler allocates that has not seen it: as long as the worker waits."""
_WAITING: Final = frozenset(
    {
        PodState.NOT_DUE,
        PodState.HELD,
        PodState.PUT_OFF,
        PodState.BLOCKED,
        PodState.LIMITED,
        PodState.PAUSED,
        PodState.SKIPPED,
        PodState.STUCK,
    }
)
"""States that are worth a line; a pod that is due goes soon."""
_WORDS: Final = {PodState.NOT_DUE: "is not due", PodState.PUT_OFF: "is put off"}
_GIVES_UP: Final = frozenset(
    {ConditionReason.STOPPED, ConditionReason.HELD_BY_POD_GROUP, ConditionReason.RETURNS_TO_DEVICE}
)
"""Reasons of the worker to evict no further pod."""
_DONE: Final = frozenset({ConditionReason.COMPLETED, ConditionReason.NOTHING_TO_DO})
_SETTLE_SECONDS: Final = 30.0
"""How long claims may stay allocated after their pods; who holds a device longer than that holds it for good."""
_SILENCE_SECONDS: Final = 30.0
"""A worker writes its first condition within seconds."""


class Closing:
    """The rules of one drain."""

    def __init__(
        self, options: argparse.Namespace, parser: CommandLine, selection: DeviceSelection, taint: TaintSpec
    ) -> None:
        self.rules: list[str] = []
        """The names of those that were written."""
        self._options = options
        self._parser = parser
        self._selection = selection
        self._taint = taint
        self._closed: tuple[DeviceAddress, ...] = ()
        self._written = 0.0
        self._lasting = True
        """Whether the nodes will still lead to all of these devices once no allocation holds them."""

    def close(self) -> tuple[list[TaintResult], TaintOrder]:
        """Writes the rules. Raises ClusterError, and ServerRefusal if anything that is named is not there."""
        return asyncio.run(self._close())

    async def _close(self) -> tuple[list[TaintResult], TaintOrder]:
        async with Cluster(credentials_of(self._options)) as cluster:
            store = await RuleStore.of(cluster)
            read, nodes = await self._read(cluster)
            refuse_missing(read, self._selection, nodes)
            addresses = belonging(read, self._selection, nodes)
            try:
                texts = texts_by_rule(self._options.confirm, [WantedRule(each, self._taint).name for each in addresses])
            except ValueError as error:
                self._parser.error(str(error))
            written = await self._write(store, addresses, texts)
            self._remember(addresses, read, nodes)
            return written

    async def _read(self, cluster: Cluster) -> tuple[ReadInventory, frozenset[str]]:
        nodes = await nodes_of(cluster, self._selection)
        return await read_inventory(cluster, (SLICES, CLAIMS, PODS), by_node=self._selection.by_node), nodes

    def _remember(self, addresses: tuple[DeviceAddress, ...], read: ReadInventory, nodes: frozenset[str]) -> None:
        self._closed += addresses
        reach = read.devices.reach
        self._lasting &= all(not each.device or nodes.issuperset(reach.get(each) or ("",)) for each in addresses)

    async def _write(
        self, store: RuleStore, addresses: Sequence[DeviceAddress], texts: Mapping[str, str]
    ) -> tuple[list[TaintResult], TaintOrder]:
        reason = self._options.reason
        annotations = {EVICT: "true", **({} if reason is None else {DESCRIPTION: reason})}
        wanted = tuple(WantedRule(address, self._taint) for address in addresses)
        order = TaintOrder(wanted, annotations, texts, DryRun(self._options.dry_run), OnExisting.KEEP)
        results = await write_taints(store, order)
        self._written = time.monotonic()
        self.rules += [each.name for each in results if not each.refusal]
        return results, order

    def undo(self) -> str:
        """The command that opens the devices again."""
        selection, taint = self._selection, self._taint
        if selection.by_node and self._lasting:
            words = [f"--node={each}" for each in selection.nodes]
            words += [f"--selector={selection.labels}"] if selection.labels else []
        else:
            words = list(map(str, self._closed))
        words.append(f"{taint.key}:{taint.effect}-")
        words += [f"{flag}={value}" for flag, value in given_cluster_flags(self._options)]
        return f"{program('untaint')} {shlex.join(words)}"

    # --- once the worker has done what it can -----------------------------------------------------

    def check(self, sight: DrainSight) -> DrainSight:
        """The same sight, if the cluster as it is now bears it out. Raises ServerRefusal and ClusterUnreachable.

        The worker speaks of the devices of the rules only: more may belong to what is drained than did at first, and
        some of it cannot be tainted, because others use it. What belongs to it by now is tainted, too.
        """
        with reading_cluster():
            try:
                return asyncio.run(self._check(sight))
            except Refused as error:  # a right that is lacking will be lacking the next time, too
                raise ServerRefusal(f"error: {error}") from None

    async def _check(self, sight: DrainSight) -> DrainSight:
        async with Cluster(credentials_of(self._options)) as cluster:
            read, nodes = await self._read(cluster)
            addresses = belonging(read, self._selection, nodes)
            more = tuple(each for each in addresses if not any(known.covers(*each) for known in self._closed))
            if more:
                results, _ = await self._write(await RuleStore.of(cluster), more, {})
                self._remember(more, read, nodes)
                lines = [
                    each.refusal or f"{each.wanted.address} {each.operation} by {NAME}/{each.name}" for each in results
                ]
                if any(each.refusal for each in results):
                    text = f"{', '.join(map(str, more))} cannot be tainted: {'; '.join(lines)}"
                    return DrainSight(DrainEnd(emptied=False, text=text))
                write_more("".join(f"{line}\n" for line in lines))
                return DrainSight()
        return self._judged(sight, read, nodes)

    def _judged(self, sight: DrainSight, read: ReadInventory, nodes: frozenset[str]) -> DrainSight:
        inventory = read.inventory
        named = [DeviceNames(*[part or None for part in each]) for each in self._closed]
        places = {place for names in named for place in devices_to_look_at(inventory, names)}
        held = {key for place in places for key in inventory.usage.claims_on(*place)}
        held.update(read.devices.claims_on(nodes), read.devices.perhaps_on(nodes))
        monitors = {key for key in held if _monitors(read, key)}
        left = held - monitors if self._options.ignore_daemonsets else held
        if left:
            hint = "; those of DaemonSets are left out with --ignore-daemonsets" if left == monitors else ""
            return DrainSight(None, (sight.settled or in_use_message(named_holders(inventory, left))) + hint)
        if not monitors:
            return sight
        if time.monotonic() - self._written < _CALM_SECONDS:
            return DrainSight()
        ignored = in_use_message(named_holders(inventory, monitors))
        return DrainSight(DrainEnd(emptied=True, text=f"no allocation holds a device, DaemonSets apart: {ignored}"))


def _monitors(read: ReadInventory, key: str) -> bool:
    """Whether a claim has its devices by admin access, and only pods of DaemonSets use it."""
    claim, pods = read.inventory.claims[key], read.inventory.pods
    users = [(pods.get(f"{claim.meta.namespace}/{each.name}"), each) for each in claim.reserved_for]
    return (
        bool(users)
        and all(
            pod is not None
            and is_pod(user)
            and pod.meta.uid == user.uid
            and pod.owner is not None
            and pod.owner.kind == _DAEMON_SET
            for pod, user in users
        )
        and read.devices.placement.admin.get(key, frozenset()).issuperset(allocated(claim))
    )


class DrainEnd(NamedTuple):
    """How a drain has ended: whether no allocation holds a device any more, and a sentence."""

    emptied: bool
    text: str


class DrainSight(NamedTuple):
    """What one look shows. `end` is None while the worker has something to do.

    `settled`: it has evicted all pods that it may, but allocations still hold devices, which ends soon or never;
    the text says who holds them. `answered`: it has said something of each rule.
    """

    end: DrainEnd | None = None
    settled: str = ""
    answered: bool = True


def sight_of(report: StatusReport, rules: Sequence[str]) -> DrainSight:
    """How the drain by these rules stands."""
    lines = {line.name: line for line in report.lines if line.rule is not None}
    gone = [name for name in rules if name not in lines]
    if gone:
        return DrainSight(DrainEnd(emptied=False, text=f"rule {gone[0]} is gone: the devices are open again"))
    ours = [lines[name] for name in rules]
    stopped = next((text for line in ours if (text := _stopped(line))), "")
    if stopped:
        return DrainSight(DrainEnd(emptied=False, text=stopped))
    left = [line for line in ours if not _is_released(line)]
    if not left:
        return DrainSight(DrainEnd(emptied=True, text="no allocation holds a device"))
    done = all(line.said is not None and line.said.reason in _DONE for line in left)
    settled = "; ".join(_held(line) for line in left) if done else ""
    return DrainSight(None, settled, all(line.said is not None for line in ours))


def _stopped(line: TaintLine) -> str:
    said = line.said
    if said is None:
        return ""
    if said.reason == ConditionReason.OBSERVE_ONLY:
        return "the eviction worker is in mode observe, in which it evicts no pod"
    return f"{said.reason}: {said.message}" if said.reason in _GIVES_UP else ""


def _is_released(line: TaintLine) -> bool:
    return line.released is not None and line.released.status == "True"


def _held(line: TaintLine) -> str:
    return f"{line.name}: {'it is not known who holds its devices' if line.released is None else line.released.message}"


class DrainProgress:
    """What has happened to the pods since the last look."""

    def __init__(self, rules: Sequence[str]) -> None:
        self._rules = rules
        self._known: dict[str, PodStatus] = {}
        self._summary = _summary(0, 0)

    def lines(self, report: StatusReport) -> Iterator[str]:
        """A line for each pod of which something is new, and one for all of them if their number has changed."""
        ours = [line for line in report.lines if line.name in self._rules]
        now = {each.uid: each for line in ours for each in line.pods}
        for uid, before in self._known.items():
            if uid not in now:
                yield f"pod {_name(before)} evicted"
        for uid, each in now.items():
            was = self._known.get(uid)
            if was is None or (was.state, was.waits_for.kind) != (each.state, each.waits_for.kind):
                yield from _news(each)
        self._known = now
        pending = sum(line.pending for line in ours)
        ending = len({uid for uid, each in now.items() if each.state is PodState.TERMINATING})
        summary = _summary(pending, ending)
        if summary != self._summary:
            self._summary = summary
            yield summary


def _summary(pending: int, ending: int) -> str:
    return f"{counted(pending, 'pod')} to evict" + (f", {ending} terminating" if ending else "")


def _news(status: PodStatus) -> Iterator[str]:
    if status.state is PodState.TERMINATING:
        yield f"evicting pod {_name(status)}"
    elif status.state in _WAITING:
        word = _WORDS.get(status.state, f"is {status.state.value}")
        yield f"pod {_name(status)} {word}: {status.waits_for.message}"


def _name(status: PodStatus) -> str:
    return f"{status.namespace}/{status.name}"


class DrainWatch(NamedTuple):
    """What is watched. `timeout_seconds` None: for ever. `program` is what errors begin with."""

    rules: Sequence[str]
    interval_seconds: float
    timeout_seconds: float | None
    program: str


def watch_drain(
    drain: DrainWatch, look: Callable[[], StatusReport], check: Callable[[DrainSight], DrainSight]
) -> DrainEnd:
    """How it ended; lines about pods go to standard output meanwhile.

    `check` sees whether what the worker says is all that counts, once it has done what it can.
    """
    progress, begun = DrainProgress(drain.rules), time.monotonic()
    hints = _Hints(drain.program)
    settled_since: float | None = None
    while True:
        now = time.monotonic()
        try:
            report = look()
            sight = sight_of(report, drain.rules)
            sight = check(sight) if sight.settled or (sight.end and sight.end.emptied) else sight
        except ClusterUnreachable as error:
            hints.say(f"the cluster cannot be read now: {error}")
        except ServerRefusal as refusal:
            return DrainEnd(emptied=False, text=str(refusal))
        else:
            hints.say(*report.notes)
            if write_more("".join(f"{visible(line)}\n" for line in progress.lines(report))) is not None:
                return DrainEnd(emptied=False, text="standard output is closed")
            if sight.end is not None:
                return sight.end
            if not sight.answered and now - begun >= _SILENCE_SECONDS:
                hints.say("no eviction worker has reported on this rule yet; check that `evict` runs and may evict")
            settled_since = (settled_since or now) if sight.settled else None
            if settled_since is not None and now - settled_since >= _SETTLE_SECONDS:
                return DrainEnd(emptied=False, text=f"no further pod may be evicted, but {sight.settled}")
        left = math.inf if drain.timeout_seconds is None else begun + drain.timeout_seconds - now
        if left <= 0:
            return DrainEnd(emptied=False, text=f"not empty within {drain.timeout_seconds:g} s")
        time.sleep(min(drain.interval_seconds, left))


class _Hints:
    """Lines on standard error, each once."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._said: set[str] = set()

    def say(self, *texts: str) -> None:
        """Those that are new."""
        for text in texts:
            if text not in self._said:
                self._said.add(text)
                sys.stderr.write(f"{self._program}: {visible(text)}\n")
