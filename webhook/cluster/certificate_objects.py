"""What `certificates` stores in a cluster: the Secret of self-managed certificates, and the caBundle of webhooks.

A write of the Secret succeeds only if it is unchanged since it was last read. The caBundle is the CAs that API servers
trust when they call us; other fields of a configuration are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from webhook.certificates.settings import StoredBundles, StoredSecret, StoreError
from webhook.cluster.client.answers import decode, objects
from webhook.cluster.client.errors import ClusterError, Conflict, NotFound
from webhook.cluster.client.rest import Cluster, path_of


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str


class _Secret(msgspec.Struct):
    metadata: _Meta
    data: dict[str, bytes] | None = None
    """msgspec reads base64 into bytes, and writes it back."""


_SECRET: Final = msgspec.json.Decoder(_Secret)


class SecretObject:
    """One Secret by name: a `SecretStore`. Raises StoreError. Its fields are for `certificates.rotation` to read."""

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


VALIDATING: Final = "validatingwebhookconfigurations"
MUTATING: Final = "mutatingwebhookconfigurations"
ENTRIES: Final = {
    VALIDATING: ("rules", "claims", "templates", "slices", "policy"),
    MUTATING: ("rules", "claims", "templates", "slices"),
}
"""What every installation registers, by the first part of the entries' names."""
_STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"


class _ClientConfig(msgspec.Struct, rename="camel"):
    ca_bundle: bytes | None = None


class _Webhook(msgspec.Struct, rename="camel"):
    name: str
    client_config: _ClientConfig


class _Configuration(msgspec.Struct):
    metadata: _Meta
    webhooks: list[_Webhook] | None = None


_CONFIGURATION: Final = msgspec.json.Decoder(_Configuration)


class WebhookConfiguration:
    """One webhook configuration by name: a `BundleStore`. Raises StoreError."""

    def __init__(self, cluster: Cluster, resource: str, name: str) -> None:
        """`resource` is one of the two plurals above."""
        self.name = f"{resource}/{name}"
        self.resource = resource
        self._cluster = cluster
        self._path = path_of("admissionregistration.k8s.io", "v1", resource, name=name)
        self._webhooks: tuple[str, ...] = ()

    async def read(self) -> StoredBundles | None:
        """The caBundles now; None if there is no such configuration."""
        try:
            answer = await self._cluster.get(self._path)
            configuration = decode(_CONFIGURATION, answer)
        except NotFound:
            return None
        except msgspec.DecodeError as error:
            raise StoreError(f"GET {self._path}: the configuration cannot be read: {error}") from None
        except ClusterError as error:
            raise StoreError(str(error)) from error
        webhooks = configuration.webhooks or []
        self._webhooks = tuple(each.name for each in webhooks)
        bundles = tuple(each.client_config.ca_bundle or b"" for each in webhooks)
        return StoredBundles(bundles, configuration.metadata.resource_version)

    async def is_registered(self) -> bool:
        """Return whether it exists, with every entry that an installation has."""
        there = await self.read() is not None
        return there and {*ENTRIES[self.resource]} <= {name.partition(".")[0] for name in self._webhooks}

    async def write(self, bundle: bytes, version: str) -> bool:
        """Sets the caBundle of each webhook last read; false, and nothing done, if anything changed since that version.

        A strategic merge patch finds webhooks by name, and the version in it makes the server refuse it when another
        one came first.
        """
        patch = {
            "metadata": {"resourceVersion": version},
            "webhooks": [{"name": name, "clientConfig": {"caBundle": bundle}} for name in self._webhooks],
        }
        try:
            await self._cluster.patch(self._path, patch, content_type=_STRATEGIC_MERGE_PATCH)
        except (Conflict, NotFound):
            return False
        except ClusterError as error:
            raise StoreError(str(error)) from error
        return True
