"""Debian 13 with its Python 3.13 as a folder, for machines that reach Debian's packages but no registry of images.

Made once by debootstrap, in a cache outside the work tree. For another processor than this machine's the packages are
unpacked and not configured: what their scripts write does not depend on the processor, so it is copied from the
folder for this machine's (ADR 22).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

SUITE: Final = "trixie"
ARCHITECTURES: Final = ("amd64", "arm64")
"""Of the image, named as in images."""
PACKAGES: Final = ("python3-venv", "ca-certificates")
_RECIPE: Final = "2"
"""Counts changes of this module that make another folder of the same packages."""
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_TRIPLETS: Final = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
_NEEDLESS: Final = ("var/cache/apt", "var/lib/apt/lists", "var/log", "tmp")
_OF_THIS_MACHINE: Final = ("etc/hostname", "etc/resolv.conf", "etc/machine-id", "var/cache/ldconfig/aux-cache")
_NOT_COPIED: Final = ("var/lib/dpkg", "etc/ld.so.cache", "lib64", "usr/lib64", "proc", "sys", "dev", "run")


class CannotBuildError(Exception):
    """An image, or what it stands on, was not built; the message says why."""


class NotHereError(CannotBuildError):
    """This machine or this user cannot build images; the message says what would help."""


def native() -> str:
    """This machine's architecture, named as in images.

    Raises: NotHereError on a processor that there is no image for.
    """
    machine = platform.machine()
    if machine not in _MACHINES:
        raise NotHereError(f"there is no image for {machine}")
    return _MACHINES[machine]


def cache_root() -> Path:
    """The folder of all that is made or downloaded once: DEVICE_TAINT_WEBHOOK_CACHE, else the user's cache folder."""
    explicit = os.environ.get("DEVICE_TAINT_WEBHOOK_CACHE") or os.environ.get("XDG_CACHE_HOME")
    base = Path(explicit) if explicit else Path.home() / ".cache"
    return base.expanduser().absolute() / "device-taint-webhook"


def base(architecture: str) -> Path:
    """The folder of a base, made now (half a minute each) if it is not in the cache. Callers only read it.

    DEBIAN_MIRROR, a URL, is where packages come from; else debootstrap's own default.

    Raises: NotHereError if this machine lacks a tool or a right, CannotBuildError if debootstrap failed.
    """
    need("debootstrap", "dpkg-deb", "chroot")
    mirror = os.environ.get("DEBIAN_MIRROR", "")
    recipe = "\0".join((_RECIPE, SUITE, *PACKAGES, mirror))
    name = f"debian-{SUITE}-{architecture}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    folder = cache_root() / "bases" / name
    if folder.is_dir():
        return folder
    model = None if architecture == native() else base(native())
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():  # another process may have made it while this one waited
            print(f"making {name}, once, in {folder.parent}", file=sys.stderr, flush=True)
            _make(architecture, mirror, model, folder)
    return folder


def need(*programs: str) -> None:
    """Raises NotHereError if this user or this machine lacks what building needs."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        raise NotHereError(f"no {', '.join(missing)} (Debian: apt-get install buildah debootstrap)")
    if os.geteuid() != 0:
        raise NotHereError("debootstrap and buildah need root here")


def need_mounts() -> None:
    """Raises NotHereError if this user cannot mount anything, as in a container without privileges."""
    try:
        run("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt")
    except CannotBuildError as error:
        raise NotHereError(f"nothing can be mounted here: {error}") from error


def run(*command: str, timeout_seconds: float = 3600) -> str:
    """What a program printed.

    Raises: CannotBuildError with its output if it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    if done.returncode != 0:
        raise CannotBuildError(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def _make(architecture: str, mirror: str, model: Path | None, folder: Path) -> None:
    staging = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
    staging.chmod(0o755)
    try:
        options = ["--variant=minbase", f"--include={','.join(PACKAGES)}", f"--arch={architecture}"]
        foreign = [] if model is None else ["--foreign"]
        run("debootstrap", *options, *foreign, SUITE, str(staging), *([mirror] if mirror else []))
        if model is not None:
            _unpack(staging)
            _copy_missing(model, staging)
        for name in _NEEDLESS:
            shutil.rmtree(staging / name, ignore_errors=True)
            (staging / name).mkdir(parents=True)
        (staging / "tmp").chmod(0o1777)
        for name in _OF_THIS_MACHINE:
            (staging / name).unlink(missing_ok=True)
        staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _unpack(root: Path) -> None:
    """The second stage without running anything: files of every package, and what scanners know packages by."""
    status = []
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        run("dpkg-deb", "--extract", str(package), str(root))
        status.append(f"{run('dpkg-deb', '--field', str(package)).rstrip()}\nStatus: install ok unpacked\n")
    (root / "var/lib/dpkg/status").write_text("\n".join(status))
    shutil.rmtree(root / "debootstrap")
    for name in ("proc", "sys"):
        if (root / name).is_symlink():  # for tools that look there in the second stage
            (root / name).unlink()
            (root / name).mkdir()


def _copy_missing(model: Path, root: Path) -> None:
    """Users, certificates, alternatives and bytecode, where they are no business of a processor."""
    other = _TRIPLETS[native()]
    for path in sorted(model.rglob("*")):
        place = path.relative_to(model)
        copy = root / place
        if any(place.is_relative_to(name) for name in _NOT_COPIED) or any(other in part for part in place.parts):
            continue
        if copy.is_symlink() or copy.exists():
            continue
        if path.is_dir() and not path.is_symlink():
            copy.mkdir()
            shutil.copystat(path, copy)
        elif path.is_symlink() or (path.is_file() and _same_source(path, model, root)):  # never a device
            shutil.copy2(path, copy, follow_symlinks=False)


def _same_source(path: Path, model: Path, root: Path) -> bool:
    """Whether a file may be copied: bytecode is only as good as its source."""
    if path.suffix != ".pyc":
        return True
    source = path.parent.parent / f"{path.name.partition('.')[0]}.py"
    copy = root / source.relative_to(model)
    return source.is_file() and copy.is_file() and source.read_bytes() == copy.read_bytes()
