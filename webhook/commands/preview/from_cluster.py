"""What `preview` reads from a cluster: slices, rules, claims and pods, each listed once, and its answer to the rule.

Patches and device classes are read only where patches are asked about.

The rule is sent as a dry run, so the webhook reviews it; nothing is written.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.decode import Reader
from webhook.api.meta import GROUP, GroupVersionKind
from webhook.api.rules import RULE_ANNOTATIONS, decode_rule
from webhook.cluster.cache.discovery import read_facts
from webhook.cluster.client.errors import ClusterError, NotFound, Refused, Unavailable
from webhook.cluster.client.list_pages import decoded
from webhook.cluster.client.rest import Cluster, path_of
from webhook.commands.preview.report import DryRunAnswer, DryRunResult, PreviewSource
from webhook.commands.shared import cluster_reading as reading
from webhook.commands.shared.entries import meta, text
from webhook.commands.shared.tainting import TEXT
from webhook.config.command_line import program
from webhook.files.manifests import Stock, held_in, patching_object_in
from webhook.inventory.state import Inventory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from webhook.api.meta import NamespacedName
    from webhook.cluster.client.credentials import Credentials
    from webhook.commands.shared.cluster_reading import Resource
    from webhook.files.read import Manifest

_DRY_RUN: Final = "dryRun=All"
_QUIET_SECONDS: Final = 3.0
"""Reading that takes less time reports no progress."""
_TELL_EVERY_SECONDS: Final = 2.0


class ClusterSight(NamedTuple):
    """A cluster as it was read once. `policy`: None if there is none or it may not be read."""

    server: str
    source: PreviewSource
    policy: Manifest | None
    confirmations: tuple[DryRunResult, ...]
    """For each of the rules that were given."""


async def sight_of_cluster(
    credentials: Credentials,
    config_map: NamespacedName | None,
    rules: Sequence[Mapping[str, Any]],
    *,
    patched: bool,
) -> ClusterSight:
    """The cluster, and its answers to the rules. Raises ClusterError or NoCredentials.

    Rules are manifests of known versions. The ConfigMap is not read if it is None; `patched`: patches and device
    classes are read as well.
    """
    inventory, progress, notes = Inventory(), _Progress(), list[str]()
    stock = Stock()
    async with Cluster(credentials) as cluster:
        if patched:
            await _add_patching(stock, cluster, progress)
        for needed in (reading.SLICES, reading.CLAIMS):
            if not await _add_all(inventory, cluster, needed, progress):
                raise needed.not_served
        served = await _add_all(inventory, cluster, reading.RULES, progress)
        inventory.servers = await read_facts(cluster)
        pods_known = await _add_pods(inventory, cluster, progress, notes)
        found = None
        try:
            found = await reading.policy_manifest(cluster, config_map)
        except Refused as error:
            notes.append(f"no permission to read the policy, so the built-in one is used: {error}")
        answers = [await _dry_run_answer(cluster, rule, served=served) for rule in rules]
        source = PreviewSource(inventory, pods_known, None, served, tuple(notes), stock.patches, stock.classes)
        return ClusterSight(cluster.server, source, found, tuple(answers))


async def _add_patching(stock: Stock, cluster: Cluster, progress: _Progress) -> None:
    """The patches that are stored, where the kind is served, and the device classes."""
    for collection in (reading.PATCHES, reading.CLASSES):
        for value in (
            await reading.decoded_objects(cluster, collection, patching_object_in, progress=progress.tell) or ()
        ):
            stock.add_beside(value)


async def _add_pods(inventory: Inventory, cluster: Cluster, progress: _Progress, notes: list[str]) -> bool:
    """Pods and PodGroups, as far as they may be read, with a note if not; returns whether pods are known."""
    try:
        await _add_all(inventory, cluster, reading.PODS, progress)
    except Refused as error:
        notes.append(f"no permission to read pods, so their owners and priorities are unknown: {error}")
        return False
    try:
        await _add_all(inventory, cluster, reading.POD_GROUPS, progress)
    except Refused as error:
        notes.append(
            f"no permission to read PodGroups, so the pods of each are shown as a gang, and all as evicted: {error}"
        )
    return True


async def _add_all(inventory: Inventory, cluster: Cluster, collection: Resource, progress: _Progress) -> bool:
    """All objects of a collection; returns whether it is served."""
    found = await reading.decoded_objects(cluster, collection, held_in, progress=progress.tell)
    for value in found or ():
        inventory.apply(None, value)
    return found is not None


class _Progress:
    """Reports progress on standard error, once reading takes a noticeable time."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _QUIET_SECONDS

    def tell(self, what: str) -> None:
        """`what` was read."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _TELL_EVERY_SECONDS
            sys.stderr.write(f"{program('preview')}: {what} read\n")


# --- the rule itself ----------------------------------------------------------------------------


async def _dry_run_answer(cluster: Cluster, rule: Mapping[str, Any], *, served: bool) -> DryRunResult:
    """The cluster's answer if the rule were applied as it is."""
    if not served:
        return DryRunResult(DryRunAnswer.NOT_ASKED, message="the cluster does not serve DeviceTaintRules")
    try:
        answer = await _dry_run(cluster, rule)
        softened = decode_rule(Reader.of(decoded(answer, reading.RULES.name), [])).softened
    except Unavailable as error:
        return DryRunResult(DryRunAnswer.FAILED, message=str(error))
    except ClusterError as error:
        found = TEXT.search(error.server_message)
        if found is not None:
            return DryRunResult(DryRunAnswer.CONFIRM, found[1], error.server_message)
        return DryRunResult(DryRunAnswer.REFUSED, message=str(error))
    return DryRunResult(DryRunAnswer.SOFTENED if softened else DryRunAnswer.GRANTED)


async def _dry_run(cluster: Cluster, rule: Mapping[str, Any]) -> bytes:
    """Creates or updates it, without effect; returns it as it would be stored. Raises ClusterError."""
    version = GroupVersionKind.parse(text(rule, "apiVersion"), "").version
    collection = path_of(GROUP, version, reading.RULES.name)
    name = text(meta(rule), "name")
    if name:
        path = path_of(GROUP, version, reading.RULES.name, name=name)
        try:
            stored = decoded(await cluster.get(path), path)
        except NotFound:
            pass
        else:
            return await cluster.update(f"{path}?{_DRY_RUN}", as_applied(rule, stored))
    return await cluster.create(f"{collection}?{_DRY_RUN}", rule)


def as_applied(rule: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored rule after `kubectl apply`: the file's fields, and those that only the server or others have set.

    Of our own annotations only those in the file count: one that was removed from the file must not remain. timeAdded
    stays while the taint does, since applying does not touch it.
    """
    before, about = meta(stored), meta(rule)
    others = {key: value for key, value in _map(before, "annotations").items() if key not in RULE_ANNOTATIONS}
    metadata = {
        **before,
        **about,
        "labels": {**_map(before, "labels"), **_map(about, "labels")},
        "annotations": {**others, **_map(about, "annotations")},
        "resourceVersion": before.get("resourceVersion"),
    }
    spec = dict(_map(rule, "spec"))
    taint, known = _map(spec, "taint"), _map(_map(stored, "spec"), "taint")
    same = all((taint.get(name) or "") == (known.get(name) or "") for name in ("key", "value", "effect"))
    if same and taint.get("timeAdded") is None and known.get("timeAdded") is not None:
        spec["taint"] = {**taint, "timeAdded": known["timeAdded"]}
    return {"apiVersion": rule["apiVersion"], "kind": rule["kind"], "metadata": metadata, "spec": spec}


def _map(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}
