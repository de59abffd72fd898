"""What `audit` reads of a cluster: claims, templates, rules, names, policy, and what proves authors. Read only."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.meta import GROUP, SERVED_VERSIONS
from webhook.api.rules import NEVER
from webhook.cluster.cache.author_policy import read_author_policy
from webhook.cluster.cache.discovery import read_facts, served_version
from webhook.cluster.client.errors import NotFound, Refused
from webhook.cluster.client.list_pages import decoded, listed
from webhook.cluster.client.rest import Cluster, path_of
from webhook.commands.shared import cluster_reading as reading

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from webhook.api.meta import NamespacedName
    from webhook.api.servers import ServerFacts
    from webhook.cluster.client.credentials import Credentials
    from webhook.files.read import Manifest

_LOADED: Final = timedelta(seconds=60)
"""After that time every API server applies a policy that was created."""


class ClusterDump(NamedTuple):
    """Objects as in a dump. `policy` is None if there is none."""

    server: str
    objects: tuple[dict[str, Any], ...]
    policy: Manifest | None
    proved_since: datetime | None
    """Since when API servers have proved authors: None if that may not be read."""
    notes: tuple[str, ...]
    """What could not be read."""
    servers: ServerFacts


async def dump_of_cluster(
    credentials: Credentials, config_map: NamespacedName | None, namespace: str | None, *, rules: bool, slices: bool
) -> ClusterDump:
    """Reads what is audited. Raises ClusterError or NoCredentials.

    The ConfigMap is not read if it is None. With a namespace, only objects in it are read. `rules`: with
    DeviceTaintRules and ResourceSlicePatches; `slices`: with ResourceSlices.
    """
    async with Cluster(credentials) as cluster:
        version = await served_version(cluster, GROUP, SERVED_VERSIONS, reading.TEMPLATES.name)
        if version is None:
            raise NotFound(f"{GROUP} is not served in {', '.join(SERVED_VERSIONS)}", code=404)
        if namespace is None:
            objects = await listed(cluster, path_of("", "v1", "namespaces"), "v1", "Namespace")
        else:
            path = path_of("", "v1", "namespaces", name=namespace)
            objects = [{"apiVersion": "v1", "kind": "Namespace", **decoded(await cluster.get(path), path)}]
        for each in (reading.CLASSES, reading.TEMPLATES, reading.CLAIMS, *((reading.SLICES,) if slices else ())):
            within = namespace or "" if each in (reading.TEMPLATES, reading.CLAIMS) else ""
            path = path_of(GROUP, version, each.name, namespace=within)
            objects += await listed(cluster, path, f"{GROUP}/{version}", each.kind)
        found = await reading.policy_manifest(cluster, config_map)
        notes = [note async for note in _add_confirmed(objects, cluster)] if rules else []
        return ClusterDump(
            cluster.server, tuple(objects), found, await _proved_since(cluster), tuple(notes), await read_facts(cluster)
        )


async def _add_confirmed(objects: list[dict[str, Any]], cluster: Cluster) -> AsyncIterator[str]:
    """Adds rules and patches as far as they are served; yields why some may not be read."""
    for each in (reading.RULES, reading.PATCHES):
        try:
            objects += await reading.objects_as_served(cluster, each) or ()
        except Refused as error:
            yield f"no permission to read {each.name}, so they were not checked: {error}"


async def _proved_since(cluster: Cluster) -> datetime | None:
    """Since when API servers have proved authors: never without policy or binding; None if that may not be read."""
    try:
        problem, since = await read_author_policy(cluster)
    except Refused:
        return None
    return NEVER if problem else since + _LOADED
