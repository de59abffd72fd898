"""The image as it would be shipped: what is in it, what it says about itself, and that it can be built again.

Where images cannot be built these tests are skipped, and say so. They need root, buildah and debootstrap.
"""

from __future__ import annotations

import csv
import json
import re
import tarfile
from typing import TYPE_CHECKING, Final

import pytest

from release.bases import native
from release.contents import is_generated
from tests.image.building import LABELS, OURS, ROOT, unpacked_size

if TYPE_CHECKING:
    from pathlib import Path

    from tests.image.building import Workshop

pytestmark = pytest.mark.slow

_LAYERS_MIB_MAX: Final = 60
_TOLERANCE: Final = 0.1
_CREDENTIALS: Final = {
    ".netrc",
    "pip.conf",
    ".pypirc",
    "auth.json",
    ".git-credentials",
    "credentials",
    "id_rsa",
    "id_ed25519",
}
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{40,}")
"""With some of the key: programs that read keys know the first line too."""


def _distributions(files: Path) -> dict[str, Path]:
    """Folders of installed distributions, by their names as the lock spells them."""
    found = files.glob(f"{OURS}/lib/python3*/site-packages/*.dist-info")
    named = ((path, path.name.removesuffix(".dist-info").rpartition("-")[0]) for path in found)
    return {re.sub(r"[-_.]+", "-", name).lower(): path for path, name in named}


@pytest.mark.whole
def test_same_sources_make_the_same_image(shop: Workshop, digest: str, tmp_path: Path) -> None:
    assert shop.build("second") == digest
    archives = [tmp_path / name for name in ("first", "second")]
    (shipped,) = {shop.builder.write_archive(f"localhost/{path.name}", "1.2.3", path) for path in archives}
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as layout:
        index = layout.extractfile("index.json")
        assert index is not None
        (manifest,) = json.loads(index.read())["manifests"]
    assert manifest["digest"] == shipped
    assert manifest["annotations"] == {
        "io.containerd.image.name": "docker.io/library/device-taint-webhook:1.2.3",
        "org.opencontainers.image.ref.name": "1.2.3",
    }


@pytest.mark.whole
def test_packages_come_through_the_mirror_that_a_build_is_given(shop: Workshop, digest: str) -> None:
    """Behind an air gap: an index with a CA of its own, by build arguments; neither is left in the image."""
    assert digest
    assert {"/simple/kubernetes/", "/simple/hatchling/"} <= set(shop.asked)
    index = shop.builder.mirror
    assert index is not None
    told = shop.builder.buildah("inspect", "--type=image", "localhost/first")
    assert index.index_url not in told
    assert index.ca_pem.splitlines()[1] not in told


@pytest.mark.whole
def test_it_is_python_313_of_debian_13(files: Path) -> None:
    assert "VERSION_CODENAME=trixie" in (files / "etc/os-release").read_text()
    (library,) = files.glob(f"{OURS}/lib/python3*")
    assert library.name == "python3.13"


def test_it_holds_the_locked_packages_and_no_other(files: Path) -> None:
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    assert set(_distributions(files)) == locked | {"device-taint-webhook"}


def test_it_has_no_generated_client_and_no_program_but_ours(files: Path) -> None:
    (site_packages,) = files.glob(f"{OURS}/lib/python3*/site-packages")
    paths = [path.relative_to(site_packages).as_posix() for path in site_packages.rglob("*")]
    assert [path for path in paths if is_generated(path)] == []
    assert [path for path in paths if "/models/__pycache__/v1_" in path] == []
    programs = {path.name for path in (files / OURS / "bin").iterdir()}
    assert {name for name in programs if not name.lower().startswith(("python", "activate"))} == {
        "device-taint-webhook",
        "kubectl-dtaint",
        "kubectl_complete-dtaint",
    }


def test_records_of_packages_name_what_is_there(files: Path) -> None:
    """Scanners go by them."""
    for distribution in _distributions(files).values():
        with (distribution / "RECORD").open(newline="") as record:
            missing = [row[0] for row in csv.reader(record) if not (distribution.parent / row[0]).exists()]
        assert missing == [], distribution


def test_every_package_has_its_license_in_it(files: Path) -> None:
    folder = files / OURS / "licenses"
    named = {
        re.sub(r"[-_.]+", "-", path.name).lower(): [file for file in path.rglob("*") if file.is_file()]
        for path in folder.iterdir()
        if path.is_dir()
    }
    assert set(named) == set(_distributions(files))
    assert all(file.stat().st_size for texts in named.values() for file in texts)
    index = (folder / "index.txt").read_text()
    assert "certifi 2" in index
    assert index.count("\n") == len(named)


def test_nothing_in_it_installs_or_builds(files: Path) -> None:
    for folder in (*files.glob("usr/lib/python3*"), *files.glob("usr/local/lib/python3*"), files / OURS):
        names = {path.name for pattern in ("pip", "setuptools", "wheel", "ensurepip") for path in folder.rglob(pattern)}
        assert names == set(), folder
    assert not list(files.glob("usr/share/python-wheels/*"))
    assert not [name for name in ("gcc", "cc", "make", "pip", "pip3") if list(files.glob(f"usr/**/bin/{name}"))]


def test_nothing_in_it_is_secret_or_only_for_tests(files: Path) -> None:
    """Keys of laptops, tests, history; and of where it was built."""
    ours = files / OURS
    suspicious = {
        str(path.relative_to(ours))
        for pattern in ("*.key", "*.pem", "*.crt", ".git*", "direct_url.json", "certs", "conftest.py")
        for path in ours.rglob(pattern)
    }
    assert {path for path in suspicious if not path.endswith("certifi/cacert.pem")} == set()
    assert not [path for path in files.rglob("*.key") if path.is_file()]
    assert list((files / "build").glob("*") if (files / "build").exists() else []) == []


@pytest.fixture(scope="module")
def layers(shop: Workshop, digest: str) -> list[Path]:
    assert digest
    return shop.layers("first")


def test_no_layer_hides_a_secret(shop: Workshop, layers: list[Path]) -> None:
    """What a later layer deletes is still there for whoever pulls the image; and the history tells how it was built."""
    assert len(layers) == 2, "the base, and what the last stage makes of it"
    for layer in layers:
        with tarfile.open(layer) as content:
            found = [each.name for each in content if each.isfile() and _is_secret(each, content)]
        assert found == []
    told = shop.builder.buildah("inspect", "--type=image", "localhost/first")
    assert not re.search(r"(?i)proxy|token|password|://[^/\s\"]+@", told)


def _is_secret(member: tarfile.TarInfo, content: tarfile.TarFile) -> bool:
    """A key in it, or a file that tools keep credentials in."""
    # What was bound into the build, this machine's way to the packages, leaves an empty file where it stood.
    if member.size and member.name.rpartition("/")[2] in _CREDENTIALS:
        return True
    file = content.extractfile(member)
    data = b"" if file is None else file.read()
    # Libraries test themselves with keys that everybody knows (libgnutls).
    return not data.startswith(b"\x7fELF") and _PRIVATE_KEY.search(data) is not None


def test_its_size_is_the_published_one(files: Path, shop: Workshop, layers: list[Path]) -> None:
    """Of its own part: the base is the builder's choice."""
    size = sum(path.lstat().st_size for path in (files / OURS).rglob("*") if not path.is_symlink()) / 2**20
    pushed = layers[-1].stat().st_size / 2**20
    print(f"\n{OURS}: {size:.0f} MiB, {pushed:.0f} MiB pulled; with its base:\n{shop.builder.buildah('images')}")
    assert sum(map(unpacked_size, layers[1:])) / 2**20 < _LAYERS_MIB_MAX
    page = (ROOT / "docs" / "install.md").read_text()
    published = re.search(r"adds (\d+) MiB to its base, (\d+) MiB of them to pull", page)
    assert published
    assert size == pytest.approx(int(published[1]), rel=_TOLERANCE)
    assert pushed == pytest.approx(int(published[2]), rel=_TOLERANCE)


def test_it_says_how_it_is_to_be_run(shop: Workshop, digest: str) -> None:
    assert digest
    config = json.loads(shop.builder.buildah("inspect", "--type=image", "localhost/first"))["OCIv1"]["config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["device-taint-webhook"]
    assert set(config["ExposedPorts"]) == {"9443/tcp", "8081/tcp", "8080/tcp"}


def test_it_says_where_it_comes_from(shop: Workshop, digest: str) -> None:
    assert digest
    told = json.loads(shop.builder.buildah("inspect", "--type=image", "localhost/first"))["OCIv1"]
    name, base_digest = shop.builder.base(native())
    prefix = "org.opencontainers.image."
    labels = {key.removeprefix(prefix): value for key, value in told["config"]["Labels"].items()}
    assert labels.pop("description")
    assert {key: value for key, value in labels.items() if "." not in key or key.startswith("base.")} == {
        "title": "device-taint-webhook",
        "version": LABELS.version,
        "licenses": "Apache-2.0",
        "source": LABELS.source,
        "revision": LABELS.revision,
        "created": "2023-11-14T22:13:20Z",
        "base.name": name,
        "base.digest": base_digest,
    }
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", base_digest)
    assert told["created"].startswith("2023-11-14T22:13:20")
    assert told["architecture"] == native()
