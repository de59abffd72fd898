"""Files that the flags of a workload name, looked at before it starts.

While a workload runs, a file that becomes unusable leaves the last good one in use. At the start there is none: going
on would mean running without the requested policy, or waiting for a directory that does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.api.field import Path
from webhook.daemons.wiring import read_policy
from webhook.files.regular import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path as FilePath

    from webhook.config.evict import EvictSettings
    from webhook.config.patch import PatchSettings
    from webhook.config.serve import ServeSettings

_SHOWN: Final = 16


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
