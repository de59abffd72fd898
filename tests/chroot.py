"""A program below another root, as in a container: in a mount namespace that ends with it. Needs root."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Mount(NamedTuple):
    """What the program sees at a path below its root."""

    source: Path | None
    """A folder or file of this machine; None for an empty folder in memory."""
    target: str
    """Absolute; it is made where it does not exist."""
    read_only: bool = False
    recursive: bool = False
    """With what is mounted below the source."""


DEVICES = Mount(Path("/dev"), "/dev", recursive=True)
TEMPORARY = Mount(None, "/tmp")


def chrooted(
    root: Path,
    *command: str | Path,
    environment: Mapping[str, str],
    mounts: Iterable[Mount] = (),
    user: str = "",
    folder: str = "/",
    read_only: bool = True,
) -> list[str]:
    """What runs a command with `root` as its root, /proc mounted, and no other environment.

    `user` is UID:GID, else root; `read_only` is about the root, not about mounts.
    """
    here = shlex.quote(str(root))
    steps = [f"mount --bind {here} {here}"]
    for mount in mounts:
        target = shlex.quote(f"{root}{mount.target}")
        if mount.source is None:
            steps += [f"mkdir -p {target}", f"mount -t tmpfs tmpfs {target}"]
            continue
        steps += [
            f"mkdir -p {target}" if mount.source.is_dir() else f"touch {target}",
            f"mount {'--rbind' if mount.recursive else '--bind'} {shlex.quote(str(mount.source))} {target}",
        ]
        if mount.read_only:
            steps.append(f"mount -o remount,bind,ro {target}")
    if read_only:
        steps.append(f"mount -o remount,bind,ro {here}")
    steps.append(f"mount -t proc proc {here}/proc")
    named = [f"{name}={value}" for name, value in environment.items()]
    who = [f"--userspec={user}"] if user else []
    inner = ["chroot", *who, str(root), "/usr/bin/env", "-i", f"--chdir={folder}", *named, *map(str, command)]
    return ["/usr/bin/env", "unshare", "--mount", "sh", "-c", " && ".join([*steps, f"exec {shlex.join(inner)}"])]
