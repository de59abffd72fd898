"""A leader that keeps admission policies in sync, as its service account, and what API servers make of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.apiserver.accounts import RBAC_KINDS, Token, rights_of, wait_granted
from tests.apiserver.evicting import EvictProcess
from tests.apiserver.manifests.installing import OWN_NAMESPACE, overlay_of, rendered
from tests.apiserver.policy.stage import make_policy
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from webhook.api.field import Path
from webhook.policy.document import load
from webhook.policy.vap.drift import KINDS, key_of
from webhook.policy.vap.fallback import export_fallback

if TYPE_CHECKING:
    from pathlib import Path as FilePath

    from tests.apiserver.accounts import Right
    from tests.apiserver.policy.stage import Stage

Json = dict[str, Any]

API: Final = "admissionregistration.k8s.io/v1"
EVICT: Final = "device-taint-webhook-evict"
FAST_SECONDS: Final = 15.0
"""Seconds, and generous: it takes one or two."""
DEFAULT: Final = {"key": "gpu.example.com/flaky", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
POLICY: Final = make_policy(
    rules=[
        {
            "name": "no-maintenance",
            "action": "deny",
            "match": {"tolerations": {"keys": ["maint.example.com/*"]}},
            "message": "maintenance is for everyone",
        }
    ],
    defaultTolerations=[{"name": "grace", "tolerations": [DEFAULT]}],
)
TAINTS: Final = {
    **POLICY,
    "taintRules": [{"name": "no-eviction", "action": "deny", "match": {"taints": {"effects": ["NoExecute"]}}}],
}
FORBIDDEN: Final = {"key": "maint.example.com/window", "operator": "Exists"}


def plural(kind: str) -> str:
    return f"{kind[:-1].lower()}ies" if kind.endswith("y") else f"{kind.lower()}s"


def url_of(kind: str, name: str) -> str:
    return path(API, plural(kind), name=f"device-taint-webhook-{name}")


def claim(*tolerations: Json, kind: str = "ResourceClaim", name: str = "c", namespace: str = "infer") -> Json:
    """A claim or a template."""
    asked: Json = {"deviceClassName": "gpu.example.com"}
    if tolerations:
        asked["tolerations"] = [*tolerations]
    spec: Json = {"devices": {"requests": [{"name": "r", "exactly": asked}]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": spec} if kind.endswith("Template") else spec,
    }


def collection(obj: Json) -> str:
    return path("resource.k8s.io/v1", plural(obj["kind"]), namespace=obj["metadata"]["namespace"])


class Syncing:
    """What the tests ask of a stage."""

    def __init__(self, stage: Stage, folder: FilePath) -> None:
        self.stage = stage
        self.client = stage.client
        components = ["components/evict", "components/admission-policies"]
        documents = rendered(
            stage.plane.assets, overlay_of(folder / "mine", components=["../certs/self-managed", *components])
        )
        self.granted: set[Right] = rights_of(documents, EVICT)
        ours = [each for each in documents if each["kind"] in RBAC_KINDS]
        done = stage.plane.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump_all(ours)
        )
        assert done.code == 0, done
        wait_until(lambda: wait_granted(stage.plane, EVICT, self.granted), "the authorizer knows the roles")

    def process(self, mode: str, *arguments: str) -> tuple[EvictProcess, Token]:
        """A worker that evicts nothing, with a token of its own."""
        token = Token(self.stage.plane, EVICT)
        flags = ("--leader-elect", f"--sync-admission-policies={mode}", "--audit-interval=0", *arguments)
        return EvictProcess(self.stage.plane, "observe", *flags, policy=None, kubeconfig=token.kubeconfig), token

    def write(self, document: Json) -> None:
        """Writes a policy."""
        assert self.stage.write_policy(json.dumps(document)).ok

    def stored(self) -> dict[str, Json]:
        """Every object of ours or with our name, by kind and name."""
        return {
            str(key_of({"kind": kind, **each})): each
            for kind in KINDS
            for each in self.client.get(path(API, plural(kind))).items
            if each["metadata"]["name"].startswith("device-taint-webhook-")
        }

    def equals(self, document: Json) -> bool:
        """Whether the cluster has exactly what the policy exports."""
        wanted = {str(key_of(obj)): obj["spec"] for obj in exported(document)}
        return {key: each["spec"] for key, each in self.stored().items()} == wanted

    def wait_equal(self, document: Json) -> None:
        """Within seconds."""
        wait_until(lambda: self.equals(document), "the objects are the policy's", seconds=FAST_SECONDS)

    def use(self, document: Json) -> None:
        """Writes a policy, and waits until API servers enforce it."""
        self.write(document)
        self.wait_equal(document)

    def refusal(self, *tolerations: Json, **about: str) -> str:
        """What a claim is refused with, if it is."""
        obj = claim(*tolerations, **about)
        reply = self.client.create(collection(obj), obj, dry_run=True)
        return "" if reply.ok else reply.message

    def given(self, *tolerations: Json, **about: str) -> list[Json]:
        """The tolerations that a claim has when it is stored."""
        obj = claim(*tolerations, **about)
        made = self.client.create(collection(obj), obj, dry_run=True).object
        spec = made["spec"]["spec"] if obj["kind"].endswith("Template") else made["spec"]
        return list(spec["devices"]["requests"][0]["exactly"].get("tolerations") or [])

    def clear(self) -> None:
        """Deletes whatever there is."""
        for key in self.stored():
            kind, _, name = key.partition(" ")
            self.client.delete(path(API, plural(kind), name=name))

    def events(self, reason: str) -> list[str]:
        """Notes of the Events about the policy's ConfigMap."""
        return [each["note"] for each in self.stage.policy_events() if each["reason"] == reason]


def exported(document: Json) -> tuple[Json, ...]:
    """What the policy exports."""
    policy = load(document, Path.root()).policy
    assert policy is not None
    return export_fallback(policy, namespace=OWN_NAMESPACE).objects
