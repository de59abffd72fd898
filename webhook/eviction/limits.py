"""The concurrency limits of a profile, which can block a pod that its rates would allow. Source: policy profiles."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec


class OverallLimit(msgspec.Struct, frozen=True):
    """The profile's `overall`: evictions under way at the same time."""


class NamespaceLimit(msgspec.Struct, frozen=True):
    """The profile's `perNamespace`: evictions under way in one namespace."""

    namespace: str


class OwnerLimit(msgspec.Struct, frozen=True):
    """The profile's `perOwnerUnavailable`: unavailable pods of one owner."""

    owner: str
    """Its uid."""


Limit: TypeAlias = OverallLimit | NamespaceLimit | OwnerLimit
"""A limit that can block a pod which is due."""
OVERALL: Final = OverallLimit()
