"""`kubectl-dtaint` in one file, which needs a Python on PATH and nothing else.

A pex: the locked wheels as they were downloaded, and a few lines of shell that find a Python of a fitting release. Its
first start unpacks them into the user's cache, and later ones go there directly.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging import tags

from release.tarballs import write_tarball
from release.tools import run_tool
from release.wheels import PYTHONS, locked_wheels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from release.source import Source
    from release.wheels import Platform

PROGRAM: Final = "kubectl-dtaint"
COMPLETE: Final = "kubectl_complete-dtaint"
"""What kubectl runs for suggestions, if it is on PATH."""
_OF_THIS_USER: Final = ("PEX_", "XDG_CACHE_HOME")
"""Prefixes of variables that move the cache of pex here; the plugin would look for its cache there on every machine."""
_COMPLETE_SCRIPT: Final = b'#!/bin/sh\nexec kubectl-dtaint __complete "$@"\n'


def build_plugin(source: Source, platform: Platform, wheel: Path, folder: Path) -> Path:
    """Writes kubectl-dtaint-VERSION-OS-ARCH.tar.gz with the program, its completion for kubectl, and the licence.

    `wheel` is ours.

    Raises: ReleaseError.
    """
    archive = folder / f"{PROGRAM}-{source.version}-{platform.system}-{platform.architecture}.tar.gz"
    with tempfile.TemporaryDirectory() as made:
        wheels = Path(made, "wheels")
        wheels.mkdir()
        for each in (*locked_wheels(source, platform), wheel.resolve()):
            (wheels / each.name).symlink_to(each)
        program = Path(made, PROGRAM)
        command = [
            sys.executable, "-m", "pex", f"device-taint-webhook=={source.version}",
            "--pre-resolved-dists", str(wheels), "--no-build",
            *(f"--complete-platform={_complete(platform, python)}" for python in PYTHONS),
            # no --interpreter-constraint: that would add this machine's own Pythons to those it is built for
            "--entry-point", "webhook.cli:main",
            # a venv in the cache, which sh enters without another Python in between: 30 ms instead of 110
            "--venv", "--sh-boot",
            # wheels stay as they are in the lock, and are compressed already
            "--no-pre-install-wheels", "--no-compress",
            "--pex-root", str(Path(made, "root")), "--output-file", str(program),
        ]  # fmt: skip
        run_tool(command, source, Path(made), without=_OF_THIS_USER)
        files = {
            PROGRAM: program.read_bytes(),
            COMPLETE: _COMPLETE_SCRIPT,
            "LICENSE": (source.root / "LICENSE").read_bytes(),
        }
        write_tarball(archive, files, source, frozenset({PROGRAM, COMPLETE}))
    return archive


def _complete(platform: Platform, python: Sequence[int]) -> str:
    """What pex has to know about a Python that is not on this machine."""
    interpreter, release = f"cp{python[0]}{python[1]}", f"{python[0]}.{python[1]}"
    there = platform.wheel_tags
    fitting = [
        *tags.cpython_tags(python, [interpreter], there),
        *tags.compatible_tags(python, interpreter, there),
    ]
    markers = {
        "implementation_name": "cpython",
        "implementation_version": f"{release}.0",
        "os_name": "posix",
        "platform_machine": platform.machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": platform.system.capitalize(),
        "platform_version": "",
        "python_full_version": f"{release}.0",
        "python_version": release,
        "sys_platform": platform.system,
    }
    return json.dumps({"marker_environment": markers, "compatible_tags": [str(each) for each in fitting]})
