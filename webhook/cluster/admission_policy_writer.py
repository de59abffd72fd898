"""Writes exported admission policies: with a field manager of its own, and nothing that is not asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import msgspec

from webhook.api.names import PROGRAM
from webhook.cluster.cache.admission_policies import AdmissionPolicyWire
from webhook.cluster.client.answers import decode, objects
from webhook.cluster.client.errors import NotFound, Unavailable
from webhook.policy.vap.drift import managed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.cluster.cache.discovery import Collection
    from webhook.cluster.client.throttled import ThrottledCluster
    from webhook.policy.vap.drift import AdmissionObjectKey, FallbackWrite, StoredObject

FALLBACK_MANAGER: Final = f"{PROGRAM}-fallback"
_WIRE: Final = msgspec.json.Decoder(AdmissionPolicyWire)


class AdmissionPolicyWriter:
    """One cluster's."""

    def __init__(self, cluster: ThrottledCluster, collections: Mapping[str, Collection]) -> None:
        """`collections` by kind find the served versions."""
        self._cluster = cluster
        self._collections = collections

    async def carry_out(self, write: FallbackWrite) -> StoredObject | None:
        """Applies or deletes an object; returns it as it is stored. Raises ClusterError."""
        if write.wanted is None:
            await self._delete(write)
            return None
        return await self._apply(write.key, managed(write.wanted))

    async def _apply(self, key: AdmissionObjectKey, obj: dict[str, Any]) -> StoredObject:
        """Server-side apply; where others have added something, which apply leaves alone, the spec is replaced."""
        path = await self._path(key)
        answer = await self._cluster.apply(path, obj, manager=FALLBACK_MANAGER)
        stored = _stored(key, answer)
        if stored.spec == obj["spec"]:
            return stored
        whole: dict[str, Any] = decode(objects, answer)
        whole["spec"] = obj["spec"]
        query = urlencode({"fieldManager": FALLBACK_MANAGER})
        return _stored(key, await self._cluster.update(f"{path}?{query}", whole))

    async def _delete(self, write: FallbackWrite) -> None:
        """Deletes the very object that was compared."""
        assert write.stored is not None
        try:
            options = {"preconditions": {"uid": write.stored.uid, "resourceVersion": write.stored.resource_version}}
            await self._cluster.delete(await self._path(write.key), options)
        except NotFound as error:
            if not error.has_status:
                raise

    async def _path(self, key: AdmissionObjectKey) -> str:
        return f"{await self._collections[key.kind].path()}/{quote(key.name, safe='')}"


def _stored(key: AdmissionObjectKey, answer: bytes) -> StoredObject:
    try:
        return decode(_WIRE, answer).stored(key.kind)
    except msgspec.DecodeError as error:
        raise Unavailable(f"the answer to writing {key} cannot be read: {error}") from None
