"""What `diff` reads of a cluster: claims, templates, rules, patches, slices and what names mean. Read only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.cluster.client.errors import Refused
from webhook.cluster.client.rest import Cluster
from webhook.commands.shared import cluster_reading as reading

if TYPE_CHECKING:
    from webhook.api.meta import NamespacedName
    from webhook.cluster.client.credentials import Credentials
    from webhook.commands.shared.cluster_reading import Resource
    from webhook.files.read import Manifest


_LACKING: Final = {
    reading.NAMESPACES: "labels of namespaces are unknown",
    reading.CLASSES: "the drivers behind classes are unknown",
    reading.CLAIMS: "no claim is compared, and limits see none",
    reading.TEMPLATES: "no template is compared",
    reading.SLICES: "no slice is compared, and limits see none",
    reading.RULES: "no rule is compared",
    reading.PATCHES: "no patch is compared",
}
"""What is read, and what comes of it if that may not be read."""


class ClusterObjects(NamedTuple):
    """Objects as they are served. `policy`: None if there is none, or it was not asked for."""

    server: str
    objects: list[dict[str, Any]]
    policy: Manifest | None
    notes: tuple[str, ...]


async def objects_of_cluster(
    credentials: Credentials, config_map: NamespacedName | None, namespace: str | None
) -> ClusterObjects:
    """Reads what is compared. Raises ClusterError or NoCredentials.

    Without permission to read the claims of all namespaces, those of `namespace` are read.
    """
    objects: list[dict[str, Any]] = []
    notes: list[str] = []
    async with Cluster(credentials) as cluster:
        for each, lacking in _LACKING.items():
            try:
                objects += await reading.objects_as_served(cluster, each) or ()
            except Refused as error:
                own = await _own(cluster, each, namespace)
                objects += own or []
                if own is None:
                    notes.append(f"no permission to read {each.name}, so {lacking}: {error}")
        policy = await reading.policy_manifest(cluster, config_map)
        return ClusterObjects(cluster.server, objects, policy, tuple(notes))


async def _own(cluster: Cluster, each: Resource, namespace: str | None) -> list[dict[str, Any]] | None:
    """The objects of the namespace; None if they may not be read either."""
    if namespace is None or each not in (reading.CLAIMS, reading.TEMPLATES):
        return None
    try:
        return await reading.objects_as_served(cluster, each, namespace) or []
    except Refused:
        return None
