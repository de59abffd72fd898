"""The bill of materials: every locked package with its licence and the hashes of its files, in CycloneDX."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from importlib import metadata
from typing import TYPE_CHECKING, Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import AttachedText, ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.source import ReleaseError
from release.tarballs import sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cyclonedx.model.license import License

    from release.source import Source

OURS: Final = "device-taint-webhook"
_PIN: Final = re.compile(r"^([a-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_CLASSIFIER: Final = "License :: OSI Approved :: "


def write_bill(source: Source, wheel: Path, folder: Path) -> Path:
    """Writes device-taint-webhook-VERSION.cdx.json, about what the wheel and requirements.lock install.

    Licences are those that the installed packages declare. Hashes are of every file that the lock admits for a
    package, whatever the platform.

    Raises: ReleaseError if a locked package is not installed here in that version.
    """
    lock = (source.root / "requirements.lock").read_text(encoding="utf-8")
    components = {name: _component(name, version, hashes) for name, version, hashes in pins_of(lock)}
    ours = _component(OURS, source.version, [sha256_of(wheel)], ComponentType.APPLICATION)
    bom = Bom(components=components.values(), serial_number=_serial_number(source, lock))
    bom.metadata.component = ours
    bom.metadata.timestamp = dt.datetime.fromtimestamp(source.epoch, tz=dt.UTC)
    bom.metadata.tools.components.add(_tool())
    bom.register_dependency(ours, [components[name] for name in _needs(metadata.requires(OURS)) if name in components])
    for name, component in components.items():
        needed = _needs(metadata.requires(name))
        bom.register_dependency(component, [components[each] for each in needed if each in components])
    path = folder / f"{OURS}-{source.version}.cdx.json"
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    path.write_text(f"{text}\n", encoding="utf-8")
    return path


def pins_of(lock: str) -> Iterator[tuple[str, str, list[str]]]:
    """Name, version and SHA-256 digests of each package of a lock file."""
    found = list(_PIN.finditer(lock))
    for at, pin in enumerate(found):
        end = found[at + 1].start() if at + 1 < len(found) else len(lock)
        yield canonicalize_name(pin[1]), pin[2], _HASH.findall(lock, pin.end(), end)


def _component(name: str, version: str, digests: list[str], kind: ComponentType = ComponentType.LIBRARY) -> Component:
    purl = PackageURL("pypi", name=name, version=version)
    return Component(
        name=name,
        version=version,
        type=kind,
        bom_ref=str(purl),
        purl=purl,
        licenses=[_licence(name, version)],
        external_references=[
            ExternalReference(
                type=ExternalReferenceType.DISTRIBUTION,
                url=XsUri(str(purl)),
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=each) for each in digests],
            )
        ],
    )


def _licence(name: str, version: str) -> License:
    """What the installed package says: an SPDX expression, else a name, else its classifiers, else the whole text."""
    try:
        said = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        said = None
    if said is None or (name != OURS and said["Version"] != version):
        raise ReleaseError(
            f"{name} {version} is locked and not installed here, so its licence is not known: make setup"
        )
    known = LicenseFactory()
    classifiers = [each.removeprefix(_CLASSIFIER) for each in said.get_all("Classifier", []) if _CLASSIFIER in each]
    text = "".join(said.get_all("License", [])).strip()
    expression = "".join(said.get_all("License-Expression", []))
    for value in (expression, text if "\n" not in text else "", " AND ".join(classifiers)):
        if value:
            return known.make_from_string(value)
    files = [each for each in metadata.files(name) or [] if each.name in said.get_all("License-File", [])]
    if not files:
        raise ReleaseError(f"{name} {version} does not say what its licence is")
    whole = files[0].read_text(encoding="utf-8").strip()
    return DisjunctiveLicense(name=whole.partition("\n")[0].strip(), text=AttachedText(content=whole))


def _needs(requirements: list[str] | None) -> set[str]:
    """The names of packages that are required without extras, whatever the platform."""
    parsed = [Requirement(each) for each in requirements or []]
    return {canonicalize_name(each.name) for each in parsed if each.marker is None or "extra" not in str(each.marker)}


def _serial_number(source: Source, lock: str) -> uuid.UUID:
    """The same for the same commit and lock file, so that a release can be built again."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{OURS}@{source.version}\n{source.revision}\n{lock}")


def _tool() -> Component:
    name = "cyclonedx-python-lib"
    return Component(name=name, version=metadata.version(name), type=ComponentType.LIBRARY, bom_ref=f"tool:{name}")
