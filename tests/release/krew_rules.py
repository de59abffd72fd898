"""What krew asks of a manifest before it installs anything, after its `internal/index/validation`.

krew itself cannot be built from the Go module proxy, so its rules are written down here once more.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_KEYS = {"os", "arch"}


def faults(name: str, manifest: dict[str, Any]) -> Iterator[str]:
    """What krew would say of a manifest whose file is called NAME.yaml."""
    if manifest.get("apiVersion") != "krew.googlecontainertools.github.com/v1alpha2":
        yield "apiVersion"
    if manifest.get("kind") != "Plugin":
        yield "kind"
    if not re.fullmatch(r"[\w-]+", name, re.ASCII) or manifest["metadata"]["name"] != name:
        yield "name"
    spec = manifest["spec"]
    short = spec.get("shortDescription", "")
    if not short or "\n" in short or "\r" in short:
        yield "shortDescription"
    if not re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", spec.get("version", "")):
        yield "version"
    if not spec.get("platforms"):
        yield "platforms"
    for platform in spec.get("platforms", []):
        yield from _platform_faults(platform)


def _platform_faults(platform: dict[str, Any]) -> Iterator[str]:
    if not platform.get("uri"):
        yield "uri"
    if not re.fullmatch(r"[a-f0-9]{64}", platform.get("sha256", "")):
        yield "sha256"
    if not platform.get("bin"):
        yield "bin"
    if "files" in platform and (
        not platform["files"] or any(not each.get("from") or not each.get("to") for each in platform["files"])
    ):
        yield "files"
    labels = platform.get("selector", {}).get("matchLabels", {})
    if not labels or not set(labels) <= _KEYS:
        yield "selector"


def installed_files(archive: Path, platform: dict[str, Any]) -> dict[str, int]:
    """The files that an installation would have, with their modes: what `files` names, moved to where it says."""
    with tarfile.open(archive) as unpacked:
        modes = {entry.name: entry.mode for entry in unpacked.getmembers()}
    return {each["from"] if each["to"] == "." else each["to"]: modes[each["from"]] for each in platform["files"]}
