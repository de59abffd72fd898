"""How many pods are ready, from the API server's own stream of events; and pods that take their time to be."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import ssl
import threading
import time
from datetime import datetime
from typing import Any, Final, Self

from tests.apiserver.eviction.bench import SOON_SECONDS, now
from tests.apiserver.eviction.ground import CONTAINER, Ground

Json = dict[str, Any]

GATED: Final[Json] = {"schedulingGates": [{"name": "example.com/slow"}]}
"""For the spec of pods that a `SlowStart` lets start."""
_markers = itertools.count()


class ReadyWatch:
    """Follows how many pods of a ground are ready and stay, event by event, from entry to exit."""

    def __init__(self, ground: Ground, prefix: str = "") -> None:
        """`prefix`: only pods whose names begin with it."""
        plane = ground.plane
        context = ssl.create_default_context(cadata=plane.ca_pem.decode())
        context.load_cert_chain(plane.folder / "pki" / "admin.crt", plane.folder / "pki" / "admin.key")
        address = plane.server.removeprefix("https://")
        self._connection = http.client.HTTPSConnection(address, context=context, timeout=900)
        self._ground = ground
        self._thread = threading.Thread(target=self._follow, name=f"watch of {ground.name}")
        self._prefix = prefix
        self._marker = f"marker-{next(_markers)}"
        self._ready: dict[str, datetime] = {}
        """Since when they are, by uid; by the clock of the server's machine, in full seconds."""
        self._first: frozenset[str] = frozenset()
        self._ended = False
        self._whole = 0
        self._broken = False
        self.fewest = 0
        self.breaks = 0
        """How often a pod left, or was not ready, after as many had been ready as on entry."""
        self.whole_at: datetime | None = None
        """When as many were ready as on entry, after the last break; the watch may tell of it late."""
        self.left_at: dict[str, datetime] = {}
        """When each pod that was ready on entry was so no longer, by uid, in that order."""
        self.seen = 0
        """Events."""

    def __enter__(self) -> Self:
        listed = self._ground.client.get(self._ground.pods).object
        for pod in listed["items"]:
            self._note(pod, gone=False)
        self.fewest = self._whole = len(self._ready)
        self._first = frozenset(self._ready)
        version = listed["metadata"]["resourceVersion"]
        self._connection.request("GET", f"{self._ground.pods}?watch=true&resourceVersion={version}")
        self._response = self._connection.getresponse()
        assert self._response.status == http.client.OK
        self._thread.start()
        return self

    def __exit__(self, *__: object) -> None:
        """Returns once it has seen everything that had happened before, and has not broken off meanwhile."""
        spec: Json = {"containers": [CONTAINER], "nodeSelector": {"none": "such"}}
        marker: Json = {"metadata": {"name": self._marker}, "spec": spec}
        _ = self._ground.client.create(self._ground.pods, marker).object
        self._thread.join(5 * SOON_SECONDS)
        with contextlib.suppress(OSError):
            self._connection.close()
        assert self._ended, "the watch of pods broke off"

    def _follow(self) -> None:
        for line in self._response:
            event = json.loads(line)
            assert event["type"] in {"ADDED", "MODIFIED", "DELETED"}, event
            if event["object"]["metadata"]["name"] == self._marker:
                self._ended = True
                return
            self.seen += 1
            self._note(event["object"], gone=event["type"] == "DELETED")
            self.fewest = min(self.fewest, len(self._ready))
            self._count_break()

    def _count_break(self) -> None:
        broken = len(self._ready) < self._whole
        if broken and not self._broken:
            self.breaks += 1
        elif self._broken and not broken:
            self.whole_at = max(self._ready.values())
        self._broken = broken

    def _note(self, pod: Json, *, gone: bool) -> None:
        if not pod["metadata"]["name"].startswith(self._prefix):
            return
        conditions = pod.get("status", {}).get("conditions", ())
        ready = [each for each in conditions if each["type"] == "Ready" and each["status"] == "True"]
        if ready and not gone and "deletionTimestamp" not in pod["metadata"]:
            self._ready[pod["metadata"]["uid"]] = datetime.fromisoformat(ready[0]["lastTransitionTime"])
        else:
            self._ready.pop(pod["metadata"]["uid"], None)
            if pod["metadata"]["uid"] in self._first:
                self.left_at.setdefault(pod["metadata"]["uid"], now())


class SlowStart:
    """Lets the gated pods of a ground start a while after they were created, from entry to exit."""

    def __init__(self, ground: Ground) -> None:
        self.seconds = 0.0
        """How long each pod waits."""
        self._ground = ground
        self._seen: dict[str, float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"gates of {ground.name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *__: object) -> None:
        self._end.set()
        self._thread.join(SOON_SECONDS)

    def _run(self) -> None:
        while not self._end.wait(0.2):
            for pod in self._ground.client.get(self._ground.pods).items:
                if not pod["spec"].get("schedulingGates") or "deletionTimestamp" in pod["metadata"]:
                    continue
                name, now = pod["metadata"]["name"], time.monotonic()
                if now - self._seen.setdefault(name, now) >= self.seconds:
                    url = f"{self._ground.pods}/{name}"
                    _ = self._ground.client.patch(url, {"spec": {"schedulingGates": None}})
