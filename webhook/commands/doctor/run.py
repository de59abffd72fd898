"""One run of `doctor`: the checks, and how they are printed."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Final

from webhook.commands.doctor.checks import Status, exit_code, worst
from webhook.commands.shared.flags import (
    credentials_of,
    use_color,
)
from webhook.commands.shared.main import reading_cluster
from webhook.commands.shared.output import write
from webhook.config.namespace import policy_config_map
from webhook.files.render import visible
from webhook.files.structured import json_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from webhook.cluster.client.credentials import Credentials
    from webhook.commands.doctor.checks import Check
    from webhook.config.command_line import CommandLine

_COLORS: Final = {Status.OK: "\x1b[32m", Status.WARN: "\x1b[1;33m", Status.FAIL: "\x1b[1;31m"}
_PLAIN: Final = "\x1b[0m"


def run(options: argparse.Namespace, _: CommandLine) -> int:
    """Prints a line for each check. Returns 0 if all pass, 1 if one warns or fails, 2 for wrong usage or no cluster."""
    with reading_cluster():
        checks = asyncio.run(_run_checks(credentials_of(options), options))
    code = exit_code(checks, allow_warnings=options.allow_warnings)
    if options.output == "text":
        return write(as_text(checks, color=use_color(options.color)), code)
    return write(as_json(checks), code)


async def _run_checks(credentials: Credentials, options: argparse.Namespace) -> list[Check]:
    """Runs all checks; with --wait, after probes are answered or the time is up."""
    from webhook.commands.doctor.probe_cluster import Doctor, DoctorOptions, utc_now, wait_answered  # noqa: PLC0415 -- see above

    namespace = options.namespace
    policy = options.policy_configmap or policy_config_map(namespace)
    doctor_options = DoctorOptions(namespace, options.probe_namespace, policy, options.canary)
    if options.wait is not None:
        doctor = Doctor(credentials, doctor_options, utc_now)
        tell = sys.stderr.write
        await wait_answered(doctor, options.wait, time.monotonic, lambda text: tell(f"{visible(text)}\n"))
    return await Doctor(credentials, doctor_options, utc_now).examine()


def as_text(checks: Sequence[Check], *, color: bool = False) -> str:
    """`ok    probe rules...: message`, with the fix on the next line."""
    lines = []
    for check in checks:
        status = f"{check.status:<4}"
        if color:
            status = f"{_COLORS[check.status]}{status}{_PLAIN}"
        lines.append(f"{status}  {check.name}: {visible(check.message)}")
        if check.advice:
            lines.append(f"      {visible(check.advice)}")
    return "\n".join(lines) + "\n"


def as_json(checks: Sequence[Check]) -> str:
    """The same for programs; while `version` is 1, fields may be added but not removed."""
    values = [{**check._asdict(), "status": check.status.value} for check in checks]
    return json_text({"version": 1, "status": worst(checks).value, "checks": values})
