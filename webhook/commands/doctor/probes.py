"""What `doctor` asks: probes, which the webhook comments on whatever the policy says, TLS handshakes, and rights.

Objects are refused, or created as dry runs. The rights are those of the roles in the manifests, right by right. A test
compares the two.
"""

from __future__ import annotations

import base64
import binascii
import copy
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from webhook.admission.claim_view import REQUESTED_BY
from webhook.admission.config_maps import POLICY_KEY
from webhook.api.meta import GROUP, OWN_GROUP
from webhook.api.names import CA_NAME, PATCH_ACCOUNT, PATCHER, POLICY_NAME, PROGRAM, WORKER
from webhook.api.owners import POD_GROUPS
from webhook.cluster.client.raw import NoHandshake, Untrusted, certificate_end
from webhook.cluster.client.rest import path_of
from webhook.commands.doctor.checks import Handshake, WebhookEntry
from webhook.commands.shared.cluster_reading import CLAIMS, PATCHES, RULES, SLICES, TEMPLATES
from webhook.policy.vap.author_policy import AUTHOR_POLICY
from webhook.policy.vap.objects import ADMISSION_GROUP, ADMISSION_RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.api.meta import NamespacedName

COLLECTIONS: Final = {"rules": RULES, "claims": CLAIMS, "templates": TEMPLATES, "slices": SLICES, "patches": PATCHES}
_PREFIX: Final = f"{PROGRAM}-doctor-"
_DRIVER: Final = "doctor.devicetaint.io"
_KEY: Final = "devicetaint.k8s.io/doctor"
"""In a domain reserved for Kubernetes, which gets a warning (DT005) in every object."""
_HTTPS: Final = 443
FORGED_AUTHOR: Final = '{"username":"device-taint-webhook-doctor-forged"}'
"""No user of a cluster."""
_HANDSHAKE_SECONDS: Final = 5.0
_READ: Final = ("list", "watch")
_HOOKS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


class Probe(NamedTuple):
    """An object to create, and where."""

    collection: str
    obj: dict[str, Any]


def probe(sort: str, version: str, namespace: str) -> Probe:
    """A valid object of this sort. It selects no device, and no pod uses it."""
    namespaced, (group, _, resource, kind) = sort in ("claims", "templates"), COLLECTIONS[sort]
    place = path_of(group, version, resource, namespace=namespace if namespaced else "")
    obj = {
        "apiVersion": f"{group}/{version}",
        "kind": kind,
        "metadata": {"generateName": _PREFIX, **({"namespace": namespace} if namespaced else {})},
        "spec": _spec(sort, version),
    }
    return Probe(place, obj)


def _spec(sort: str, version: str) -> dict[str, Any]:
    flat = version == "v1beta1"
    taint = {"key": _KEY, "effect": "NoSchedule"}
    if (
        sort == "rules"
    ):  # not of effect None, which releases before 1.35 do not know; no cluster has devices of this driver
        return {"deviceSelector": {"driver": _DRIVER}, "taint": taint}
    if sort == "patches":
        return {"devices": {"filter": {"driver": _DRIVER}, "taints": [taint]}}
    if sort == "slices":
        content = {"taints": [taint]}
        device = {"name": "probe", **({"basic": content} if flat else content)}
        pool = {"name": "doctor", "generation": 1, "resourceSliceCount": 1}
        return {"driver": _DRIVER, "pool": pool, "allNodes": True, "devices": [device]}
    toleration = {"key": _KEY, "operator": "Exists", "effect": "NoSchedule"}
    exact = {"deviceClassName": _DRIVER, "tolerations": [toleration]}
    spec = {"devices": {"requests": [{"name": "probe", **(exact if flat else {"exactly": exact})}]}}
    return {"spec": spec} if sort == "templates" else spec


def forged_template(version: str, namespace: str) -> Probe:
    """A template that names an author who does not exist; without tolerations, which other policies may refuse."""
    made = probe("templates", version, namespace)
    made.obj["spec"] = {"metadata": {"annotations": {REQUESTED_BY: FORGED_AUTHOR}}, "spec": {}}
    return made


def policy_probe(name: NamespacedName) -> Probe:
    """A policy with errors, which the webhook refuses before the API server notices that the name is taken."""
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name.name, "namespace": name.namespace},
        "data": {POLICY_KEY: "kind: Doctor\n"},
    }
    return Probe(path_of("", "v1", "configmaps", namespace=name.namespace), obj)


def with_time(made: Probe, time: str) -> Probe:
    """The same rule with a timeAdded."""
    obj = copy.deepcopy(made.obj)
    obj["spec"]["taint"]["timeAdded"] = time
    return Probe(made.collection, obj)


def address_of(config: Mapping[str, Any]) -> tuple[str, int, str]:
    """Host, port and the name in the certificate, of a clientConfig."""
    service = config.get("service")
    if service:
        host = f"{service['name']}.{service['namespace']}.svc"
        return host, service.get("port", _HTTPS), host
    url = urlsplit(config.get("url", ""))
    return url.hostname or "", url.port or _HTTPS, url.hostname or ""


def webhook_entry_of(kind: str, webhook: dict[str, Any]) -> WebhookEntry:
    """An entry of a webhook configuration of this kind."""
    config = webhook.get("clientConfig") or {}
    rules = tuple(
        (group, resource, frozenset(rule.get("apiVersions") or ()))
        for rule in webhook.get("rules") or ()
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
    )
    try:
        bundle = base64.b64decode(config.get("caBundle") or "")
    except binascii.Error:
        bundle = b""
    fails_open = webhook.get("failurePolicy") == "Ignore"
    return WebhookEntry(webhook["name"], kind, fails_open, bundle, address_of(config), rules)


async def handshake_with(entry: WebhookEntry) -> Handshake:
    """A handshake with the server behind the entry, trusting its caBundle only."""
    host, port, name = entry.address
    try:
        ends = await certificate_end(host, port, name, entry.bundle, _HANDSHAKE_SECONDS)
    except Untrusted as error:
        return Handshake(entry.name, untrusted=str(error))
    except NoHandshake as error:
        return Handshake(entry.name, unreachable=str(error))
    return Handshake(entry.name, ends=ends)


# --- rights of our service accounts ---------------------------------------------------------------

SELF_MANAGED: Final = "certificates that the webhook issues itself"
PATCH_ENTRIES: Final = "entries for ResourceSlicePatches"


class Right(NamedTuple):
    """One verb on one resource, or on one object of it."""

    account: str
    verb: str
    group: str
    resource: str
    name: str = ""
    namespaced: bool = False
    """In our namespace only."""
    only_with: str = ""
    """What has to be installed for it to be needed: nothing, or one of the two below."""

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
    only_with: str = "",
) -> Iterator[Right]:
    for resource, verb in product(resources, verbs):
        yield Right(account, verb, group, resource, name, namespaced, only_with)


RIGHTS: Final = (
    *_rights(PROGRAM, "", ["namespaces"], ["get", *_READ]),
    *_rights(PROGRAM, GROUP, ["deviceclasses"], ["get", *_READ]),
    *_rights(PROGRAM, GROUP, ["resourceslices", "devicetaintrules", "resourceclaims"], _READ),
    *_rights(PROGRAM, ADMISSION_GROUP, ADMISSION_RESOURCES.values(), ["get", *_READ], name=AUTHOR_POLICY),
    *_rights(PROGRAM, ADMISSION_GROUP, _HOOKS, ["get"], name=PROGRAM),
    *_rights(PROGRAM, "", ["configmaps"], _READ, name=POLICY_NAME, namespaced=True),
    *_rights(PROGRAM, "events.k8s.io", ["events"], ["create"], namespaced=True),
    *_rights(PROGRAM, "coordination.k8s.io", ["leases"], ["get"], name=WORKER, namespaced=True),
    *_rights(PROGRAM, "", ["secrets"], ["get", "update"], name=CA_NAME, namespaced=True, only_with=SELF_MANAGED),
    *_rights(PROGRAM, ADMISSION_GROUP, _HOOKS, ["patch"], name=PROGRAM, only_with=SELF_MANAGED),
    *_rights(PROGRAM, OWN_GROUP, ["resourceslicepatches"], _READ, only_with=PATCH_ENTRIES),
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
