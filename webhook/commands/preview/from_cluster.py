"""What `preview` reads from a cluster: slices, rules, claims and pods, each listed once, and its answer to the rule.

Beside them device classes and nodes, for where evicted pods would go, and namespaces, whose labels profiles may match;
patches only where they are asked about.

The rule is sent as a dry run, so the webhook reviews it; nothing is written.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from webhook.api.decode import Reader
from webhook.api.meta import GROUP, GroupVersionKind, NamespacedName
from webhook.api.rules import RULE_ANNOTATIONS, decode_rule
from webhook.cluster.cache.discovery import read_facts, served_version
from webhook.cluster.client.credentials import Credentials
from webhook.cluster.client.errors import ClusterError, Conflict, NotFound, Refused, Unavailable
from webhook.cluster.client.list_pages import decoded, find
from webhook.cluster.client.rest import Cluster, path_of
from webhook.commands.preview.report import DryRunAnswer, DryRunResult, PreviewSource
from webhook.commands.shared.snapshot import (
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    PATCHES,
    POD_GROUPS,
    PODS,
    RULES,
    SLICES,
    Snapshot,
)
from webhook.commands.shared.tainting import ATTEMPTS, TEXT
from webhook.config.command_line import program
from webhook.files.manifests import Stock, child, meta, text

_DRY_RUN: Final = "dryRun=All"
_QUIET_SECONDS: Final = 3.0
"""Reading that takes less time reports no progress."""
_TELL_EVERY_SECONDS: Final = 2.0


async def sight_of_cluster(
    credentials: Credentials,
    config_map: NamespacedName | None,
    rules: Sequence[Mapping[str, Any]],
    *,
    patched: bool,
) -> PreviewSource:
    """Read the cluster, and its answers to the rules. Raises ClusterError or NoCredentials.

    Rules are manifests of known versions. The ConfigMap is not read if it is None; `patched`: patches are read, too.
    """
    stock = Stock(whole=True)
    async with Cluster(credentials) as cluster:
        found = Snapshot(cluster, stock, stock.put, stock.kept, _Progress().tell)
        needed = [(found.read, PATCHES), (found.read, CLASSES)] if patched else [(found.read_permitted, CLASSES)]
        for read, each in (*needed, (found.read_permitted, NODES)):
            await read(each)
        for each in (SLICES, CLAIMS):
            if not await found.read(each):
                raise each.not_served
        served = await found.read(RULES)
        stock.inventory.servers = await read_facts(cluster)
        await found.read_permitted(NAMESPACES)
        await _read_pods(found)
        await found.read_policy(config_map)
        if found.policy_refused:
            found.notes.append(f"no permission to read the policy, so the built-in one is used: {found.policy_refused}")
        scaled = await _has_autoscaler(cluster)
        answers = [await _dry_run_answer(cluster, rule, served=served) for rule in rules]
    return PreviewSource(
        stock,
        found.policy,
        frozenset(found.missing),
        server=found.server,
        rules_served=served,
        notes=tuple(found.notes),
        autoscaler=scaled,
        confirmations=tuple(answers),
    )


async def _has_autoscaler(cluster: Cluster) -> bool:
    """Return whether Karpenter or the Cluster Autoscaler is there, as far as the caller may see."""
    status = path_of("", "v1", "configmaps", namespace="kube-system", name="cluster-autoscaler-status")
    try:
        return bool(await served_version(cluster, "karpenter.sh", ("v1",), "nodepools") or await find(cluster, status))
    except Refused:
        return False


async def _read_pods(found: Snapshot[Stock]) -> None:
    """Read what is permitted of pods and PodGroups."""
    await found.read_permitted(PODS)
    found.note_lacking(PODS, "their owners and priorities are unknown")
    if PODS.kind in found.missing:
        return
    await found.read_permitted(POD_GROUPS)
    if POD_GROUPS in found.refused:
        why = "no permission to read PodGroups, so the pods of each are shown as a gang, and all as evicted"
        found.notes.append(f"{why}: {found.refused[POD_GROUPS]}")


class _Progress:
    """Reports progress on standard error, once reading takes a noticeable time."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _QUIET_SECONDS

    def tell(self, what: str) -> None:
        """Note that `what` was read."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _TELL_EVERY_SECONDS
            sys.stderr.write(f"{program('preview')}: {what} read\n")


# --- the rule itself ----------------------------------------------------------------------------


async def _dry_run_answer(cluster: Cluster, rule: Mapping[str, Any], *, served: bool) -> DryRunResult:
    """Ask the cluster for its answer if the rule were applied as it is."""
    if not served:
        return DryRunResult(DryRunAnswer.NOT_ASKED, message="the cluster does not serve DeviceTaintRules")
    try:
        answer = await _dry_run(cluster, rule)
        softened = decode_rule(Reader.of(decoded(answer, RULES.name), [])).softened
    except Unavailable as error:
        return DryRunResult(DryRunAnswer.FAILED, message=str(error))
    except ClusterError as error:
        found = TEXT.search(error.server_message)
        if found is not None:
            return DryRunResult(DryRunAnswer.CONFIRM, found[1], error.server_message)
        return DryRunResult(DryRunAnswer.REFUSED, message=str(error))
    return DryRunResult(DryRunAnswer.SOFTENED if softened else DryRunAnswer.GRANTED)


async def _dry_run(cluster: Cluster, rule: Mapping[str, Any]) -> bytes:
    """Create or update it, without effect; return it as it would be stored. Raises ClusterError."""
    version = GroupVersionKind.parse(text(rule, "apiVersion"), "").version
    collection = path_of(GROUP, version, RULES.name)
    name = text(meta(rule), "name")
    for attempts_left in reversed(range(ATTEMPTS if name else 0)):
        path = path_of(GROUP, version, RULES.name, name=name)
        try:
            stored = decoded(await cluster.get(path), path)
        except NotFound:
            break
        try:
            return await cluster.update(f"{path}?{_DRY_RUN}", as_applied(rule, stored))
        except Conflict:
            if not attempts_left:
                raise
    return await cluster.create(f"{collection}?{_DRY_RUN}", rule)


def as_applied(rule: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored rule after `kubectl apply`: the file's fields, and those only the server or others set.

    Of our own annotations only those in the file count: one that was removed from the file must not remain. timeAdded
    stays while the taint does, since applying does not touch it.
    """
    before, about = meta(stored), meta(rule)
    others = {key: value for key, value in child(before, "annotations").items() if key not in RULE_ANNOTATIONS}
    metadata = {
        **before,
        **about,
        "labels": {**child(before, "labels"), **child(about, "labels")},
        "annotations": {**others, **child(about, "annotations")},
        "resourceVersion": before.get("resourceVersion"),
    }
    spec = dict(child(rule, "spec"))
    taint, known = child(spec, "taint"), child(child(stored, "spec"), "taint")
    same = all((taint.get(name) or "") == (known.get(name) or "") for name in ("key", "value", "effect"))
    if same and taint.get("timeAdded") is None and known.get("timeAdded") is not None:
        spec["taint"] = {**taint, "timeAdded": known["timeAdded"]}
    return {"apiVersion": rule["apiVersion"], "kind": rule["kind"], "metadata": metadata, "spec": spec}
