"""`drain`: taints the devices of a node or pool, has their pods evicted gently, and watches until they are empty."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from webhook.api.messages import counted
from webhook.api.meta import OWN_GROUP
from webhook.api.pods import DAEMON_SET
from webhook.api.rules import EVICT, Condition
from webhook.api.taints import NO_SCHEDULE, NONE, DeviceTaint
from webhook.commands.shared.device_selection import DeviceSelection, belonging, nodes_of, refuse_missing, split_nodes
from webhook.commands.shared.flags import (
    INTERVAL_SECONDS,
    add_cluster,
    add_interval,
    add_policy_config_map,
    ask_cluster,
    given_cluster_flags,
)
from webhook.commands.shared.main import (
    INTERRUPTED,
    REFUSED,
    ClusterUnreachable,
    ServerRefusal,
    WrongUsage,
    asking_server,
    reading_cluster,
)
from webhook.commands.shared.output import flushed, write_more
from webhook.commands.shared.tainting import (
    DryRun,
    TaintOrder,
    TaintResult,
    Unanswered,
    add_confirm,
    add_dry_run,
    order_of,
    report_refusals,
    write_taints,
    write_warnings,
)
from webhook.commands.shared.words import (
    DeviceAddress,
    StoredTaintRule,
    TaintSpec,
    WantedRule,
    as_taint_spec,
    split_words,
)
from webhook.config.command_line import CommandLine, IntermixedLine, program
from webhook.config.texts import as_lifetime
from webhook.eviction.conditions import ConditionReason
from webhook.files.report import visible
from webhook.inventory.state import claim_keys, is_pod
from webhook.inventory.targets import DeviceNames
from webhook.validation.formats import dns1123_subdomain

if TYPE_CHECKING:
    from webhook.cluster.client.rest import Cluster
    from webhook.commands.shared.snapshot import ReadInventory, RuleStore
    from webhook.commands.status.report import StatusReport, TaintLine
    from webhook.commands.status.views import PodStatus

_KEY: Final = f"{OWN_GROUP}/drain"
_CALM_SECONDS: Final = 5.0
"""After a rule was written, until no scheduler allocates that has not seen it: as long as the worker waits."""
_SETTLE_SECONDS: Final = 30.0
"""How long claims may stay allocated after their pods; who holds a device longer than that holds it for good."""
_SILENCE_SECONDS: Final = 30.0
"""A worker writes its first condition within seconds; that of before counts again after this time."""
_GIVES_UP: Final = frozenset(
    {ConditionReason.STOPPED, ConditionReason.HELD_BY_POD_GROUP, ConditionReason.RETURNS_TO_DEVICE}
)
"""Reasons of the worker to evict no further pod, beside its mode."""
_DONE: Final = frozenset({ConditionReason.COMPLETED, ConditionReason.NOTHING_TO_DO})


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Drain. Return 0 once no allocation holds a device, 1 if that is not to be, 2 for wrong usage or no cluster."""
    drain = Drain(options, *_read(options))
    with asking_server():
        results = ask_cluster(options, drain.close)
    dry_run = drain.order.dry_run
    if report_refusals(results, drain.order, parser):
        done = [each for each in results if not each.refusal]
        if done and dry_run is DryRun.NONE:
            lines = [*[each.line for each in done], drain.staying(done)]
            sys.stderr.write("".join(f"{line}\n" for line in lines))
        return REFUSED
    lines = [*[each.line for each in results], *map(visible, drain.waits)]
    written = write_more("".join(f"{line}{dry_run.suffix}\n" for line in lines))
    if dry_run is not DryRun.NONE:
        return written or 0
    try:
        end = _watch(options, parser, drain) if written is None else _UNREAD._replace(code=written or REFUSED)
    except KeyboardInterrupt:
        text = visible("; ".join(["the taint stays, and the worker goes on", *drain.waits]))
        sys.stderr.write(f"\ninterrupted: {text}. To take it back: {drain.undo()}\n")
        return flushed(INTERRUPTED)
    if end.emptied:
        return flushed(write_more(f"drained: {visible(end.text)}\nWhen the work is done: {drain.undo()}\n") or 0)
    stays = f"The taint stays. To take it back: {drain.undo()}\n" if drain.closed else ""
    sys.stderr.write(f"error: not drained: {visible(end.text)}\n{stays}")
    return flushed(end.code)


def _read(options: argparse.Namespace) -> tuple[DeviceSelection, TaintSpec]:
    words, nodes = split_nodes(options.words)
    nodes += [each for each in words if "/" not in each]
    if wrong := [each for each in nodes if dns1123_subdomain(each)]:
        raise WrongUsage(f"{wrong[0]!r} cannot be the name of a node")
    addresses, taints = split_words([each for each in words if "/" in each])
    taint = as_taint_spec(f"{options.key}:{NO_SCHEDULE}")
    if taint.key != options.key:
        raise WrongUsage(f"--key {options.key} must be a key, without a value")
    if taints or sum(map(bool, (addresses, nodes, options.selector))) != 1:
        raise WrongUsage("either nodes, or pools such as gpu.example.com/node-7, or --selector is required")
    return DeviceSelection(tuple(dict.fromkeys(addresses)), tuple(dict.fromkeys(nodes)), options.selector), taint


def _watch(options: argparse.Namespace, parser: CommandLine, drain: Drain) -> DrainEnd:
    """Return how it ended; lines about pods go to standard output meanwhile, and hints to standard error, each once."""
    from webhook.commands.status.run import look  # noqa: PLC0415

    timeout = math.inf if options.timeout is None else options.timeout.total_seconds()
    interval = options.interval or INTERVAL_SECONDS
    progress, begun = DrainProgress(drain.closed, parser.prog), time.monotonic()
    settled_since: float | None = None
    while True:
        now = time.monotonic()
        try:
            report = look(options)
            written = write_more("".join(f"{visible(line)}\n" for line in progress.lines(report)))
            if written is not None:
                return _UNREAD._replace(code=written or REFUSED)
            sight = drain.sight(report)
        except ClusterUnreachable as error:
            progress.hint(f"the cluster cannot be read now: {error}")
        except ServerRefusal as refusal:
            return DrainEnd(emptied=False, text=str(refusal))
        else:
            progress.hint(*report.notes, *drain.waits)
            if not sight.answered and now - drain.written >= _SILENCE_SECONDS:
                progress.hint("no eviction worker has reported on this rule yet; check that `evict` runs and may evict")
            if sight.end is not None:
                return sight.end
            settled_since = (settled_since or now) if sight.settled else None
            if settled_since is not None and now - settled_since >= _SETTLE_SECONDS:
                return DrainEnd(emptied=False, text=f"no further pod may be evicted, but {sight.settled}")
        left = begun + timeout - now
        if left <= 0:
            return DrainEnd(emptied=False, text="; ".join([f"not empty within {timeout:g} s", *drain.waits]))
        time.sleep(min(interval, left))


class Drain(msgspec.Struct):
    """The rules of one drain, written at first, and again whenever more belongs to what is drained."""

    options: argparse.Namespace
    selection: DeviceSelection
    taint: TaintSpec
    order: TaintOrder = TaintOrder((), {}, {}, DryRun.NONE, "keep")
    """The first."""
    closed: dict[str, DeviceAddress] = {}
    """By the names of the rules that were written."""
    before: list[tuple[str, Condition | None]] = []
    """What the worker had said of rules. A new annotation, unlike a new spec, leaves that current."""
    waiting: list[DeviceAddress] = []
    """Addresses that are closed, and from which no pod is evicted yet."""
    waits: list[str] = []
    """Which pods wait for a place, and at last how to go ahead."""
    written: float = 0.0
    lasting: bool = True
    """Whether the nodes will still lead to all of these devices when no allocation holds and no slice shows them."""

    async def close(self, cluster: Cluster) -> list[TaintResult]:
        """Write the rules. Raises ClusterError, and ServerRefusal if anything that is named is not there."""
        from webhook.commands.shared.snapshot import RuleStore  # noqa: PLC0415

        store = await RuleStore.of(cluster)
        read, nodes = await self._read(cluster)
        refuse_missing(read, self.selection, nodes)
        addresses = belonging(read, self.selection, nodes)
        annotations = {} if self.options.wait_for_place else {EVICT: "true"}
        self.order = order_of(self.options, addresses, [self.taint], annotations, "keep")
        write_warnings(read.notes)
        try:
            return await self._write(store, self.order, read, nodes)
        except Unanswered as error:
            raise ClusterUnreachable(f"{error}\n{self.staying(error.written)}") from None

    async def _read(self, cluster: Cluster) -> tuple[ReadInventory, frozenset[str]]:
        from webhook.commands.shared.snapshot import CLAIMS, PLACES, PODS, SLICES, read_inventory  # noqa: PLC0415

        nodes, wished = await nodes_of(cluster, self.selection), PLACES if self.options.wait_for_place else ()
        return await read_inventory(cluster, (SLICES, CLAIMS, PODS), wished, by_node=self.selection.by_node), nodes

    async def _write(
        self, store: RuleStore, order: TaintOrder, read: ReadInventory, nodes: frozenset[str]
    ) -> list[TaintResult]:
        for address, _ in order.wanted:
            reach = read.devices.reach.get(address) or ("",)
            self.lasting &= address.pool in nodes and (not address.device or nodes.issuperset(reach))
        results = await write_taints(store, order)
        self._note(results)
        closing = [each for each in results if EVICT not in (each.obj["metadata"].get("annotations") or {})]
        self.waiting += [each.wanted.address for each in closing if not each.refusal]
        if self.waiting and order.dry_run is not DryRun.NONE:
            self._ready(read)
        return results

    def _note(self, results: Sequence[TaintResult]) -> None:
        from webhook.commands.status.views import current  # noqa: PLC0415

        self.written = time.monotonic()
        written = [each for each in results if not each.refusal]
        self.closed |= {each.name: each.wanted.address for each in written}
        modified = [each for each in written if each.operation == "modified"]
        self.before += [(each.name, current(StoredTaintRule.of(each.obj).rule)) for each in modified]

    def staying(self, written: Sequence[TaintResult]) -> str:
        """Return what to say of a drain of which only these rules were written."""
        self.closed = {each.name: each.wanted.address for each in written}
        return f"The taint stays. To take it back: {self.undo()}"

    def undo(self) -> str:
        """Return the command that opens the devices again."""
        selection = self.selection
        if selection.by_node and self.lasting:
            words = [f"--node={each}" for each in selection.nodes]
            words += [f"--selector={selection.labels}"] if selection.labels else []
        else:
            words = list(map(str, dict.fromkeys(self.closed.values())))
        words.append(f"{self.taint}-")
        words += [f"{flag}={value}" for flag, value in given_cluster_flags(self.options)]
        return f"{program('untaint')} {shlex.join(words)}"

    def sight(self, report: StatusReport) -> DrainSight:
        """Return how the drain stands. Raises ServerRefusal and ClusterUnreachable."""
        sight = sight_of(report, self.closed, self.before)
        if time.monotonic() - self.written >= _SILENCE_SECONDS:
            sight = sight_of(report, self.closed)._replace(answered=sight.answered)
        for name in self.closed.keys() - _closing(report, self.closed).keys():
            del self.closed[name]
        if self.waiting and sight.end is None:
            if time.monotonic() - self.written >= _CALM_SECONDS:
                with reading_cluster():
                    ask_cluster(self.options, self._let_go)
            sight = sight._replace(settled="")  # it may speak of an eviction before
        if not sight.settled and (sight.end is None or not sight.end.emptied):
            return sight
        with reading_cluster():
            return ask_cluster(self.options, partial(self._check, sight=sight))

    async def _let_go(self, cluster: Cluster) -> None:
        """Have the worker evict for rules whose pods all find a place, and find which wait. Raises ServerRefusal."""
        from webhook.commands.shared.snapshot import RuleStore  # noqa: PLC0415

        read, _ = await self._read(cluster)
        ready = self._ready(read)
        if not ready:
            return
        store = await RuleStore.of(cluster)
        rules = [each.rule for each in await store.all()]
        closing = {each.meta.name for each in rules if each.taint.effect != NONE}
        still = {address for name, address in self.closed.items() if name in closing}
        wanted = tuple([each for each in ready if each.address in still])
        order = self.order._replace(annotations={**self.order.annotations, EVICT: "true"}, wanted=wanted)
        results = await write_taints(store, order)
        write_warnings(text for each in results for text in each.warnings)
        for each in results:
            if not each.refusal:
                self.waiting.remove(each.wanted.address)
                self._note([each])
                write_more(f"{each.wanted.address}: all pods find a place, so the worker evicts them\n")
            elif "(Conflict)" not in each.refusal:  # else it changed meanwhile, and the next look shows to what
                raise ServerRefusal(each.refusal)

    def _ready(self, read: ReadInventory) -> tuple[WantedRule, ...]:
        """Return the rules whose pods all find a place beside those that go already and those without a node.

        `waits` says why others do not. Pods of DaemonSets do not count: they come back to the same node.
        """
        from webhook.admission.impact_text import places_figures  # noqa: PLC0415
        from webhook.inventory.impact import Impact  # noqa: PLC0415
        from webhook.inventory.placement import Seeker, freed_claims, placements  # noqa: PLC0415
        from webhook.inventory.supply import Supply  # noqa: PLC0415

        inventory, claims = read.inventory, read.inventory.claims
        taints = [(DeviceNames.of(each.selector), DeviceTaint(*self.taint)) for each in self.closed.values()]
        pods = {
            pod.meta.uid: Seeker.of(pod, [claims[key] for key in claim_keys(pod) if key in claims])
            for pod in inventory.pods.values()
            if pod.uses_claims and not (pod.owner and pod.owner.kind == DAEMON_SET)
        }
        keys = [inventory.usage.claims_on(*names) for names, _ in taints]
        hits = [pods.keys() & {user.uid for key in each for user in claims[key].reserved_for} for each in keys]
        users = dict(zip(self.closed.values(), hits, strict=True))
        going = {pod.meta.uid for pod in inventory.pods.values() if not pod.node_name} & pods.keys()
        going.update(*[hit for each, hit in users.items() if each not in self.waiting])
        ready, self.waits = list[WantedRule](), []
        for address in self.waiting:
            uids = going | users[address]
            names = {f"{pods[uid].namespace}/{pods[uid].name}" for uid in users[address]}
            freed = freed_claims(seekers := [pods[uid] for uid in uids], uids)
            supply = Supply(inventory, classes=read.classes, nodes=read.nodes, freed=freed, taints=taints)
            found = placements(inventory, seekers, supply)
            places = [each for each in found if names.intersection(f"{pod.namespace}/{pod.name}" for pod in each.pods)]
            if why := "; ".join(places_figures(Impact(places=tuple(places)))):
                self.waits.append(f"{address} waits with {', '.join(sorted(names))}: {why}")
            else:
                ready.append(WantedRule(address, self.taint))
                going = uids
        if self.waits:
            self.waits.append("to evict them all the same, run the same command without --wait-for-place")
        return tuple(ready)

    async def _check(self, cluster: Cluster, sight: DrainSight) -> DrainSight:
        """Return the same sight, if the cluster as it is now bears it out.

        The worker speaks of the devices of the rules only: more may belong to what is drained than did at first, and
        some of it cannot be tainted, because others use it. What belongs to it by now is tainted, too.
        """
        from webhook.cluster.client.errors import Refused  # noqa: PLC0415
        from webhook.commands.shared.snapshot import RuleStore  # noqa: PLC0415

        try:
            read, nodes = await self._read(cluster)
            addresses = belonging(read, self.selection, nodes)
            more = [each for each in addresses if not any(known.covers(*each) for known in self.closed.values())]
            if not more:
                return self._judged(sight, read, nodes)
            order = self.order._replace(wanted=tuple([WantedRule(each, self.taint) for each in more]), texts={})
            results = await self._write(await RuleStore.of(cluster), order, read, nodes)
        except Refused as error:  # a right that is lacking will be lacking the next time, too
            raise ServerRefusal(f"error: {error}") from None
        lines = [each.refusal or each.line for each in results]
        if any(each.refusal for each in results):
            text = f"{', '.join(map(str, more))} cannot be tainted: {'; '.join(lines)}"
            return DrainSight(DrainEnd(emptied=False, text=text))
        write_more("".join(f"{line}\n" for line in lines))
        return DrainSight()

    def _judged(self, sight: DrainSight, read: ReadInventory, nodes: frozenset[str]) -> DrainSight:
        from webhook.eviction.released import in_use_message  # noqa: PLC0415
        from webhook.inventory.hardware import devices_to_look_at, named_holders  # noqa: PLC0415

        inventory = read.inventory
        closed = [DeviceNames.of(each.selector) for each in self.closed.values()]
        places = {place for names in closed for place in devices_to_look_at(inventory, names)}
        held = {key for place in places for key in inventory.usage.claims_on(*place)}
        held.update(read.devices.claims_on(nodes), read.devices.perhaps_on(nodes))
        monitors = {key for key in held if _monitors(read, key)}
        left = held - monitors if self.options.ignore_daemonsets else held
        if left:
            hint = "; those of DaemonSets are left out with --ignore-daemonsets" if left == monitors else ""
            return DrainSight(None, (sight.settled or in_use_message(named_holders(inventory, left))) + hint)
        if not monitors:
            return sight
        if time.monotonic() - self.written < _CALM_SECONDS:
            return DrainSight()
        ignored = in_use_message(named_holders(inventory, monitors))
        return DrainSight(DrainEnd(emptied=True, text=f"no allocation holds a device, DaemonSets apart: {ignored}"))


def _monitors(read: ReadInventory, key: str) -> bool:
    """Return whether a claim has its devices by admin access, and only pods of DaemonSets use it."""
    from webhook.commands.shared.node_devices import allocated  # noqa: PLC0415

    claim = read.inventory.claims[key]
    for user in claim.reserved_for:
        pod = read.inventory.pods.get(f"{claim.meta.namespace}/{user.name}")
        if pod is None or not is_pod(user) or pod.meta.uid != user.uid:
            return False
        if pod.owner is None or pod.owner.kind != DAEMON_SET:
            return False
    admin = read.devices.placement.admin.get(key, frozenset())
    return bool(claim.reserved_for) and admin.issuperset(allocated(claim))


class DrainEnd(NamedTuple):
    """How a drain has ended: whether no allocation holds a device any more, and a sentence."""

    emptied: bool
    text: str
    code: int = REFUSED
    """To exit with, if it is not emptied."""


_UNREAD: Final = DrainEnd(emptied=False, text="standard output cannot be written")


class DrainSight(NamedTuple):
    """What one look shows. `end` is None while the worker has something to do.

    `settled`: it has evicted all pods that it may, but allocations still hold devices, which ends soon or never;
    the text says who holds them. `answered`: it has said something of each rule with `/evict`.
    """

    end: DrainEnd | None = None
    settled: str = ""
    answered: bool = True


def _closing(report: StatusReport, rules: Iterable[str]) -> dict[str, TaintLine]:
    """Return the lines of those of the rules that are there and keep devices closed."""
    lines = {line.name: line for line in report.lines if line.rule is not None and line.rule.taint.effect != NONE}
    return {name: lines[name] for name in rules if name in lines}


def sight_of(
    report: StatusReport, rules: Iterable[str], before: Collection[tuple[str, Condition | None]] = ()
) -> DrainSight:
    """Return how the drain by these rules stands. Conditions of `before` they were changed say nothing."""
    lines = _closing(report, rules)
    gone = [name for name in rules if name not in lines]
    if gone:
        how = "has effect None" if any(line.name == gone[0] for line in report.lines) else "is gone"
        return DrainSight(DrainEnd(emptied=False, text=f"rule {gone[0]} {how}: the devices are open again"))
    ours = list(lines.values())
    heard = {line.name: line.said for line in ours if line.said is not None and (line.name, line.said) not in before}
    for said in heard.values():
        if said.reason == ConditionReason.OBSERVE_ONLY:
            text = "the eviction worker is in mode observe, in which it evicts no pod"
            return DrainSight(DrainEnd(emptied=False, text=text))
        if said.reason in _GIVES_UP:
            return DrainSight(DrainEnd(emptied=False, text=f"{said.reason}: {said.message}"))
    left = [line for line in ours if line.released is None or line.released.status != "True"]
    if not left:
        return DrainSight(DrainEnd(emptied=True, text="no allocation holds a device"))
    unknown = "it is not known who holds its devices"
    held = "; ".join(f"{line.name}: {unknown if line.released is None else line.released.message}" for line in left)
    done = all(line.name in heard and heard[line.name].reason in _DONE for line in left)
    return DrainSight(None, held if done else "", all(line.name in heard or not line.evict for line in ours))


class DrainProgress:
    """What has happened to the pods since the last look. `program` is what hints begin with."""

    def __init__(self, rules: Collection[str], program: str = "") -> None:
        self._rules = rules
        self._program = program
        self._known: dict[str, PodStatus] = {}
        self._summary = "0 pods to evict"
        self._hinted: set[str] = set()

    def lines(self, report: StatusReport) -> Iterator[str]:
        """Yield a line for each pod of which something is new, and one for all of them if their number has changed.

        Nothing is known of the pods of a rule that was taken back, or that may not be read now.
        """
        from webhook.commands.status.views import PodState  # noqa: PLC0415

        words = {PodState.NOT_DUE: "is not due", PodState.PUT_OFF: "is put off"}
        ours = _closing(report, self._rules).values()
        if len(ours) < len(self._rules) or not report.missing.isdisjoint(("Pod", "ResourceClaim", "ResourceSlice")):
            return
        now = {each.uid: each for line in ours for each in line.pods}
        for uid, each in self._known.items():
            if uid not in now:
                yield f"pod {each.namespace}/{each.name} evicted"
        for uid, each in now.items():
            was, name = self._known.get(uid), f"{each.namespace}/{each.name}"
            if was is not None and (was.state, was.waits_for.kind) == (each.state, each.waits_for.kind):
                continue
            if each.state is PodState.TERMINATING:
                yield f"evicting pod {name}"
            elif each.state not in (PodState.DUE, PodState.STOPPED):  # a pod that is due goes soon
                yield f"pod {name} {words.get(each.state, f'is {each.state.value}')}: {each.waits_for.message}"
        self._known = now
        ending = len([each for each in now.values() if each.state is PodState.TERMINATING])
        summary = f"{counted(sum(line.pending for line in ours), 'pod')} to evict"
        summary += f", {ending} terminating" if ending else ""
        if summary != self._summary:
            self._summary = summary
            yield summary

    def hint(self, *texts: str) -> None:
        """Write those that are new to standard error."""
        for text in texts:
            if text not in self._hinted:
                self._hinted.add(text)
                sys.stderr.write(f"{self._program}: {visible(text)}\n")


# --- flags --------------------------------------------------------------------------------------


def as_timeout(text: str) -> timedelta | None:
    """Return how long to wait; None for 0, which is for ever. Raises ValueError."""
    return None if text in ("0", "0s") else as_lifetime(text)


def command_line() -> CommandLine:
    """Return the flags of the verb."""
    parser = IntermixedLine(
        program("drain"),
        "Drains devices: closes those of nodes or pools with a NoSchedule taint, has the eviction worker evict their\n"
        "pods gently (annotation devicetaint.io/evict), and reports until no allocation holds one of them. NoExecute\n"
        "is not used, because Kubernetes itself would delete the pods at once. A second drain goes on watching.",
        "Exit codes: 0 emptied, 1 refused, stopped, blocked or not within --timeout, 2 wrong usage or no cluster, "
        "130 interrupted: the taint stays, and the command that takes it back is printed.",
        (
            "device-taint-webhook drain node-7",
            "device-taint-webhook drain gpu.example.com/node-7 --timeout 30m --reason 'firmware 1.2'",
            "device-taint-webhook drain -l pool=a100 --dry-run=server",
            "device-taint-webhook drain node/node-7 --ignore-daemonsets",
        ),
    )
    add = parser.add_argument
    help_text = "nodes (NAME or node/NAME), or pools or devices of drivers, to drain"
    add("words", nargs="*", metavar="NODE|DRIVER/POOL...", help=help_text)
    add("-l", "--selector", default="", metavar="L", help="drain the nodes with these labels, such as pool=a100")
    add("--key", default=_KEY, metavar="K", help=f"key of the taint; default {_KEY}")
    add("--reason", metavar="TEXT", help="why, for people (annotation devicetaint.io/description)")
    add("--timeout", type=as_timeout, metavar="10m", help="how long to wait until they are empty; default 0, for ever")
    add_interval(parser)
    add_confirm(parser)
    help_text = "end as well when only pods of DaemonSets hold devices, by admin access, and list these"
    add("--ignore-daemonsets", action="store_true", help=help_text)
    help_text = "evict the pods of a pool, or of a device that is named, only once all find other devices"
    add("--wait-for-place", action="store_true", help=help_text)
    add_dry_run(parser)
    add_cluster(parser)
    add_policy_config_map(parser)
    # What `status` asks for, which this does not.
    parser.set_defaults(dump=[], policy=None, time=None, mode=None, in_tree=None, pods=True, names=[])
    return parser
