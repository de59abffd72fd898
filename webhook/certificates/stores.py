"""Where self-managed certificates are stored, as this room sees it: `cluster` implements it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class StoreError(Exception):
    """It could not be read or written; the text says what and why."""


class StoredSecret(NamedTuple):
    """What a Secret held when it was read."""

    data: Mapping[str, bytes]
    version: str


class SecretStore(Protocol):
    """One Secret. Raises StoreError."""

    async def read(self) -> StoredSecret:
        """What it holds."""

    async def write(self, data: Mapping[str, bytes], version: str) -> bool:
        """Replaces all data, unless it changed since that version: then nothing, and false."""


class StoredBundles(NamedTuple):
    """What a webhook configuration had when it was read."""

    bundles: tuple[bytes, ...]
    """The caBundle of each webhook, empty where there is none."""
    version: str


class BundleStore(Protocol):
    """One webhook configuration. Raises StoreError."""

    @property
    def name(self) -> str:
        """Identifies it in messages."""

    async def read(self) -> StoredBundles | None:
        """The caBundles; None if there is no such configuration."""

    async def write(self, bundle: bytes, version: str) -> bool:
        """Gives each webhook this caBundle, unless anything changed since that version: then nothing, and false."""
