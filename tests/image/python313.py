"""Unit tests and those of the wire on Debian 13's Python 3.13, without the generated clients that the image leaves out.

As a command:  python -m tests.image.python313 [ARGUMENTS OF PYTEST]
Packages lie in a copy of the image's base, in its cache, named by all that decides them; the tree is mounted there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from release.bases import CannotBuildError, NotHereError, base, cache_root, native, need, need_mounts, run
from release.contents import leave_out
from tests.chroot import DEVICES, TEMPORARY, Mount, chrooted

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[2]
VERSION: Final = "3.13"
_TREE: Final = "mnt"
_VENV: Final = "opt/venv"
PYTHON: Final = f"/{_VENV}/bin/python"
"""Below the root of `packages`."""
_INPUTS: Final = ("requirements-dev.lock", "pyproject.toml", "release/contents.py")
_HOSTS: Final = "127.0.0.1 localhost\n::1 localhost\n"
# The way to the package index: how this machine resolves names, and the CA of a proxy that it may lead through.
_OF_THIS_MACHINE: Final = ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt", "etc/pip.conf")
_INSTALL: Final = f"""
    export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
    python3 -m venv /{_VENV}
    /{_VENV}/bin/pip install --quiet --require-hashes -r /{_TREE}/requirements-dev.lock
    /{_VENV}/bin/pip install --quiet --no-deps --no-build-isolation -e /{_TREE}
"""
_FOLDERS: Final = ("tests/unit", "tests/https")
_TESTS: Final = ("-q", "-n", "2", "-p", "no:cacheprovider", "-m", "not apiserver and not slow", *_FOLDERS)


def packages() -> Path:
    """The root file system with every locked package, made now (a minute) if it is not in the cache.

    Raises: NotHereError if this machine lacks what that needs, CannotBuildError if it failed.
    """
    need("unshare", "chroot", "mount")
    need_mounts()
    model = base(native())
    inputs = hashlib.sha256(model.name.encode() + _INSTALL.encode())
    for name in _INPUTS:
        inputs.update((ROOT / name).read_bytes())
    folder = cache_root() / "bases" / f"python{VERSION}-{inputs.hexdigest()[:16]}"
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            print(f"installing packages for Python 3.13, once, in {folder}", file=sys.stderr, flush=True)
            _install(model, folder)
    return folder


def _install(model: Path, folder: Path) -> None:
    staging = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
    try:
        run("cp", "--archive", "--reflink=auto", f"{model}/.", str(staging))  # knows what to do with devices
        staging.chmod(0o755)
        (staging / "etc/hosts").write_text(_HOSTS)
        network = [Mount(Path("/", name), f"/{name}", read_only=True) for name in _OF_THIS_MACHINE]
        mounts = [each for each in network if each.source is not None and each.source.exists()]
        code = _inside(staging, mounts, ["/bin/sh", "-e", "-c", _INSTALL], {})
        if code != 0:
            raise CannotBuildError(f"packages cannot be installed for Python 3.13: pip ended with {code}")
        (site_packages,) = (staging / _VENV).glob("lib/python3*/site-packages")
        leave_out(site_packages)
        staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _inside(root: Path, mounts: Sequence[Mount], command: Sequence[str], environment: dict[str, str]) -> int:
    """Runs a command below a root, with the tree at /mnt. Gives its exit code."""
    path = f"/{_VENV}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    script = chrooted(
        root,
        *command,
        environment={"PATH": path, **environment},
        mounts=[Mount(ROOT, f"/{_TREE}"), DEVICES, TEMPORARY, *mounts],
        folder=f"/{_TREE}",
        read_only=False,
    )
    return subprocess.run(script, check=False).returncode


def main(arguments: list[str]) -> int:
    """Runs the tests, and gives pytest's exit code. 0 with a reason if this machine lacks what they need."""
    try:
        root = packages()
    except NotHereError as error:
        print(f"skipped: tests on Python 3.13: {error}", file=sys.stderr)
        return 0
    print("==> unit tests and tests/https on Debian 13's Python 3.13", file=sys.stderr, flush=True)
    # Beside the tree's own: what Python 3.11 compiled is of no use, and the tree may be read-only.
    environment = {
        "HYPOTHESIS_PROFILE": os.environ.get("HYPOTHESIS_PROFILE", ""),
        "PYTHONPYCACHEPREFIX": "/tmp/compiled",
    }
    return _inside(root, [], [PYTHON, "-m", "pytest", *(arguments or _TESTS)], environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
