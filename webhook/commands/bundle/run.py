"""One run of `bundle`."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.api.meta import format_time
from webhook.api.names import PATCHER, PROGRAM, WORKER
from webhook.cluster.client.errors import ClusterError
from webhook.cluster.client.rest import Cluster
from webhook.commands.bundle.archive import Archive
from webhook.commands.bundle.from_cluster import BundleCollection, Selection
from webhook.commands.bundle.redaction import Pseudonyms, clean_text
from webhook.commands.doctor.probe_cluster import Doctor, DoctorOptions, utc_now
from webhook.commands.doctor.run import as_json
from webhook.commands.shared.flags import credentials_of
from webhook.commands.shared.main import USAGE, reading_cluster
from webhook.commands.shared.output import write
from webhook.config.namespace import policy_config_map

if TYPE_CHECKING:
    import argparse

    from webhook.cluster.client.credentials import Credentials
    from webhook.config.command_line import CommandLine

_PRIVATE: Final = 0o600
"""The archive has no secrets, and is still for its owner to give away."""
_SHORTEST_SECRET: Final = 6


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Writes the archive. Returns 0, 1 if something could not be read, 2 for wrong usage or no cluster."""
    now = datetime.now(UTC)  # noqa: TID251 -- the shell asks
    path = Path(options.output_file or f"{PROGRAM}-bundle-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    if path.exists():
        parser.error(f"{path} is there already")
    archive = Archive()
    with reading_cluster():
        names = asyncio.run(_collect(credentials_of(options), archive, options))
    pseudonyms = Pseudonyms(names, (options.namespace, PROGRAM, WORKER, PATCHER)) if options.redact else None
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(archive.packed(pseudonyms))
    except OSError as error:
        sys.stderr.write(f"{parser.prog}: {path}: {error.strerror or error}\n")
        return USAGE
    missing = len(archive.notes)
    said = f"{path}: {len(archive.files)} files, as of {format_time(now)}"
    said += f"; {missing} could not be read or were cut: see errors.txt in it" if missing else ""
    return write(f"{said}\n", int(bool(missing)))


async def _collect(credentials: Credentials, archive: Archive, options: argparse.Namespace) -> set[tuple[str, str]]:
    """Fills the archive; returns kinds and names that were met. Raises ClusterError if there is no cluster."""
    known = await _own_secrets(credentials)
    policy = options.policy_configmap or policy_config_map(options.namespace)
    async with Cluster(credentials, user_agent=f"{PROGRAM}-bundle") as cluster:
        await cluster.send("GET", "/version")  # without an API server there is nothing to collect
        collection = BundleCollection(cluster, archive, Selection(options.namespace, policy, options.log_lines), known)
        await collection.collect()
    if not options.no_doctor:
        doctor = Doctor(credentials, DoctorOptions(options.namespace, "default", policy, canary=False), utc_now)
        try:
            archive.add("doctor.json", clean_text(as_json(await doctor.examine()), known))
        except ClusterError as error:
            archive.notes.append(clean_text(f"doctor: {error}", known))
    return collection.names


async def _own_secrets(credentials: Credentials) -> tuple[str, ...]:
    """The caller's own token, which must not be in the archive whatever echoes it."""
    access = await credentials.load()
    words = (access.authorization or "").split()
    return tuple(word for word in words if len(word) >= _SHORTEST_SECRET and word not in {"Bearer", "Basic"})
