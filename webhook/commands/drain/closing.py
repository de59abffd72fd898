"""Closes what a drain is about with rules, again whenever more belongs to it, and says who holds it as it is now."""

from __future__ import annotations

import asyncio
import shlex
import time
from typing import TYPE_CHECKING, Final

from webhook.api.rules import DESCRIPTION, EVICT
from webhook.cluster.client.rest import Cluster
from webhook.commands.drain.watching import DrainEnd, DrainSight
from webhook.commands.shared.cluster_reading import CLAIMS, PODS, SLICES
from webhook.commands.shared.confirmations import texts_by_rule
from webhook.commands.shared.device_reading import read_inventory
from webhook.commands.shared.device_selection import belonging, nodes_of, refuse_missing
from webhook.commands.shared.flags import credentials_of, given_cluster_flags
from webhook.commands.shared.main import reading_cluster
from webhook.commands.shared.node_devices import allocated
from webhook.commands.shared.output import write_more
from webhook.commands.shared.rule_objects import NAME, WantedRule
from webhook.commands.shared.rule_store import RuleStore
from webhook.commands.shared.tainting import DryRun, OnExisting, TaintOrder, TaintResult, write_taints
from webhook.config.command_line import program
from webhook.eviction.released import in_use_message
from webhook.inventory.fates import DeviceNames
from webhook.inventory.holders import devices_to_look_at, named_holders
from webhook.inventory.usage import is_pod

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from webhook.commands.shared.device_reading import ReadInventory
    from webhook.commands.shared.device_selection import DeviceSelection
    from webhook.commands.shared.words import DeviceAddress, TaintSpec
    from webhook.config.command_line import CommandLine

_DAEMON_SET: Final = "DaemonSet"
_CALM_SECONDS: Final = 5.0
"""After a rule was written, until no scheduler allocates that has not seen it: as long as the worker waits."""


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
            return asyncio.run(self._check(sight))

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
        held = {key for place in places for key in inventory.usage.claims_on(*place)} | {*read.devices.claims_on(nodes)}
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
    users = [pods.get(f"{claim.meta.namespace}/{each.name}") if is_pod(each) else None for each in claim.reserved_for]
    return (
        bool(users)
        and all(each is not None and each.owner is not None and each.owner.kind == _DAEMON_SET for each in users)
        and read.devices.placement.admin.get(key, frozenset()).issuperset(allocated(claim))
    )
