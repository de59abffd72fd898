"""Programs for another processor, run by qemu's user mode emulation: what a build for it and its tests need."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from release.bases import NotHereError, native

_HANDLERS: Final = Path("/proc/sys/fs/binfmt_misc")
_QEMU: Final = {"amd64": "x86_64", "arm64": "aarch64"}
# The ELF header: 64 bits, little endian, an executable or a library, for this machine number.
_MAGIC: Final = {"amd64": 0x3E, "arm64": 0xB7}


def enable(architecture: str) -> None:
    """Makes this kernel run programs of an architecture, also below a chroot; nothing to do for its own.

    Where no handler is registered, qemu-user-static's becomes one until the machine is restarted, as the package
    itself does on machines with systemd.

    Raises: NotHereError with what is missing.
    """
    if architecture == native():
        return
    name, qemu = f"qemu-{_QEMU[architecture]}", emulator(architecture)
    if not (_HANDLERS / "register").exists():
        mount = ("/bin/mount", "-t", "binfmt_misc", "binfmt_misc", _HANDLERS)
        subprocess.run(mount, check=False, capture_output=True)
    if (_HANDLERS / name).exists():
        return
    try:
        (_HANDLERS / "register").write_bytes(_handler(name, architecture, qemu))
    except FileExistsError:  # another process has just done so
        return
    except OSError as error:
        raise NotHereError(f"this kernel cannot be told to run {architecture} by {qemu}: {error}") from error


def emulator(architecture: str) -> str:
    """Where qemu for an architecture is. Raises NotHereError if this machine lacks it."""
    name = f"qemu-{_QEMU[architecture]}-static"
    qemu = shutil.which(name)
    if qemu is None:
        raise NotHereError(f"no {name} to run {architecture} (Debian: apt-get install qemu-user-static)")
    return qemu


def _handler(name: str, architecture: str, qemu: str) -> bytes:
    """A line for binfmt_misc. F: the kernel opens the interpreter now, so it is found below any root."""
    magic = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00" + bytes([_MAGIC[architecture], 0])
    # OS ABI and the rest of the identification may be anything but these; executables may also be libraries.
    mask = b"\xff" * 7 + b"\x00" + b"\xff" * 8 + b"\xfe\xff\xff\xff"
    escaped = ["".join(f"\\x{byte:02x}" for byte in data) for data in (magic, mask)]
    return f":{name}:M::{escaped[0]}:{escaped[1]}:{qemu}:OCF".encode()
