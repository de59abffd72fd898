"""What `check` reads from a cluster: the ConfigMap with the policy, if that is to be applied. Read only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from webhook.cluster.client.errors import NotFound
from webhook.cluster.client.list_pages import config_map_of
from webhook.cluster.client.rest import Cluster
from webhook.files.read import Manifest
from webhook.files.spots import NOWHERE

if TYPE_CHECKING:
    from webhook.api.meta import NamespacedName
    from webhook.cluster.client.credentials import Credentials


def policy_of_cluster(credentials: Credentials, name: NamespacedName) -> Manifest:
    """The ConfigMap, as a manifest whose file name is the server's address. Raises ClusterError or NoCredentials."""
    return asyncio.run(_policy(Cluster(credentials), name))


async def _policy(cluster: Cluster, name: NamespacedName) -> Manifest:
    async with cluster:
        found = await config_map_of(cluster, name)
        if found is None:
            raise NotFound(f"{cluster.server}: there is no ConfigMap {name}", code=404)
        return Manifest(cluster.server, 1, {"apiVersion": "v1", "kind": "ConfigMap", **found}, NOWHERE)
