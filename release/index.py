"""One image for all processors: the list of the images in a release's archives, known before a registry has it.

Imports only the standard library: what publishes a release needs no package.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MEDIA_TYPE: Final = "application/vnd.oci.image.index.v1+json"
_PLATFORM: Final = ("architecture", "os", "variant")


def image_index(archives: Sequence[Path]) -> bytes:
    """The list, in the order of the archives. Its digest is `digest_of` these bytes."""
    manifests = [_manifest(archive) for archive in archives]
    return _encoded({"schemaVersion": 2, "mediaType": _MEDIA_TYPE, "manifests": manifests})


def digest_of(content: bytes) -> str:
    """As registries name content: `sha256:...`."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def write_layout(archives: Sequence[Path], tag: str, folder: Path) -> str:
    """Writes an OCI layout with the list, called `tag`, and all its images, and gives the list's digest."""
    for archive in archives:
        with tarfile.open(archive) as layout:
            layout.extractall(folder, filter="data")
    content = image_index(archives)
    digest = digest_of(content)
    (folder / "blobs" / "sha256" / digest.partition(":")[2]).write_bytes(content)
    named = {
        "mediaType": _MEDIA_TYPE,
        "digest": digest,
        "size": len(content),
        "annotations": {"org.opencontainers.image.ref.name": tag},
    }
    (folder / "index.json").write_bytes(_encoded({"schemaVersion": 2, "manifests": [named]}))
    return digest


def _manifest(archive: Path) -> dict[str, Any]:
    with tarfile.open(archive) as layout:
        (found,) = _read(layout, "index.json")["manifests"]
        config = _read(layout, _blob(_read(layout, _blob(found["digest"]))["config"]["digest"]))
    platform = {field: config[field] for field in _PLATFORM if field in config}
    return {**{field: found[field] for field in ("mediaType", "digest", "size")}, "platform": platform}


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _read(layout: tarfile.TarFile, name: str) -> dict[str, Any]:
    file = layout.extractfile(name)
    assert file is not None, name
    return cast("dict[str, Any]", json.load(file))


def _encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
