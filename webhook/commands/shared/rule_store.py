"""DeviceTaintRules of a cluster, which verbs read and write in the version that it serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from webhook.api.meta import GROUP, RULE_VERSIONS
from webhook.cluster.cache.discovery import served_version
from webhook.cluster.client.answers import RawResponse
from webhook.cluster.client.errors import NotFound
from webhook.cluster.client.list_pages import decoded, listed
from webhook.cluster.client.rest import Cluster, path_of
from webhook.commands.shared.main import ServerRefusal
from webhook.commands.shared.snapshot import RULES
from webhook.commands.shared.words import MANAGER, StoredTaintRule

_NOT_SERVED: Final = f'error: the server doesn\'t have a resource type "{RULES.name}" (feature gate DRADeviceTaints)'


class RuleStore:
    """Rules in the newest version that the cluster serves."""

    def __init__(self, cluster: Cluster, version: str) -> None:
        self.version = version
        self._cluster = cluster
        self._collection = path_of(GROUP, version, RULES.name)

    @classmethod
    async def of(cls, cluster: Cluster) -> RuleStore:
        """Ask for the version. Raises ClusterError, and ServerRefusal if rules are not served."""
        version = await served_version(cluster, GROUP, RULE_VERSIONS, RULES.name)
        if version is None:
            raise ServerRefusal(_NOT_SERVED)
        return cls(cluster, version)

    async def all(self) -> list[StoredTaintRule]:
        """Return all rules, by name. Raises ClusterError."""
        found = await listed(self._cluster, self._collection, f"{GROUP}/{self.version}", RULES.kind)
        return sorted(map(StoredTaintRule.of, found), key=lambda each: each.rule.meta.name)

    async def get(self, name: str) -> StoredTaintRule | None:
        """Return one rule; None if it is gone. Raises ClusterError."""
        try:
            return StoredTaintRule.of(decoded(await self._cluster.get(self._path(name)), self._collection))
        except NotFound:
            return None

    async def create(self, manifest: Mapping[str, Any], *, dry_run: bool) -> RawResponse:
        """Create a rule. Raises Unavailable."""
        return await self._cluster.send("POST", self._collection, manifest, _query(dry_run=dry_run))

    async def replace(self, manifest: Mapping[str, Any], *, dry_run: bool) -> RawResponse:
        """Replace a rule, if it has not changed since it was read. Raises Unavailable."""
        path = self._path(manifest["metadata"]["name"])
        return await self._cluster.send("PUT", path, manifest, _query(dry_run=dry_run))

    async def delete(self, stored: StoredTaintRule, *, dry_run: bool) -> RawResponse:
        """Delete the very rule that was read, if it has not changed since. Raises Unavailable."""
        meta = stored.rule.meta
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            **({"dryRun": ["All"]} if dry_run else {}),
        }
        return await self._cluster.send("DELETE", self._path(meta.name), body)

    def _path(self, name: str) -> str:
        return path_of(GROUP, self.version, RULES.name, name=name)


def _query(*, dry_run: bool) -> dict[str, str | int]:
    return {"fieldManager": MANAGER, **({"dryRun": "All"} if dry_run else {})}
