"""Patches where the webhook judges them: the kind, the shipped access, and the webhook that the API server calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import yaml

from tests.apiserver.guard.replicas import wait_synced
from tests.apiserver.manifests.installing import MANIFESTS, write_registrations
from tests.apiserver.patches.values import COLLECTION, DEFINITION
from tests.apiserver.policy.stage import Stage
from tests.controlplane.client import Reply, path
from tests.controlplane.processes import wait_until
from tests.controlplane.registration import registered
from webhook.api.rules import CONFIRM_IMPACT

CONTROLLER: Final = "system:serviceaccount:device-taint-webhook:device-taint-patch"
"""The account of the patch controller."""
_TEXT: Final = re.compile(rf'{re.escape(CONFIRM_IMPACT)} to "(v1 [^"]+)"')
_RBAC: Final = "rbac.authorization.k8s.io"


def install_patches(stage: Stage, kind: str, *names: str) -> None:
    """The kind, and the webhook's access to it. These users or groups may write patches: the guard is to judge them."""
    definition = yaml.safe_load((MANIFESTS / DEFINITION).read_text())
    _ = stage.client.create(path("apiextensions.k8s.io/v1", "customresourcedefinitions"), definition).object
    done = stage.plane.kubectl("apply", "-f", MANIFESTS / "components/patches/access.yaml")
    assert done.code == 0, done
    wait_until(lambda: stage.client.get(COLLECTION).ok, "patches are served")
    rules = [{"apiGroups": ["devicetaint.io"], "resources": ["*"], "verbs": ["*"]}]
    stage.create(f"{_RBAC}/v1", "ClusterRole", "patchers", rules=rules)
    stage.create(
        f"{_RBAC}/v1",
        "ClusterRoleBinding",
        "patchers",
        roleRef={"apiGroup": _RBAC, "kind": "ClusterRole", "name": "patchers"},
        subjects=[{"apiGroup": _RBAC, "kind": kind, "name": name} for name in names],
    )


@contextmanager
def judging(stage: Stage) -> Iterator[None]:
    """The API server calls a webhook that has read everything, as component `patches` registers it."""
    folder = stage.plane.folder / "patch-registrations"
    folder.mkdir(exist_ok=True)
    file = write_registrations(stage.plane.assets, "patches", folder)
    with stage.new_webhook(f"--patch-account={CONTROLLER}") as webhook:
        stage.webhook = webhook
        wait_synced(webhook)
        wait_until(lambda: "resourceslicepatches" in webhook.metrics(), "patches are followed")
        with registered(stage.plane, folder, webhook.base_url, webhook.ca_pem, files=[file]):
            yield


def text_in(reply: Reply) -> str:
    """The one confirmation in an answer."""
    (text,) = set(_TEXT.findall(reply.message))
    return str(text)
