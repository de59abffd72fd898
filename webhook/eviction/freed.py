"""What has changed about the counts of pods that limits use. `Plans` collects it, and the controller acts on it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class PodFreed(msgspec.Struct, frozen=True):
    """An eviction in this namespace is under way no longer."""

    namespace: str


class OwnerFreed(msgspec.Struct, frozen=True):
    """An owner, by uid, has fewer unavailable pods, or more pods."""

    owner: str


class ReplacementPending(msgspec.Struct, frozen=True):
    """An evicted pod is gone; it counts as unavailable until its owner has replaced it or the wait for that is over."""

    uid: str
    of_gang: bool


class PodTerminating(msgspec.Struct, frozen=True):
    """A pod that limits count is terminating; it counts until it is gone or found stuck."""

    key: str
    """Its `namespace/name`."""
    uid: str


class EvictionFound(msgspec.Struct, frozen=True):
    """An eviction that this process has not requested is under way, probably one of the last leader."""

    key: str
    """The pod's `namespace/name`."""
    uid: str


Freed: TypeAlias = PodFreed | OwnerFreed | ReplacementPending | PodTerminating | EvictionFound
