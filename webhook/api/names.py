"""The names of this program and of its objects in the shipped manifests. Imports nothing, so that `--help` is quick."""

from __future__ import annotations

from typing import Final

PROGRAM: Final = "device-taint-webhook"
"""The program; also the Deployment of `serve`, its Service and service account, and both webhook configurations."""
WORKER: Final = f"{PROGRAM}-evict"
"""The Deployment of `evict`, its service account and its lease."""
PATCHER: Final = f"{PROGRAM}-patch"
"""The Deployment of `patch`, its lease, and the field manager of the rules that it writes."""
PATCH_ACCOUNT: Final = "device-taint-patch"
"""The service account of `patch`: the webhook knows the controller by it."""
OWN_NAMESPACE: Final = PROGRAM
"""Where everything is installed, unless an overlay says otherwise."""
EXEMPT_NAMESPACES: Final = ("kube-system",)
"""Namespaces about whose claims and templates the shipped registration asks nothing, besides the webhook's own."""
POLICY_NAME: Final = f"{PROGRAM}-policy"
"""The ConfigMap with the policy."""
CA_NAME: Final = f"{PROGRAM}-ca"
"""The Secret with the CA of self-managed certificates."""
TREE: Final = "https://repository.example.com/device-taint-webhook/blob/main/"
"""The files of this release, to which reports link. The release puts its own address there."""
