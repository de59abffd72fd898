"""A peer that has objects: it lists them, watches from a version, and forgets.

It knows of Kubernetes what a reflector relies on, and nothing else; that API servers do the same is tested on one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.unit.cluster.cache.following import event
from tests.unit.cluster.held import held
from tests.unit.cluster.peer import Answer, Lines, Peer, Reply, Request, status
from webhook.inventory.state import Inventory

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]

RESOURCES: Final = {
    "ResourceSlice": "resourceslices",
    "DeviceTaintRule": "devicetaintrules",
    "ResourceClaim": "resourceclaims",
    "Pod": "pods",
    "PodGroup": "podgroups",
}
ALL: Final = {"v1": frozenset(RESOURCES.values()) - {"pods", "podgroups"}}


class ApiPeer(Peer):
    """The objects of a small cluster, under versions that grow."""

    def __init__(self, served: Mapping[str, frozenset[str]] = ALL) -> None:
        """`served`: resources by version, of resource.k8s.io and of scheduling.k8s.io."""
        super().__init__()
        self.served = served
        self.version = 100
        self.git_version = "v1.37.2"
        """What it says of itself."""
        self.about_version: Reply | None = None
        """What it answers instead, if it does."""
        self.forbidden: frozenset[str] = frozenset()
        self.forgotten = 0
        """A watch from an earlier version is gone."""
        self.objects: dict[str, dict[tuple[str, str], Json]] = {resource: {} for resource in RESOURCES.values()}
        self.history: dict[str, list[tuple[int, bytes]]] = {resource: [] for resource in RESOURCES.values()}

    def path_of(self, resource: str) -> str:
        """Where the resource is watched: in the first version that has it."""
        if resource == "pods":
            return "/api/v1/pods"
        group = "scheduling.k8s.io" if resource == "podgroups" else "resource.k8s.io"
        versions = ("v1", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2")
        version = next(each for each in versions if resource in self.served.get(each, ()))
        return f"/apis/{group}/{version}/{resource}"

    def put(self, manifest: Json) -> bytes:
        """Creates or changes an object; gives the event, which nobody has heard yet."""
        self.version += 1
        resource = RESOURCES[manifest["kind"]]
        meta = manifest["metadata"]
        key = meta.get("namespace", ""), meta["name"]
        known = self.objects[resource].get(key)
        uid = known["metadata"]["uid"] if known else f"uid-{self.version}"
        stored = manifest | {"metadata": meta | {"uid": uid, "resourceVersion": str(self.version)}}
        self.objects[resource][key] = stored
        return self._remember(resource, event("MODIFIED" if known else "ADDED", stored))

    def delete(self, manifest: Json) -> bytes:
        """Likewise."""
        self.version += 1
        resource = RESOURCES[manifest["kind"]]
        meta = manifest["metadata"]
        stored = self.objects[resource].pop((meta.get("namespace", ""), meta["name"]))
        last = stored | {"metadata": stored["metadata"] | {"resourceVersion": str(self.version)}}
        return self._remember(resource, event("DELETED", last))

    def _remember(self, resource: str, line: bytes) -> bytes:
        self.history[resource].append((self.version, line))
        return line

    def inventory(self) -> Inventory:
        """Everything there is, read by other decoders."""
        inventory = Inventory()
        for found in self.objects.values():
            for manifest in found.values():
                inventory.apply(None, held(manifest))
        return inventory

    def _next(self, request: Request) -> Reply:
        if self.watches if request.is_watch else self.answers:
            return super()._next(request)
        if request.path == "/version":
            return self.about_version or Answer({"major": "1", "minor": "37", "gitVersion": self.git_version})
        *_, version, last = request.path.strip("/").split("/")
        if last in self.served:
            return Answer({"resources": [{"name": resource} for resource in sorted(self.served[last])]})
        if last not in self.objects or (last != "pods" and last not in self.served.get(version, ())):
            return Answer(status(404, "the server could not find the requested resource"), 404)
        if last in self.forbidden:
            return Answer(status(403, f"no {last} for you", reason="Forbidden"), 403)
        return self._watch(last, request.query) if request.is_watch else self._list(last, request.query)

    def _list(self, resource: str, query: Mapping[str, str]) -> Reply:
        items = list(self.objects[resource].values())
        size, start = int(query.get("limit", 0)) or len(items), int(query.get("continue", 0))
        more = str(start + size) if start + size < len(items) else ""
        return Answer(
            {
                "metadata": {"resourceVersion": str(self.version), "continue": more},
                "items": [_without_type(item) for item in items[start : start + size]],
            }
        )

    def _watch(self, resource: str, query: Mapping[str, str]) -> Reply:
        since = int(query["resourceVersion"])
        if since < self.forgotten:
            return Answer(status(410, f"too old resource version: {since}", reason="Expired"), 410)
        return Lines([line for version, line in self.history[resource] if version > since])


def _without_type(item: Json) -> Json:
    """The items of a list do not say of what kind they are."""
    return {name: value for name, value in item.items() if name not in {"apiVersion", "kind"}}
