"""What an image holds, run as a process where there is no container runtime."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from release.images import Builder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class ImageContents:
    """The files of an image below a folder, and the program that its containers run."""

    def __init__(self, root: Path, entrypoint: Iterable[str], environment: Iterable[str]) -> None:
        """`environment`: NAME=VALUE, as the image has it."""
        self._root = root
        self._entrypoint = list(entrypoint)
        self._environment = list(environment)

    def command(self, environment: Mapping[str, str], *arguments: str) -> list[str]:
        """What runs the program with the image as its root, read-only, in a mount namespace of its own.

        It sees /proc, and this machine's folder of temporary files: that is where its account and volumes are.
        """
        script = """
            mkdir -p "$1$2" && mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" &&
            mount --bind "$2" "$1$2" && mount -t proc proc "$1/proc" &&
            root=$1 && shift 2 && exec chroot "$root" /usr/bin/env -i "$@" """
        given = [*self._environment, *(f"{name}={value}" for name, value in environment.items())]
        where = [str(self._root), tempfile.gettempdir()]
        return ["/usr/bin/env", "unshare", "--mount", "sh", "-c", script, "sh", *where,
                *given, *self._entrypoint, *arguments]  # fmt: skip


@contextlib.contextmanager
def unpacked(archive: Path) -> Iterator[ImageContents]:
    """The files of an image in an OCI archive, while the block lasts.

    Raises: CannotBuildError.
    """
    with tempfile.TemporaryDirectory(prefix="contents-", ignore_cleanup_errors=True) as folder:
        builder = Builder(Path(folder))
        image = builder.buildah("pull", "--quiet", f"oci-archive:{archive}").strip()
        config = json.loads(builder.buildah("inspect", "--type=image", image))["OCIv1"]["config"]
        container = builder.buildah("from", "--pull-never", image).strip()
        root = Path(builder.buildah("mount", container).strip())
        try:
            yield ImageContents(root, config["Entrypoint"], config["Env"])
        finally:
            builder.buildah("umount", "--all")
            builder.buildah("rm", "--all")
            builder.buildah("rmi", "--all", "--force")
