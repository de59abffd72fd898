"""The settings of `evict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from webhook.api.field import FieldError, invalid, not_supported
from webhook.api.names import WORKER
from webhook.config.flags import (
    ENVIRONMENT_PREFIX,
    ConfigError,
    DaemonCommandLine,
    Flag,
    daemon_command_line,
    flag_path,
    value_of,
)
from webhook.config.shared import (
    LOG_FORMAT,
    POLICY,
    PROBES,
    VERBOSE,
    ControllerSettings,
    check_lease,
    check_policy,
    controller_flags,
    controller_values,
)
from webhook.config.texts import as_count, as_interval, as_switch
from webhook.eviction.dependencies import WorkerSettings
from webhook.eviction.modes import InTree, Mode

_EVICT_FLAGS: Final = (
    Flag(
        "mode",
        "observe: plan and report; delegated: act for rules with /evict; replacement: for every NoExecute taint",
        Mode,
        Mode.OBSERVE.value,
        "MODE",
    ),
    Flag(
        "in-tree",
        "active or absent: whether the in-tree eviction controller runs; default: detected",
        InTree,
        None,
        "WHICH",
    ),
    Flag(
        "delete-expired",
        "delete rules past their /expires-at instead of setting their effect to None",
        as_switch,
        "false",
    ),
    *controller_flags(WORKER, "100", "200"),
    Flag("concurrent-evictions", "eviction requests in flight at the same time", as_count, "32", "N"),
    *POLICY,
    Flag(
        "audit-interval",
        "how often stored templates and claims are checked against the policy, for metrics; 0 for never",
        as_interval,
        "10m",
        "T",
    ),
    *PROBES,
    LOG_FORMAT,
    VERBOSE,
)
_EVICT_TEXT: Final = "Empties tainted devices: evicts the pods that use them, within limits on rate and number."
_EVICT_END: Final = (
    f"Each flag can also be set in the environment, such as {ENVIRONMENT_PREFIX}MODE for --mode. On SIGTERM it"
    " starts no further evictions, finishes those in flight, writes conditions and releases the lease."
)
_EXAMPLES: Final = (
    "device-taint-webhook evict --mode observe --kubeconfig kubeconfig.yaml --log-format text",
    "device-taint-webhook evict --mode delegated --leader-elect",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictSettings(ControllerSettings):
    """The configuration of an `evict` process."""

    worker: WorkerSettings
    audit_interval: timedelta | None
    """None: never."""


def command_line(program: str) -> DaemonCommandLine:
    """The flags of `evict`."""
    parser = daemon_command_line(f"{program} evict", _EVICT_TEXT, _EVICT_END, _EVICT_FLAGS, _EXAMPLES)
    parser.values["in-tree"] = (InTree.ACTIVE.value, InTree.ABSENT.value)  # the third is only the default
    return parser


def parse_evict(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> EvictSettings:
    """The settings of `evict`. Raises ConfigError with every fault; `--help` prints and raises SystemExit."""
    given = vars(command_line(program).parse_args(arguments))
    errors: list[FieldError] = []
    values = {flag.name: value_of(flag, given[flag.name], environment, errors) for flag in _EVICT_FLAGS}
    _check(values, errors)
    if errors:
        raise ConfigError(errors)
    return EvictSettings(
        worker=WorkerSettings(
            mode=values["mode"],
            in_tree=values["in-tree"],
            delete_expired=values["delete-expired"],
            workers=values["concurrent-evictions"],
        ),
        audit_interval=values["audit-interval"],
        **controller_values(values, environment, _EVICT_FLAGS, WORKER),
    )


def _check(values: Mapping[str, Any], errors: list[FieldError]) -> None:
    """Adds what is wrong with flags that do not fit together."""
    check_policy(values, errors)
    if values["in-tree"] is InTree.UNKNOWN:
        errors.append(not_supported(flag_path("--in-tree"), InTree.UNKNOWN.value, [InTree.ACTIVE, InTree.ABSENT]))
    if values["mode"] is Mode.REPLACEMENT and values["in-tree"] is InTree.ACTIVE:
        errors.append(
            invalid(flag_path("--mode"), Mode.REPLACEMENT.value, "may not be given together with --in-tree=active")
        )
    check_lease(values, errors)
