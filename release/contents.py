"""What goes into the image: run while it is built, by the Python of its base, without any package.

contents.py tools                 requirements of the build backend, from requirements-dev.lock on standard input
contents.py platforms ARCH        pip's options for wheels that run on this base's glibc, on another processor
contents.py finish FOLDER LICENSES
                                  leaves out what the program never loads, and collects licenses
"""

from __future__ import annotations

import base64
import csv
import hashlib
import platform
import re
import shutil
import struct
import sys
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKEND: Final = ("hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers")
"""The build backend and what it needs; pip would refuse a dependency that is missing here."""
GENERATED: Final = tuple(f"kubernetes/{room}client/{kind}" for room in ("", "aio/") for kind in ("api", "models"))
"""Folders with a module for each API group and each type: 120 MiB, imported by name when used, and none is used."""
_NEEDLESS: Final = ("*/tests/**/*", "pydantic/v1/**/*", "**/*.pyx", "**/*.pxd", "**/*.pyi", "**/*.c", "**/*.h")
"""Files of packages that only their developers need, and an old interface of one; below site-packages."""
_LICENSE: Final = re.compile(r"(?i)(licen[cs]e|copying|notice|authors)")
_PROCESSORS: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_GLIBC_OLDEST: Final = 17  # manylinux2014
_ARGUMENTS: Final = {"tools": 0, "platforms": 1, "finish": 2}


def tools(lock: str) -> Iterator[str]:
    """The build backend's entries of a lock file, with their hashes."""
    for entry in re.split(r"(?m)^(?=[A-Za-z0-9])", lock):
        if entry.partition("==")[0] in BACKEND:
            yield entry


def platforms(architecture: str, glibc_minor: int) -> Iterator[str]:
    """Options of pip: every tag of a wheel for this processor and for glibc 2.`glibc_minor` or older.

    An architecture is named as in images (`arm64`). Raises: KeyError for one that there is no image for.
    """
    processor = _PROCESSORS[architecture]
    tags = [f"manylinux_2_{minor}" for minor in range(glibc_minor, _GLIBC_OLDEST - 1, -1)]
    return (f"--platform={tag}_{processor}" for tag in (*tags, "manylinux2014", "linux"))


def is_generated(path: str) -> bool:
    """Whether a module, by its path below site-packages, is one of the generated clients.

    Their packages stay: the rest of the library imports them, and they import nothing by themselves.
    """
    folder, _, name = path.rpartition("/")
    return folder in GENERATED and name.endswith(".py") and name != "__init__.py"


def leave_out(site_packages: Path) -> None:
    """Removes what the program never loads: generated clients, tests, programs of packages, and debug information.

    Records of packages name what is left, with its checksums.
    """
    shutil.rmtree(site_packages / "bin", ignore_errors=True)
    for folder in GENERATED:
        for module in sorted((site_packages / folder).glob("*.py")):
            if is_generated(module.relative_to(site_packages).as_posix()):
                module.unlink()
    for pattern in _NEEDLESS:
        for path in sorted(site_packages.glob(pattern)):
            if path.is_file():
                path.unlink()
    for library in sorted(site_packages.rglob("*.so*")):
        library.write_bytes(without_debug_information(library.read_bytes()))
    for record in sorted(site_packages.glob("*.dist-info/RECORD")):
        _renew(record, site_packages)


def without_debug_information(library: bytes) -> bytes:
    """An ELF library of 64 bits without what follows its segments: sections that are never loaded.

    The dynamic linker goes by segments alone. Some wheels are nine tenths debug information. `strip` would do the
    same for this machine's processor only.
    """
    segments_at, _, _, _, segment_size, count, _, _, _ = struct.unpack_from("<QQIHHHHHH", library, 0x20)
    end = segments_at + segment_size * count
    for number in range(count):
        at, _, _, size = struct.unpack_from("<QQQQ", library, segments_at + number * segment_size + 8)
        end = max(end, at + size)
    kept = bytearray(library[:end])
    struct.pack_into("<Q", kept, 0x28, 0)  # where the table of sections was
    struct.pack_into("<HHH", kept, 0x3A, 0, 0, 0)  # size of its entries, their number, and which of them has names
    return bytes(kept)


def _renew(record: Path, site_packages: Path) -> None:
    with record.open(newline="") as file:
        left = [row for row in csv.reader(file) if (site_packages / row[0]).exists()]
    for row in left:
        if ".so" in row[0]:
            data = (site_packages / row[0]).read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            row[1:] = f"sha256={digest}", str(len(data))
    with record.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(left)


def collect_licenses(site_packages: Path, target: Path) -> None:
    """Copies each package's license files to `target/NAME`, and lists name, version and license in `index.txt`.

    Raises: ValueError for a package without any license file.
    """
    lines = []
    for metadata in sorted(site_packages.glob("*.dist-info/METADATA")):
        fields = HeaderParser().parsestr(metadata.read_text(encoding="utf-8"))
        name, folder = fields["Name"], metadata.parent
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and _LICENSE.search(path.name)]
        if not files:
            raise ValueError(f"{name} {fields['Version']} has no license file in {folder}")
        for file in files:
            place = target / name / file.relative_to(folder).as_posix().removeprefix("licenses/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
        lines.append(f"{name} {fields['Version']}: {_license(fields.get_all('Classifier', []), dict(fields))}\n")
    (target / "index.txt").write_text("".join(lines), encoding="utf-8")


def _license(classifiers: list[str], fields: dict[str, str]) -> str:
    """The license as the package names it, by expression, classifier or in words; the texts are beside it."""
    if "License-Expression" in fields:
        return fields["License-Expression"]
    named = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License :: ")]
    in_words = fields.get("License", "").strip().partition("\n")[0]
    return ", ".join(named) or in_words or "see its files"


def main(arguments: list[str]) -> int:
    """Does one of the steps above. 2 for anything else."""
    step, given = (arguments[0], arguments[1:]) if arguments else ("", [])
    if _ARGUMENTS.get(step) != len(given):
        print(__doc__, file=sys.stderr)
        return 2
    if step == "tools":
        sys.stdout.writelines(tools(sys.stdin.read()))
    elif step == "platforms":
        minor = int(platform.libc_ver()[1].partition(".")[2])
        print(*platforms(given[0], minor))
    else:
        (site_packages,) = Path(given[0]).glob("lib/python3*/site-packages")
        leave_out(site_packages)
        collect_licenses(site_packages, Path(given[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
