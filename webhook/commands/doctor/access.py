"""The rights that our service accounts need: the roles in the manifests, right by right. A test compares the two."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.meta import GROUP, OWN_GROUP
from webhook.api.names import CA_NAME, PATCH_ACCOUNT, PATCHER, POLICY_NAME, PROGRAM, WORKER
from webhook.api.owners import POD_GROUPS
from webhook.policy.vap.author_policy import AUTHOR_POLICY
from webhook.policy.vap.objects import ADMISSION_GROUP, ADMISSION_RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


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
    """Needed only where the webhook issues its own certificates."""

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
    *_rights(PROGRAM, "", ["namespaces"], ["get", *_READ]),
    *_rights(PROGRAM, GROUP, ["deviceclasses"], ["get", *_READ]),
    *_rights(PROGRAM, GROUP, ["resourceslices", "devicetaintrules", "resourceclaims"], _READ),
    *_rights(PROGRAM, ADMISSION_GROUP, ADMISSION_RESOURCES.values(), ["get", *_READ], name=AUTHOR_POLICY),
    *_rights(PROGRAM, ADMISSION_GROUP, _HOOKS, ["get"], name=PROGRAM),
    *_rights(PROGRAM, "", ["configmaps"], _READ, name=POLICY_NAME, namespaced=True),
    *_rights(PROGRAM, "events.k8s.io", ["events"], ["create"], namespaced=True),
    *_rights(PROGRAM, "coordination.k8s.io", ["leases"], ["get"], name=WORKER, namespaced=True),
    *_rights(PROGRAM, "", ["secrets"], ["get", "update"], name=CA_NAME, namespaced=True, self_managed=True),
    *_rights(PROGRAM, ADMISSION_GROUP, _HOOKS, ["patch"], name=PROGRAM, self_managed=True),
    *_rights(WORKER, "", ["namespaces", "pods"], _READ),
    *_rights(WORKER, "policy", ["poddisruptionbudgets"], _READ),
    *_rights(WORKER, GROUP, ["resourceclaims", "resourceslices", "devicetaintrules"], _READ),
    *_rights(WORKER, POD_GROUPS[0], [POD_GROUPS[1]], _READ),
    *_rights(WORKER, OWN_GROUP, ["resourceslicepatches"], _READ),
    *_rights(WORKER, GROUP, ["resourceclaimtemplates", "deviceclasses"], ["list"]),
    *_rights(WORKER, GROUP, ["devicetaintrules/status"], ["patch"]),
    *_rights(WORKER, "events.k8s.io", ["events"], ["create"]),
    *_rights(WORKER, "", ["configmaps"], _READ, name=POLICY_NAME, namespaced=True),
    *_rights(WORKER, "coordination.k8s.io", ["leases"], ["create"], namespaced=True),
    *_rights(WORKER, "coordination.k8s.io", ["leases"], ["get", "update"], name=WORKER, namespaced=True),
    *_rights(PATCH_ACCOUNT, GROUP, ["resourceslices", "deviceclasses", "devicetaintrules"], _READ),
    *_rights(PATCH_ACCOUNT, OWN_GROUP, ["resourceslicepatches"], _READ),
    *_rights(PATCH_ACCOUNT, GROUP, ["devicetaintrules"], ["create", "patch", "delete"]),
    *_rights(PATCH_ACCOUNT, OWN_GROUP, ["resourceslicepatches/status"], ["patch"]),
    *_rights(PATCH_ACCOUNT, "events.k8s.io", ["events"], ["create"]),
    *_rights(PATCH_ACCOUNT, "", ["configmaps"], _READ, name=POLICY_NAME, namespaced=True),
    *_rights(PATCH_ACCOUNT, "coordination.k8s.io", ["leases"], ["create"], namespaced=True),
    *_rights(PATCH_ACCOUNT, "coordination.k8s.io", ["leases"], ["get", "update"], name=PATCHER, namespaced=True),
)
"""For the worker, only what every mode needs; the modes that act check the rest when they start."""
