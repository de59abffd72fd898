"""The objects of an installation: the Secret of its certificates, its webhook configurations, and its author policy.

What `certificates` stores in a cluster is the Secret, whose writes succeed only if it is unchanged since it was last
read, and the caBundle: the CAs that API servers trust when they call us; other fields of a configuration are kept. The
policy and its binding decide whether API servers prove the authors of templates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NoReturn

import msgspec

from webhook.api.rules import NEVER
from webhook.certificates.settings import StoredBundles, StoredSecret, StoreError
from webhook.cluster.cache.discovery import FixedCollection, served_version
from webhook.cluster.cache.listwatch import Meta, WireValue
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.client.answers import decode, objects
from webhook.cluster.client.errors import ClusterError, Conflict, NotFound
from webhook.cluster.client.list_pages import find, listed
from webhook.cluster.client.rest import STRATEGIC, Cluster, path_of
from webhook.policy.vap.drift import AUTHOR_POLICY, AdmissionObjectKey, StoredObject, unproved
from webhook.policy.vap.objects import ADMISSION_GROUP, ADMISSION_RESOURCES
from webhook.telemetry.metrics import Metrics


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

    async def is_registered(self, *more: str) -> bool:
        """Return whether it exists, with every entry that an installation has, and `more`."""
        there = await self.read() is not None
        return there and {*ENTRIES[self.resource], *more} <= {name.partition(".")[0] for name in self._webhooks}

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
            await self._cluster.patch(self._path, patch, content_type=STRATEGIC)
        except (Conflict, NotFound):
            return False
        except ClusterError as error:
            raise StoreError(str(error)) from error
        return True


# --- the policy that proves authors, and its binding -----------------------------------------------


class _Metadata(Meta, frozen=True, gc=False):
    creation_timestamp: datetime = NEVER
    deletion_timestamp: datetime | None = None


class _PolicyWire(WireValue, frozen=True):
    """A policy or a binding."""

    metadata: _Metadata
    spec: dict[str, Any] = {}  # noqa: RUF012 -- msgspec copies it


async def read_admission_policies(cluster: Cluster) -> dict[AdmissionObjectKey, StoredObject]:
    """Return all ValidatingAdmissionPolicies and bindings; none where they are not served. Raises ClusterError."""
    found = {}
    for kind, plural in ADMISSION_RESOURCES.items():
        version = await served_version(cluster, ADMISSION_GROUP, ("v1",), plural)
        if version is None:
            continue
        items = await listed(cluster, path_of(ADMISSION_GROUP, version, plural), f"{ADMISSION_GROUP}/{version}", kind)
        for item in items:
            wire = msgspec.convert(item, _PolicyWire)
            key = AdmissionObjectKey(kind, wire.metadata.name)
            found[key] = StoredObject(key, wire.metadata.labels or {}, wire.spec)
    return found


_STALE_SECONDS: Final = 60.0
"""For how long a watch may be lost, as while an API server restarts."""


def _problem_of(found: Mapping[str, _PolicyWire]) -> str:
    return unproved({kind: each.spec for kind, each in found.items() if each.metadata.deletion_timestamp is None})


async def read_author_policy(cluster: Cluster) -> tuple[str, datetime]:
    """Why API servers do not prove authors, empty if they do; and when the younger object was created.

    Raises ClusterError.
    """
    found = {}
    for kind, plural in ADMISSION_RESOURCES.items():
        stored = await find(cluster, path_of(ADMISSION_GROUP, "v1", plural, name=AUTHOR_POLICY))
        if stored is not None:
            found[kind] = msgspec.convert(stored, _PolicyWire)
    return _problem_of(found), max((each.metadata.creation_timestamp for each in found.values()), default=NEVER)


class AuthorPolicyWatch:
    """Policy and binding, each watched by name."""

    def __init__(self, cluster: Cluster, *, random: Callable[[], float], metrics: Metrics | None = None) -> None:
        """`random` returns numbers in [0, 1)."""
        self._problem: str | None = None
        """None until both were read."""
        self._reflectors = {
            kind: Reflector(
                cluster,
                FixedCollection(ADMISSION_GROUP, "v1", plural),
                _PolicyWire,
                field_selector=f"metadata.name={AUTHOR_POLICY}",
                random=random,
                metrics=metrics,
            )
            for kind, plural in ADMISSION_RESOURCES.items()
        }
        for reflector in self._reflectors.values():
            reflector.subscribe(self._changed)

    @property
    def problem(self) -> str:
        """Why API servers do not prove authors now; empty if they do."""
        why = "the policy that proves authors was not read yet"
        if self._problem is not None:
            why = next(filter(None, (each.doubt(_STALE_SECONDS) for each in self._reflectors.values())), "")
            if not why:
                return self._problem
        errors = [each.error for each in self._reflectors.values() if each.error]
        return ": ".join([why, *errors[:1]])

    async def run(self) -> NoReturn:
        """Follows them; returns only when cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors.values():
                group.create_task(reflector.run())
            for reflector in self._reflectors.values():
                await reflector.synced.wait()
            self._changed()
        raise AssertionError("the reflectors do not return")

    def _changed(self, *_: object) -> None:
        if all(reflector.synced.is_set() for reflector in self._reflectors.values()):
            self._problem = _problem_of(
                {kind: each for kind, r in self._reflectors.items() for each in r.items.values()}
            )
