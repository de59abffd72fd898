"""The limits of a profile that can block a pod although its rates would let it go. Source: the policy's profiles."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec


class OverallLimit(msgspec.Struct, frozen=True):
    """The profile's `overall`: pods on their way out at the same time."""


class NamespaceLimit(msgspec.Struct, frozen=True):
    """The profile's `perNamespace`."""

    namespace: str


class OwnerLimit(msgspec.Struct, frozen=True):
    """The profile's `perOwnerUnavailable`."""

    owner: str
    """By uid."""


Limit: TypeAlias = OverallLimit | NamespaceLimit | OwnerLimit
"""What can block a pod that is due and whose rates would let it go."""
OVERALL: Final = OverallLimit()
