"""What our service accounts have to be allowed: the manifests' roles, right by right. A test compares the two."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.meta import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SERVE: Final = "device-taint-webhook"
EVICT: Final = "device-taint-webhook-evict"


class Right(NamedTuple):
    """One verb on one resource, or on one object of it."""

    account: str
    verb: str
    group: str
    resource: str
    name: str = ""
    namespaced: bool = False
    """In our namespace only."""
    self_managed: bool = False
    """Only where the webhook makes its own certificates."""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {resource}" + (f" {self.name}" if self.name else "")

    def attributes(self, namespace: str) -> dict[str, str]:
        """As a SubjectAccessReview has it."""
        resource, _, sub_resource = self.resource.partition("/")
        fields = {
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": sub_resource,
            "name": self.name,
            "namespace": namespace if self.namespaced else "",
        }
        return {field: text for field, text in fields.items() if text}


def _rights(  # noqa: PLR0913 -- a table's columns
    account: str,
    group: str,
    resources: Iterable[str],
    verbs: Iterable[str],
    *,
    name: str = "",
    namespaced: bool = False,
    self_managed: bool = False,
) -> Iterator[Right]:
    for resource, verb in product(resources, verbs):
        yield Right(account, verb, group, resource, name, namespaced, self_managed)


_READ: Final = ("list", "watch")
_HOOKS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
RIGHTS: Final = (
    *_rights(SERVE, "", ["namespaces"], ["get", *_READ]),
    *_rights(SERVE, GROUP, ["deviceclasses"], ["get", *_READ]),
    *_rights(SERVE, GROUP, ["resourceslices", "devicetaintrules", "resourceclaims"], _READ),
    *_rights(SERVE, "", ["configmaps"], _READ, name=f"{SERVE}-policy", namespaced=True),
    *_rights(SERVE, "", ["secrets"], ["get", "update"], name=f"{SERVE}-key", namespaced=True),
    *_rights(SERVE, "events.k8s.io", ["events"], ["create"], namespaced=True),
    *_rights(SERVE, "", ["secrets"], ["get", "update"], name=f"{SERVE}-ca", namespaced=True, self_managed=True),
    *_rights(SERVE, "admissionregistration.k8s.io", _HOOKS, ["get", "patch"], name=SERVE, self_managed=True),
    *_rights(EVICT, "", ["namespaces", "pods"], _READ),
    *_rights(EVICT, "policy", ["poddisruptionbudgets"], _READ),
    *_rights(EVICT, GROUP, ["resourceclaims", "resourceslices", "devicetaintrules"], _READ),
    *_rights(EVICT, GROUP, ["resourceclaimtemplates", "deviceclasses"], ["list"]),
    *_rights(EVICT, GROUP, ["devicetaintrules/status"], ["patch"]),
    *_rights(EVICT, "events.k8s.io", ["events"], ["create"]),
    *_rights(EVICT, "", ["configmaps"], _READ, name=f"{SERVE}-policy", namespaced=True),
    *_rights(EVICT, "coordination.k8s.io", ["leases"], ["create"], namespaced=True),
    *_rights(EVICT, "coordination.k8s.io", ["leases"], ["get", "update"], name=EVICT, namespaced=True),
)
"""Of the worker only what every mode needs; those that act say themselves what they lack."""
