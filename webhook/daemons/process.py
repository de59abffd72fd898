"""What each workload does at its start: it reads its flags, looks at the files that they name, and runs its stages.

While a workload runs, a file that becomes unusable leaves the last good one in use. At the start there is none: going
on would mean running without the requested policy, or waiting for a directory that does not exist.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Final, TypeVar

from webhook import runtime
from webhook.api.field import Path
from webhook.cluster.client.errors import ClusterError, NoCredentials
from webhook.config.command_line import program
from webhook.config.flags import ConfigError
from webhook.daemons.wiring import read_policy
from webhook.files import text_of
from webhook.runtime import Stage, Stages
from webhook.telemetry import logs

if TYPE_CHECKING:
    from webhook.cluster.client.rest import Cluster
    from webhook.cluster.leader import Leadership
    from webhook.config.evict import EvictSettings
    from webhook.config.patch import PatchSettings
    from webhook.config.serve import ServeSettings


_SHOWN: Final = 16
USAGE: Final = 2
"""The exit code for unusable flags and files."""
S = TypeVar("S", "ServeSettings", "EvictSettings", "PatchSettings")


def read_settings(
    verb: str,
    arguments: Sequence[str],
    parse: Callable[[str, Sequence[str], Mapping[str, str]], S],
    faults_of: Callable[[S], list[str]],
) -> S | None:
    """Reads the flags of a workload and sets up its log. Returns None after it has printed what is wrong with them."""
    try:
        settings = parse(program(), arguments, os.environ)
        faults = faults_of(settings)
    except ConfigError as error:
        faults = str(error).splitlines()
    if faults:
        sys.stderr.write("".join(f"{program(verb)}: {line}\n" for line in faults))
        return None
    logs.configure(settings.log_format, verbose=settings.verbose)
    logs.warn_of_variables(settings.unknown_variables)
    return settings


def run_stages(
    build: Callable[[], Stages],
    log: logging.Logger,
    *,
    usage: tuple[type[BaseException], ...] = (),
    known: tuple[type[BaseException], ...] = (),
    error_text: Callable[[BaseException], str] = str,
) -> int:
    """Runs a workload until a signal. Returns 2 for addresses that cannot be bound, no cluster, and errors of `usage`.

    These errors, those of the API server and those of `known` are logged without a traceback.
    """
    usage = (OSError, NoCredentials, *usage)
    try:
        runtime.run(build())
    except BaseExceptionGroup as group:
        causes = runtime.causes(group)
        for cause in causes:
            trace = None if isinstance(cause, (*usage, ClusterError, *known)) else cause
            log.error("stopped by an error", extra={"error": error_text(cause)}, exc_info=trace)  # noqa: TRY400 -- an address in use needs no traceback
        return USAGE if all(isinstance(cause, usage) for cause in causes) else 1
    return 0


def lease_stages(cluster: Cluster, leadership: Leadership) -> list[Stage]:
    """The stages that take the lease and keep it; the ones after them start once this process leads.

    The lease has a client of its own: it is renewed even while other requests are throttled.
    """

    async def acquired() -> None:
        await leadership.acquired.wait()

    return [
        Stage(name="lease", start=cluster.open, stop=cluster.close),
        Stage(name="leader", work=leadership.run, start=acquired, stop=leadership.release),
    ]


def policy_faults_of(settings: ServeSettings | EvictSettings | PatchSettings) -> list[str]:
    """Return one line for each fault of the policy file, with the flag and the file."""
    path = settings.policy_file
    return [] if path is None else [f"--policy-file: {path}: {why}" for why in _policy_faults(path)]


def folder_faults(certificate_file: FilePath) -> list[str]:
    """Faults of the certificates' directory. Its files may still be missing: they may be written later."""
    folder = certificate_file.parent
    try:
        if folder.is_dir():
            return []
        why = "not a directory" if folder.exists() else "no such directory"
    except OSError as error:
        why = error.strerror or str(error)
    return [f"--cert-dir or --tls-cert-file: {folder}: {why}"]


def _policy_faults(path: FilePath) -> Iterator[str]:
    try:
        text = text_of(path)
    except OSError as error:
        yield f"cannot be read: {error.strerror or error}"
    except ValueError:
        yield "not UTF-8"
    else:
        errors = read_policy(text, Path.root()).errors
        yield from map(str, errors[:_SHOWN])
        if len(errors) > _SHOWN:
            yield f"and {len(errors) - _SHOWN} more; `check --policy {path}` shows all"
