"""The path of a resource, in the first of the versions we can read that the server serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from webhook.cluster.client.answers import decode
from webhook.cluster.client.errors import NotFound, Unavailable
from webhook.cluster.client.rest import path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.cluster.client.rest import Cluster


class Collection(Protocol):
    """Where the objects of one resource are listed and watched."""

    @property
    def resource(self) -> str:
        """The plural, for logs and metrics."""

    async def path(self) -> str:
        """The path to list and watch. Raises NotFound if it is not served, Unavailable without an answer."""

    def forget(self) -> None:
        """The path was not found: discover it again at the next call."""


class FixedCollection:
    """A resource that every server has served in the same version for years."""

    def __init__(self, group: str, version: str, resource: str, *, namespace: str = "") -> None:
        self.resource = resource
        self._path = path_of(group, version, resource, namespace=namespace)

    async def path(self) -> str:
        """Always the same."""
        return self._path

    def forget(self) -> None:
        """There is nothing else to try."""


class ServedCollection:
    """A cluster-wide resource in the first of `versions` that is served; discovered once, and again after `forget`."""

    def __init__(self, cluster: Cluster, group: str, versions: Sequence[str], resource: str) -> None:
        self.resource = resource
        self._cluster = cluster
        self._group = group
        self._versions = versions
        self._path: str | None = None

    async def path(self) -> str:
        """The path in the version that is served."""
        if self._path is None:
            version = await served_version(self._cluster, self._group, self._versions, self.resource)
            if version is None:
                raise NotFound(f"{self.resource}.{self._group} is not served in {', '.join(self._versions)}", code=404)
            self._path = path_of(self._group, version, self.resource)
        return self._path

    def forget(self) -> None:
        """The version is not served any more, it seems."""
        self._path = None


class _Resource(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    """As far as it is read: meta/v1 APIResourceList."""

    resources: list[_Resource] | None = None


_RESOURCES: Final = msgspec.json.Decoder(_ResourceList)


async def served_version(cluster: Cluster, group: str, versions: Sequence[str], resource: str) -> str | None:
    """The first version in which the resource is served; a version of a group need not have all its resources."""
    for version in versions:
        try:
            answer = await cluster.get(path_of(group, version, ""))
        except NotFound:
            continue
        try:
            resources = decode(_RESOURCES, answer).resources or []
        except msgspec.DecodeError as error:
            raise Unavailable(f"the list of resources of {group}/{version} cannot be read: {error}") from None
        if any(each.name == resource for each in resources):
            return version
    return None
