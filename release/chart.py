"""The Helm chart as an archive, with the version in it."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Final

from release.source import REPOSITORY, ReleaseError
from release.tarballs import write_tarball

if TYPE_CHECKING:
    from pathlib import Path

    from release.source import Source

NAME: Final = "device-taint-webhook"
_FIELDS: Final = (("Chart.yaml", r"^(version: ).*$"), ("Chart.yaml", r"^(appVersion: ).*$"))
_REGISTRY: Final = ("values.yaml", r'^(image:\n(?:  .*\n)*?  registry: )""$')


def write_chart(source: Source, registry: str, folder: Path, repository: str = REPOSITORY) -> Path:
    """Writes device-taint-webhook-VERSION.tgz.

    `helm package` does the same, but with the times and owners of files. The chart's images come from `registry` unless
    values say otherwise; its links lead to `repository`.

    Raises: ReleaseError if the chart does not have the fields that are to be set.
    """
    chart = source.root / "manifests" / "helm"
    ignored = _ignored(chart)
    files = {
        path.relative_to(chart).as_posix(): path.read_bytes()
        for path in chart.rglob("*")
        if path.is_file() and not any(fnmatch(part, each) for part in path.relative_to(chart).parts for each in ignored)
    }
    for (name, pattern), value in (*((field, source.version) for field in _FIELDS), (_REGISTRY, registry)):
        text, found = re.subn(pattern, rf"\g<1>{value}", files[name].decode(), flags=re.MULTILINE)
        if found != 1:
            raise ReleaseError(f"manifests/helm/{name} has {found} places like {pattern}, not one")
        files[name] = text.encode()
    files = {name: source.linked(content.decode(), repository).encode() for name, content in files.items()}
    archive = folder / f"{NAME}-{source.version}.tgz"
    write_tarball(archive, {f"{NAME}/{name}": files[name] for name in files}, source)
    return archive


def _ignored(chart: Path) -> list[str]:
    """The patterns of .helmignore, each for the name of a file or folder."""
    file = chart / ".helmignore"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [".helmignore", *(line.strip().strip("/") for line in lines if line.strip() and not line.startswith("#"))]
