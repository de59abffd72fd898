"""The settings of `patch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.api.field import FieldError, invalid
from webhook.api.names import PATCHER
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
from webhook.config.texts import as_count, as_switch
from webhook.patches.expansion import RULES_MAX

_PATCH_FLAGS: Final = (
    Flag(
        "rules-per-patch",
        "DeviceTaintRules that one patch, or one rule with /scope: hardware, may have; with more it gets none",
        as_count,
        str(RULES_MAX),
        "N",
    ),
    Flag(
        "slice-attributes",
        "have slices written again where attributes and capacity of patches are missing: docs/patches.md",
        as_switch,
        "false",
    ),
    *controller_flags(PATCHER, "50", "100"),
    *POLICY,
    *PROBES,
    LOG_FORMAT,
    VERBOSE,
)
_PATCH_TEXT: Final = (
    "Turns ResourceSlicePatches into DeviceTaintRules, adds rules for the siblings of rules with /scope: hardware, and"
    " carries out the reactions of the policy."
)
_PATCH_END: Final = (
    f"Each flag can also be set in the environment, such as {ENVIRONMENT_PREFIX}RULES_PER_PATCH for --rules-per-patch."
    " On SIGTERM it writes nothing further and releases the lease; the rules stay."
)
_EXAMPLES: Final = (
    "device-taint-webhook patch --kubeconfig kubeconfig.yaml --log-format text",
    "device-taint-webhook patch --leader-elect --rules-per-patch 200",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchSettings(ControllerSettings):
    """The configuration of a `patch` process."""

    rules_per_patch: int
    slice_attributes: bool = False


def command_line(program: str) -> DaemonCommandLine:
    """The flags of `patch`."""
    return daemon_command_line(f"{program} patch", _PATCH_TEXT, _PATCH_END, _PATCH_FLAGS, _EXAMPLES)


def parse_patch(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> PatchSettings:
    """The settings of `patch`. Raises ConfigError with every fault; `--help` prints and raises SystemExit."""
    given = vars(command_line(program).parse_args(arguments))
    errors: list[FieldError] = []
    values = {flag.name: value_of(flag, given[flag.name], environment, errors) for flag in _PATCH_FLAGS}
    check_lease(values, errors)
    if values["rules-per-patch"] == 0:
        errors.append(invalid(flag_path("--rules-per-patch"), "0", "must be at least 1"))
    check_policy(values, errors)
    if errors:
        raise ConfigError(errors)
    return PatchSettings(
        rules_per_patch=values["rules-per-patch"],
        slice_attributes=values["slice-attributes"],
        **controller_values(values, environment, _PATCH_FLAGS, PATCHER),
    )
