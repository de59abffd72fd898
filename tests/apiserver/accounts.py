"""Service accounts as the manifests make them: what they may do, their tokens, and what each token was used for."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.apiserver.manifests.installing import OWN_NAMESPACE
from tests.controlplane.client import path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import wait_until

Json = dict[str, Any]

ANY: Final = "*"
RBAC_KINDS: Final = frozenset(
    {"Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Secret"}
)
"""What an account needs to be there."""
_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"
_DECISION: Final = "authorization.k8s.io/decision"


class Right(NamedTuple):
    """One verb on one resource; namespace and name are "*" where a role does not say which."""

    namespace: str
    group: str
    resource: str
    verb: str
    name: str = ANY

    def covers(self, asked: Right) -> bool:
        """Whether this, granted, is what was asked for."""
        same = (self.group, self.resource, self.verb) == (asked.group, asked.resource, asked.verb)
        return same and self.namespace in (ANY, asked.namespace) and self.name in (ANY, asked.name)


def rights_of(documents: Iterable[Json], account: str) -> set[Right]:
    """What the manifests grant to a service account of ours."""
    found = list(documents)
    roles = {(each["kind"], each["metadata"]["name"]): each for each in found if each["kind"].endswith("Role")}
    rights = set()
    for binding in (each for each in found if each["kind"].endswith("RoleBinding")):
        (subject,) = binding["subjects"]
        assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", OWN_NAMESPACE)
        if subject["name"] != account:
            continue
        where = ANY if binding["kind"] == "ClusterRoleBinding" else binding["metadata"]["namespace"]
        for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]["rules"]:
            rights |= {
                Right(where, group, resource, verb, name)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
                for name in rule.get("resourceNames", [ANY])
            }
    return rights


class Token:
    """A token of a service account, as a kubelet gets one for a pod: the audit log tells it from every other."""

    def __init__(self, plane: ControlPlane, account: str) -> None:
        self._plane = plane
        self.account = account
        self.kubeconfig: Path = plane.kubeconfig_of_account(OWN_NAMESPACE, account)
        token: str = json.loads(self.kubeconfig.read_text())["users"][0]["user"]["token"]
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        self._credential = f"JTI={claims['jti']}"

    def events(self) -> list[Json]:
        """Everything that was asked with it, as the audit log has it."""
        return [
            event
            for event in self._plane.audit_events()
            if self._credential in event["user"].get("extra", {}).get(_CREDENTIAL, [])
        ]


def refused(events: Iterable[Json]) -> list[str]:
    """What the authorizer said no to."""
    return [
        f"{event['verb']} {event['requestURI']}"
        for event in events
        if event.get("annotations", {}).get(_DECISION) != "allow"
    ]


def asked_for(events: Iterable[Json]) -> set[Right]:
    """What was done to resources. Discovery is everybody's, and no right of ours."""
    asked = set()
    for event in events:
        about = event.get("objectRef")
        if about is None:
            continue
        resource = "/".join(part for part in (about["resource"], about.get("subresource")) if part)
        # A create has no name in its URL: no role can restrict it by one.
        name = about.get("name", ANY) if event["verb"] != "create" or "/" in resource else ANY
        asked.add(Right(about.get("namespace", ANY), about.get("apiGroup", ""), resource, event["verb"], name))
    return asked


def grant(plane: ControlPlane, documents: Iterable[Json], account: str) -> None:
    """Creates what an account needs of the manifests, and nothing that would act."""
    found = list(documents)
    ours = [each for each in found if each["kind"] in RBAC_KINDS]
    done = plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(ours))
    assert done.code == 0, done
    granted = rights_of(found, account)
    wait_until(lambda: wait_granted(plane, account, granted), "the authorizer knows the roles")


def wait_granted(plane: ControlPlane, account: str, rights: Iterable[Right]) -> bool:
    """Whether the authorizer has heard of all of them; nobody is asked in the account's own name."""
    reviews = path("authorization.k8s.io/v1", "subjectaccessreviews")
    user = f"system:serviceaccount:{OWN_NAMESPACE}:{account}"
    for right in rights:
        resource, _, subresource = right.resource.partition("/")
        attributes = {"group": right.group, "resource": resource, "subresource": subresource, "verb": right.verb}
        place = {"namespace": right.namespace, "name": right.name}
        attributes |= {field: text for field, text in place.items() if text != ANY}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes},
        }
        if not plane.client.create(reviews, body).object["status"]["allowed"]:
            return False
    return True
