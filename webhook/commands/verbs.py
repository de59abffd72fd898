"""The verbs: what each does, and where its command line and its `run` are. Imports none of them unless asked."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from webhook.api.names import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.config.command_line import CommandLine

GROUPS: Final = {
    "Files": {
        "check": "review manifests in files as the webhook would",
        "explain": "explain why a policy allows or refuses, what taints do to an object, or a warning code",
        "preview": "show which pods a taint would evict, when and why",
        "test": "run test suites of policies",
        "diff": "show which objects two policies judge differently",
        "export-vap": "print the part of a policy that Kubernetes can enforce by itself",
        "schema": "print the JSON Schema of policies or of test suites, for editors",
        "completion": "print a shell completion script for these verbs and their flags",
    },
    "Devices": {
        "list": "list tainted devices with their taints, sources and pods",
        "status": "show what is being evicted, and what each pod waits for",
        "taint": "taint devices with DeviceTaintRules, as kubectl taint does nodes",
        "untaint": "remove the DeviceTaintRules that people have set on devices",
        "drain": "taint the devices of a node or pool, have their pods evicted gently, and watch",
    },
    "Cluster": {
        "audit": "list stored claims and templates that the policy would refuse today",
        "doctor": "check whether an installation is healthy",
        "unregister": "delete the webhook configurations, before the webhook is uninstalled",
    },
    "Daemons": {
        "serve": "answer admission reviews over HTTPS",
        "evict": "evict pods from tainted devices, gently",
        "patch": "turn ResourceSlicePatches into DeviceTaintRules, and keep them up to date",
    },
}
"""As the help shows them, by what they work with."""
VERBS: Final = {verb: what for verbs in GROUPS.values() for verb, what in verbs.items()}
CLUSTER_FLAGS: Final = {
    "kubeconfig": "--kubeconfig",
    "context": "--context",
    "as_user": "--as",
    "as_uid": "--as-uid",
    "as_group": "--as-group",
}
"""kubectl's flags that say which cluster, and as which user, by where argparse puts their values."""
ANYWHERE: Final = (*sorted(CLUSTER_FLAGS.values()), "--namespace", "-n")
"""Flags that kubectl also accepts before the verb."""
DAEMONS: Final = {"evict": "workers", "patch": "workers", "serve": "serve"}
"""Verbs that run until they are stopped, with the module of `webhook.config` that has their flags."""
_FOLDERS: Final = frozenset({"diff", "doctor", "explain", "preview", "status", "test"})
"""Verbs of several modules, whose `command` is run."""


def verb_first(words: Sequence[str]) -> list[str]:
    """Return the words with the flags before the verb moved behind it; as they are if no verb follows these."""
    at = 0
    while at < len(words) and words[at].partition("=")[0] in ANYWHERE:
        at += 1 if "=" in words[at] else 2
    return [*words[at : at + 1], *words[:at], *words[at + 1 :]] if at < len(words) else list(words)


def module_of(verb: str) -> str:
    """Return the module that runs a verb."""
    if verb in DAEMONS:
        return f"webhook.daemons.{verb}"
    module = f"webhook.commands.{verb.replace('-', '_')}"
    return f"{module}.command" if verb in _FOLDERS else module


def command_line_of(verb: str, program: str = PROGRAM) -> CommandLine:
    """Return the command line of a verb. A daemon's has the name `program`; others know how they were called."""
    if verb in DAEMONS:
        module = importlib.import_module(f"webhook.config.{DAEMONS[verb]}")
        made: CommandLine = getattr(module, f"{verb}_command_line")(program)
    else:
        made = importlib.import_module(module_of(verb)).command_line()
    return made
