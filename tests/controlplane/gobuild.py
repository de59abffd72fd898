"""Go programs that tests need, built once into a cache outside the work tree.

A build lies in a folder named by a hash of all that decides it (go.mod, go.sum, sources, flags), appears there
whole or not at all, and is made by one process at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

Progress = Callable[[str], None]

PROGRESS_SECONDS = 5.0
_FLAGS = ("-trimpath", "-buildvcs=false")


class AssetsUnavailableError(Exception):
    """The programs are neither there nor can they be built; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class GoProgram:
    """One executable, and the names it is to be called by."""

    name: str
    """Names the folder in the cache, with the hash: kubernetes-1.37.0, evictor138-1.38.0-beta.0."""
    module: Path
    """The folder with go.mod and go.sum."""
    package: str = "."
    modfile: str = "go.mod"
    """Another go.mod in that folder, for another version of the same program."""
    ldflags: str = "-s -w"
    links: tuple[str, ...] = field(default=())
    """Names of links to the executable, for a program that looks at argv[0]."""
    data: tuple[tuple[str, str], ...] = field(default=())
    """Folders of required modules whose files lie beside the executable, as (module, folder)."""

    @property
    def executable(self) -> str:
        """The file name of the executable itself."""
        return re.split(r"-(?=\d)", self.name)[0]

    @property
    def digest(self) -> str:
        """Changes with everything that could change the build."""
        modfile = self.module / self.modfile
        inputs = [modfile, modfile.with_suffix(".sum"), *sorted(self.module.glob("*.go"))]
        data = [part for pair in self.data for part in pair]
        digest = hashlib.sha256("\0".join((*_FLAGS, self.package, self.ldflags, *self.links, *data)).encode())
        for path in inputs:
            digest.update(b"\0" + path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:16]

    @property
    def folder(self) -> Path:
        """Where the build is, or will be."""
        return cache_root() / f"{self.name}-{self.digest}"


def cache_root() -> Path:
    """The folder of all builds: DEVICE_TAINT_WEBHOOK_CACHE, else the user's cache folder."""
    explicit = os.environ.get("DEVICE_TAINT_WEBHOOK_CACHE") or os.environ.get("XDG_CACHE_HOME")
    base = Path(explicit) if explicit else Path.home() / ".cache"
    return base.expanduser().absolute() / "device-taint-webhook" / "controlplane"


def built(program: GoProgram, progress: Progress) -> Path:
    """The folder with the program, built first if need be (minutes on a cold Go cache).

    Raises: AssetsUnavailableError.
    """
    folder = program.folder
    if folder.is_dir():
        return folder
    go = shutil.which("go")
    if go is None:
        raise AssetsUnavailableError(
            f"{program.name} is not built and there is no Go to build it: install Go 1.26 or newer, "
            "or set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver and kubectl"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.with_name(folder.name + ".lock"), program.name, progress):
            if not folder.is_dir():  # another process may have built it while this one waited
                _build(go, program, folder, progress)
    except OSError as e:
        raise AssetsUnavailableError(f"cannot build {program.name} in {folder.parent}: {e}") from e
    return folder


def _build(go: str, program: GoProgram, folder: Path, progress: Progress) -> None:
    started = time.monotonic()
    staging = Path(tempfile.mkdtemp(prefix=folder.name + ".tmp-", dir=folder.parent))
    try:
        command = [
            go, "build", "-v", *_FLAGS, f"-modfile={program.modfile}", "-ldflags", program.ldflags,
            "-o", str(staging / program.executable), program.package,
        ]  # fmt: skip
        progress(f"building {program.name} with Go, once, into {folder}")
        listing = [go, "list", "-deps", f"-modfile={program.modfile}", program.package]
        _run(command, program, progress, packages=len(_run(listing, program, progress).split()))
        progress(f"{program.name}: built in {time.monotonic() - started:.0f} s")
        for name in program.links:
            (staging / name).symlink_to(program.executable)
        for module, data in program.data:
            _copy(_module_folder(go, program, module) / data, staging / Path(data).name)
        staging.chmod(0o755)  # mkdtemp's 0700 is for secrets
        staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _module_folder(go: str, program: GoProgram, module: str) -> Path:
    """Where Go keeps a module that the program was built with."""
    command = [go, "list", "-m", f"-modfile={program.modfile}", "-f", "{{.Dir}}", module]
    done = subprocess.run(
        command, cwd=program.module, env=_environment(), capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode != 0:
        raise AssetsUnavailableError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return Path(done.stdout.strip())


def _copy(source: Path, target: Path) -> None:
    """The files of a folder, but not their modes: Go's are read-only, and could not be removed again."""
    target.mkdir()
    for file in source.iterdir():
        if file.is_file():
            shutil.copyfile(file, target / file.name)


def _environment() -> dict[str, str]:
    # auto: a go.mod that asks for a newer Go than that on PATH gets it, as a module
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "auto"}


def _run(command: list[str], program: GoProgram, progress: Progress, packages: int = 0) -> str:
    """Runs Go, says how far it is of so many packages, and returns what it writes to standard output."""
    started = time.monotonic()
    # A session of its own: one signal ends the compiler processes as well.
    with (
        tempfile.TemporaryFile("w+") as written,
        subprocess.Popen(
            command,
            cwd=program.module,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as go,
    ):
        assert go.stderr is not None
        output = _Output(go.stderr, packages)
        reader = threading.Thread(target=output.follow, daemon=True)
        reader.start()
        try:
            while True:
                try:
                    code = go.wait(timeout=PROGRESS_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    progress(f"{program.name}: {time.monotonic() - started:.0f} s, {output.state}")
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(go.pid, signal.SIGTERM)
            raise
        reader.join()
        if code != 0:
            raise AssetsUnavailableError(f"{' '.join(command)} ended with {code}:\n" + "\n".join(output.complaints))
        written.seek(0)
        return written.read()


class _Output:
    """What `go build -v` says: modules it downloads, packages it compiles, and complaints."""

    def __init__(self, stream: IO[str], total: int) -> None:
        """`total` packages are to be compiled, unless Go has some in its cache; 0 if that is not known yet."""
        self._stream = stream
        self._total = total
        self.complaints: deque[str] = deque(maxlen=30)
        self.downloads = 0
        self.packages = 0

    def follow(self) -> None:
        for line in self._stream:
            text = line.rstrip()
            if text.startswith("go: downloading "):
                self.downloads += 1
            elif " " not in text and not text.startswith("#"):  # -v prints bare import paths
                self.packages += 1
            else:
                self.complaints.append(text)

    @property
    def state(self) -> str:
        if not self._total:
            return f"{self.downloads} modules downloaded" if self.downloads else "reading modules"
        if not self.packages:
            return f"nothing of {self._total} packages compiled so far: reading modules, or linking"
        return f"{100 * self.packages // self._total} %, {self.packages} of {self._total} packages compiled"


@contextlib.contextmanager
def _lock(path: Path, name: str, progress: Progress) -> Iterator[None]:
    """Holds an exclusive file lock; the kernel drops it should this process die."""
    with path.open("w") as file:
        waited = 0.0
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if waited % PROGRESS_SECONDS == 0:
                    progress(f"{name}: another process is building it, waiting ({waited:.0f} s)")
                time.sleep(1.0)
                waited += 1.0
        yield
