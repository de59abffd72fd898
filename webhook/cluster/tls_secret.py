"""The Secret of self-managed certificates. A write succeeds only if the Secret is unchanged since it was last read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.certificates.stores import StoredSecret, StoreError
from webhook.cluster.client.answers import decode, objects
from webhook.cluster.client.errors import ClusterError, Conflict
from webhook.cluster.client.rest import path_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.cluster.client.rest import Cluster


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str


class _Secret(msgspec.Struct):
    metadata: _Meta
    data: dict[str, bytes] | None = None
    """msgspec reads base64 into bytes, and writes it back."""


_SECRET: Final = msgspec.json.Decoder(_Secret)


class SecretObject:
    """One Secret by name: a `SecretStore`. Raises StoreError. Its fields are for `certificates.stored` to read."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._path = path_of("", "v1", "secrets", namespace=namespace, name=name)
        self._read: dict[str, Any] = {}

    async def read(self) -> StoredSecret:
        """What it holds now."""
        try:
            answer = await self._cluster.get(self._path)
            secret, self._read = decode(_SECRET, answer), decode(objects, answer)
        except msgspec.DecodeError as error:
            raise StoreError(f"GET {self._path}: the secret cannot be read: {error}") from None
        except ClusterError as error:
            raise StoreError(str(error)) from error
        return StoredSecret(secret.data or {}, secret.metadata.resource_version)

    async def write(self, data: Mapping[str, bytes], version: str) -> bool:
        """Replaces all data of the Secret last read; false, and nothing done, if it has changed since that version."""
        metadata = {**self._read["metadata"], "resourceVersion": version}
        try:
            await self._cluster.update(self._path, {**self._read, "metadata": metadata, "data": dict(data)})
        except Conflict:
            return False
        except ClusterError as error:
            raise StoreError(str(error)) from error
        return True
