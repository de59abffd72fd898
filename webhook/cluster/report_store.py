"""Reports of ours in the cluster: listed by metadata alone, applied whole, deleted by UID."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from webhook.api.names import PROGRAM
from webhook.cluster.cache.discovery import served_version
from webhook.cluster.client.answers import decode
from webhook.cluster.client.errors import ClusterError, NotFound, Unavailable, is_namespace_terminating
from webhook.cluster.client.list_pages import list_pages
from webhook.cluster.client.rest import path_of
from webhook.reports.changes import StoredReport
from webhook.reports.objects import DIGEST, MANAGED_BY, REPORTS_GROUP, REPORTS_VERSION, ReportId

if TYPE_CHECKING:
    from webhook.cluster.client.throttled import ThrottledCluster

_RESOURCES: Final = ("reports", "clusterreports")
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
"""https://kubernetes.io/docs/reference/using-api/api-concepts/#partial-object-metadata"""


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct):
    """As far as it is read."""

    metadata: _Meta


_OBJECT: Final = msgspec.json.Decoder(_Object)


class ReportStore:
    """Reads and writes with one client. Raises ClusterError."""

    def __init__(self, cluster: ThrottledCluster) -> None:
        self._cluster = cluster

    async def is_served(self) -> bool:
        """Whether the cluster has both kinds; asked each time, because the definitions come and go."""
        versions = [
            await served_version(self._cluster, REPORTS_GROUP, (REPORTS_VERSION,), resource) for resource in _RESOURCES
        ]
        return all(versions)

    async def stored(self) -> dict[ReportId, StoredReport]:
        """The objects that carry our label."""
        found: dict[ReportId, StoredReport] = {}
        selector = {"labelSelector": f"{MANAGED_BY}={PROGRAM}"}
        for resource in _RESOURCES:
            path = path_of(REPORTS_GROUP, REPORTS_VERSION, resource)
            async for page in list_pages(self._cluster, path, selector=selector, accept=_METADATA_ONLY):
                found.update(_identified(item) for item in page.items or ())
        return found

    async def apply(self, identity: ReportId, manifest: dict[str, Any]) -> StoredReport | None:
        """Server-side apply; None if the namespace or the kind is gone, or the namespace is being deleted."""
        try:
            answer = await self._cluster.apply(_path(identity), manifest)
        except NotFound:
            return None
        except ClusterError as error:
            if is_namespace_terminating(error):
                return None
            raise
        return _identified(answer)[1]

    async def delete(self, identity: ReportId, uid: str) -> None:
        """Deletes this very object; one that is gone is no error."""
        try:
            await self._cluster.delete(_path(identity), {"preconditions": {"uid": uid}})
        except NotFound:
            return


def _path(identity: ReportId) -> str:
    resource = _RESOURCES[0] if identity.namespace else _RESOURCES[1]
    collection = path_of(REPORTS_GROUP, REPORTS_VERSION, resource, namespace=identity.namespace)
    return f"{collection}/{quote(identity.name, safe='')}"


def _identified(answer: bytes | msgspec.Raw) -> tuple[ReportId, StoredReport]:
    try:
        meta = decode(_OBJECT, answer).metadata
    except msgspec.DecodeError as error:
        raise Unavailable(f"a report cannot be read: {error}") from None
    digest = (meta.annotations or {}).get(DIGEST, "")
    return ReportId(meta.namespace, meta.name), StoredReport(meta.uid, meta.generation, digest)
