"""An acting cluster before a scripted peer, for the tests of what the eviction worker does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tests.builders import NOW
from tests.unit.cluster.peer import Answer, Fixed
from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.client.credentials import Access
from webhook.cluster.client.rest import ThrottledCluster
from webhook.cluster.events import EventWriter
from webhook.cluster.eviction_writer import EvictionWriter
from webhook.eviction.ports import Disruption, PodRef
from webhook.flowcontrol.loop import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from tests.unit.cluster.peer import Peer

RULES_PATH: Final = "/apis/resource.k8s.io/v1/devicetaintrules"
RULES: Final = FixedCollection("resource.k8s.io", "v1", "devicetaintrules")


def acting_cluster(
    peer: Peer, per_second: float = 0.0, burst: int = 1, clock: Callable[[], float] = time.monotonic
) -> ThrottledCluster:
    return ThrottledCluster(Fixed(Access(peer.url)), Throttle(per_second, burst, clock))


POD: Final = PodRef("ml", "pod", "u1")
PATH: Final = "/api/v1/namespaces/ml/pods/pod"
DISRUPTION: Final = Disruption("DeletionByDeviceTaintWebhook", "because")
TERMINATING: Final = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "pod"}, "status": {"phase": "Running"}}
OTHER_VERSION: Final = (
    'Operation cannot be fulfilled on Pod "pod": the ResourceVersion in the precondition (1) does not match the '
    "ResourceVersion in record (2). The object might have been modified"
)


def marked(uid: str = "u1", **metadata: str) -> Answer:
    """The pod as the PATCH of its status leaves it."""
    return Answer({"kind": "Pod", "apiVersion": "v1", "metadata": {"uid": uid, "resourceVersion": "8", **metadata}})


def now() -> datetime:
    return NOW


def writer(cluster: ThrottledCluster) -> EvictionWriter:
    return EvictionWriter(cluster, RULES, EventWriter(cluster, instance="evict-0", now=now), now)
