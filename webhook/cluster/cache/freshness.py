"""Whether what a reflector holds can be relied on."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webhook.cluster.cache.reflector import Reflector


def doubt(reflector: Reflector[Any], stale_seconds: float, *, optional: bool = False) -> str:
    """Why a resource is not current, after its watch was lost for `stale_seconds` at the latest; empty if it is.

    `optional`: where it is not served there are none.
    """
    if reflector.unserved:
        if not optional:
            return f"{reflector.resource} are not served"
        # Kept for a while, as another server may serve them; meanwhile nothing follows their changes.
        return f"{reflector.resource} are served no longer" if reflector.items else ""
    if not reflector.synced.is_set():
        return f"{reflector.resource} not read yet"
    if not reflector.settled:
        return f"{reflector.resource} being listed again"
    lost = reflector.lost_seconds
    if lost <= stale_seconds:
        return ""
    return (
        f"{reflector.resource} being listed again"
        if lost == inf
        else f"{reflector.resource} not watched for {lost:.0f} s"
    )
