"""The settings of `evict` and `patch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from webhook.api.meta import NamespacedName
from webhook.api.names import EXEMPT_NAMESPACES, PATCHER, WORKER
from webhook.cluster.settings import ClusterSettings
from webhook.config.settings import (
    CLUSTER,
    ENVIRONMENT_PREFIX,
    LOG_FORMAT,
    POLICY,
    PROBES,
    DaemonCommandLine,
    DaemonSettings,
    Flag,
    Values,
    switch,
)
from webhook.config.texts import as_count, as_interval, as_namespaced, as_namespaces, as_rate
from webhook.eviction.modes import InTree, Mode
from webhook.eviction.ports import WorkerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings(DaemonSettings):
    """Settings that `evict` and `patch` have in common."""

    cluster: ClusterSettings
    requests_per_second: float
    """To the API server; zero or less is no limit."""
    request_burst: int
    lease: NamespacedName | None
    """None: this is the only process, and it leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictSettings(ControllerSettings):
    """The configuration of an `evict` process."""

    worker: WorkerSettings
    audit_interval: timedelta | None
    """None: never."""
    exempt_namespaces: tuple[str, ...]
    """What the audit passes over, our own namespace among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchSettings(ControllerSettings):
    """The configuration of a `patch` process."""

    rules_per_patch: int
    slice_attributes: bool = False


def _controller(lease: str, per_second: str, burst: str) -> tuple[Flag, ...]:
    """Return flags with their defaults: the lease, the cluster, and how fast that is asked."""
    return (
        switch("leader-elect", "act only while holding the lease"),
        Flag("leader-elect-lease", f"the lease (default {lease} in --namespace)", as_namespaced, "NS/NAME"),
        *CLUSTER,
        Flag("kube-api-qps", "requests per second to the API server; 0 for no limit", as_rate, "N", per_second),
        Flag("kube-api-burst", "burst size for requests to the API server", as_count, "N", burst),
    )


_VERBOSE: Final = switch("verbose", "log at level debug", "-v")
_EVICT: Final = (
    Flag(
        "mode",
        "observe: plan and report; delegated: act for rules with /evict; replacement: for every NoExecute taint",
        Mode,
        "MODE",
        Mode.OBSERVE,
    ),
    Flag(
        "in-tree",
        "active or absent: whether the in-tree eviction controller runs; default: detected",
        InTree,
        "WHICH",
        but=InTree.UNKNOWN,
    ),
    switch("delete-expired", "delete rules past their /expires-at instead of setting their effect to None"),
    *_controller(WORKER, "100", "200"),
    Flag("concurrent-evictions", "eviction requests in flight at the same time", as_count, "N", "32"),
    *POLICY,
    Flag(
        "audit-interval",
        "how often stored templates and claims are checked against the policy, for metrics; 0 for never",
        as_interval,
        "T",
        "10m",
    ),
    Flag(
        "exempt-namespaces",
        "namespaces whose claims and templates the webhook is not asked about, besides its own",
        as_namespaces,
        "NS,...",
        ",".join(EXEMPT_NAMESPACES),
    ),
    *PROBES,
    LOG_FORMAT,
    _VERBOSE,
)
_PATCH: Final = (
    Flag(
        "rules-per-patch",
        "DeviceTaintRules that one patch, or one rule with /scope: hardware, may have; with more it gets none",
        as_count,
        "N",
        "100",  # as RULES_MAX, with which --help would load the inventory
    ),
    switch(
        "slice-attributes",
        "have slices written again where attributes and capacity of patches are missing: docs/patches.md",
    ),
    *_controller(PATCHER, "50", "100"),
    *POLICY,
    *PROBES,
    LOG_FORMAT,
    _VERBOSE,
)


def evict_command_line(program: str) -> DaemonCommandLine:
    """Return the flags of `evict`."""
    return DaemonCommandLine(
        f"{program} evict",
        "Empties tainted devices: evicts the pods that use them, within limits on rate and number.",
        f"Each flag can also be set in the environment, such as {ENVIRONMENT_PREFIX}MODE for --mode. On SIGTERM it"
        " starts no further evictions, finishes those in flight, writes conditions and releases the lease.",
        (
            "device-taint-webhook evict --mode observe --kubeconfig kubeconfig.yaml --log-format text",
            "device-taint-webhook evict --mode delegated --leader-elect",
        ),
        _EVICT,
    )


def patch_command_line(program: str) -> DaemonCommandLine:
    """Return the flags of `patch`."""
    return DaemonCommandLine(
        f"{program} patch",
        "Turns ResourceSlicePatches into DeviceTaintRules, adds rules for the siblings of rules with /scope: hardware,"
        " and carries out the reactions of the policy.",
        f"Each flag can also be set in the environment, such as {ENVIRONMENT_PREFIX}RULES_PER_PATCH for"
        " --rules-per-patch. On SIGTERM it writes nothing further and releases the lease; the rules stay.",
        (
            "device-taint-webhook patch --kubeconfig kubeconfig.yaml --log-format text",
            "device-taint-webhook patch --leader-elect --rules-per-patch 200",
        ),
        _PATCH,
    )


def parse_evict(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> EvictSettings:
    """Return the settings of `evict`. Raises ConfigError with every fault; `--help` prints and raises SystemExit."""
    line = evict_command_line(program)
    values = line.read(arguments, environment)
    values.exclude("policy-configmap", "policy-file")
    if values["mode"] is Mode.REPLACEMENT and values["in-tree"] is InTree.ACTIVE:
        values.refuse("--mode", Mode.REPLACEMENT.value, "may not be given together with --in-tree=active")
    values.need("leader-elect", "leader-elect-lease")
    return EvictSettings(
        **_common(line, values, WORKER),
        worker=WorkerSettings(
            mode=values["mode"],
            in_tree=values["in-tree"],
            delete_expired=values["delete-expired"],
            workers=values["concurrent-evictions"],
        ),
        audit_interval=values["audit-interval"],
        exempt_namespaces=(values.namespace, *values["exempt-namespaces"]),
    )


def parse_patch(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> PatchSettings:
    """Return the settings of `patch`. Raises ConfigError with every fault; `--help` prints and raises SystemExit."""
    line = patch_command_line(program)
    values = line.read(arguments, environment)
    values.need("leader-elect", "leader-elect-lease")
    values.exclude("policy-configmap", "policy-file")
    return PatchSettings(
        **_common(line, values, PATCHER),
        rules_per_patch=values["rules-per-patch"],
        slice_attributes=values["slice-attributes"],
    )


def _common(line: DaemonCommandLine, values: Values, lease: str) -> dict[str, Any]:
    """Return the fields of ControllerSettings; `lease` is the usual name of the lease."""
    found = values["leader-elect-lease"] or NamespacedName(values.namespace, lease)
    return {
        **line.common(values),
        "requests_per_second": values["kube-api-qps"],
        "request_burst": values["kube-api-burst"],
        "lease": found if values["leader-elect"] else None,
    }
