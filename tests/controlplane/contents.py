"""What an image holds, run as a process where there is no container runtime."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from release.images import Builder
from tests.chroot import Mount, chrooted


class ImageContents:
    """The files of an image below a folder, and the program that its containers run."""

    def __init__(self, root: Path, entrypoint: Iterable[str], environment: Iterable[str]) -> None:
        """`environment`: NAME=VALUE, as the image has it."""
        self._root = root
        self._entrypoint = list(entrypoint)
        self._environment = list(environment)

    def command(self, environment: Mapping[str, str], *arguments: str) -> list[str]:
        """What runs the program with the image as its root, read-only.

        It sees this machine's folder of temporary files: that is where its account and volumes are.
        """
        shared = Path(tempfile.gettempdir())
        given = dict(each.split("=", 1) for each in self._environment)
        mounts = [Mount(shared, str(shared))]
        return chrooted(self._root, *self._entrypoint, *arguments, environment={**given, **environment}, mounts=mounts)


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
