"""An acting cluster before a scripted peer, for the tests of what the eviction worker does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tests.unit.cluster.peer import Fixed
from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.client.credentials import Access
from webhook.cluster.client.throttled import ThrottledCluster
from webhook.flowcontrol.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.cluster.peer import Peer

RULES_PATH: Final = "/apis/resource.k8s.io/v1/devicetaintrules"
RULES: Final = FixedCollection("resource.k8s.io", "v1", "devicetaintrules")


def acting_cluster(
    peer: Peer, per_second: float = 0.0, burst: int = 1, clock: Callable[[], float] = time.monotonic
) -> ThrottledCluster:
    return ThrottledCluster(Fixed(Access(peer.url)), Throttle(per_second, burst, clock))
