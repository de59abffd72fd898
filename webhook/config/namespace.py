"""The namespace that this program's own objects are in, unless a flag names another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from webhook.api.meta import NamespacedName
from webhook.api.names import OWN_NAMESPACE, POLICY_NAME

VARIABLES: Final = ("DEVICE_TAINT_WEBHOOK_NAMESPACE", "POD_NAMESPACE")
"""In this order. The manifests set the second by the downward API."""
ACCOUNT_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Mounted with a service account's token (kubernetes.io/docs/tasks/run-application/access-api-from-pod)."""


def own_namespace(environment: Mapping[str, str] | None = None, account_file: Path = ACCOUNT_FILE) -> str:
    """The first that is set: the two VARIABLES, the service account's file, the default of the shipped manifests.

    Never raises: a file that cannot be read counts as empty.
    """
    variables = os.environ if environment is None else environment
    for name in VARIABLES:
        if variables.get(name):
            return variables[name]
    try:
        mounted = account_file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        mounted = ""
    return mounted or OWN_NAMESPACE


def policy_config_map(namespace: str) -> NamespacedName:
    """Where an installation in the namespace has its policy."""
    return NamespacedName(namespace, POLICY_NAME)
