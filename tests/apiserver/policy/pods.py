"""Templates, pods that use them, and the claims that Kubernetes' own controller makes for those pods."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any, Final, Self

from tests.apiserver.policy.rows import Identity, make_toleration
from tests.apiserver.policy.stage import REQUESTED_BY, Stage
from tests.controlplane.client import Client, path
from tests.controlplane.processes import wait_until
from tests.controlplane.versions import GROUP

Json = dict[str, Any]

NAMESPACE: Final = "lab"
TEMPLATES: Final = path(f"{GROUP}/v1", "resourceclaimtemplates", namespace=NAMESPACE)
CLAIMS: Final = path(f"{GROUP}/v1", "resourceclaims", namespace=NAMESPACE)
PODS: Final = path("v1", "pods", namespace=NAMESPACE)

_numbers = itertools.count()


def unused_name() -> str:
    """A name that no other object of this folder's tests has."""
    return f"policy-{next(_numbers)}"


def make_template(*tolerations: str, annotations: Mapping[str, str] | None = None) -> Json:
    """A template with one request; annotations are those of the claims to be made from it."""
    wanted = {"deviceClassName": "gpu.example.com", "tolerations": [make_toleration(text) for text in tolerations]}
    spec: Json = {"spec": {"devices": {"requests": [{"name": "r", "exactly": wanted}]}}}
    if annotations is not None:
        spec["metadata"] = {"annotations": dict(annotations)}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": unused_name(), "namespace": NAMESPACE},
        "spec": spec,
    }


def template_url(template: Json) -> str:
    return f"{TEMPLATES}/{template['metadata']['name']}"


def acting_as(stage: Stage, who: Identity) -> Client:
    """The API server for somebody else."""
    return stage.client.acting_as(*who)


def author_in(obj: Json) -> str:
    """Whom the annotation of a template or claim names; empty if nobody."""
    metadata = obj["spec"].get("metadata", {}) if obj["kind"] == "ResourceClaimTemplate" else obj["metadata"]
    annotation = metadata.get("annotations", {}).get(REQUESTED_BY)
    return str(json.loads(annotation)["username"]) if annotation else ""


class PodWithClaim:
    """A pod that uses a template, for the length of a block."""

    def __init__(self, stage: Stage, template: Json, user: Identity) -> None:
        self._stage = stage
        self._user = user
        self.name = unused_name()
        self._pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template["metadata"]["name"]}],
            },
        }

    def __enter__(self) -> Self:
        _ = acting_as(self._stage, self._user).create(PODS, self._pod).object
        return self

    def __exit__(self, *_: object) -> None:
        self._stage.client.delete(f"{PODS}/{self.name}")

    def claims(self) -> list[Json]:
        """The claims that were made for it."""
        return [
            {"kind": "ResourceClaim", **claim}
            for claim in self._stage.client.get(CLAIMS).items
            if self.name in [owner["name"] for owner in claim["metadata"].get("ownerReferences", [])]
        ]

    def claim(self) -> Json:
        """Its claim, once it is there."""
        wait_until(lambda: bool(self.claims()), f"a claim for pod {self.name}; {self.refusals()}")
        (claim,) = self.claims()
        return claim

    def refusals(self) -> list[str]:
        """Why no claim could be made for it, as its events say."""
        events = self._stage.client.get(
            path("v1", "events", namespace=NAMESPACE), fieldSelector=f"involvedObject.name={self.name}"
        )
        return [event["message"] for event in events.items if event["reason"] == "FailedResourceClaimCreation"]

    def refusal(self) -> str:
        """Why its claim is refused, once somebody has tried to make it."""
        wait_until(lambda: bool(self.refusals()), f"the claim of pod {self.name} refused; {self.claims()}")
        assert self.claims() == []
        return self.refusals()[0]
