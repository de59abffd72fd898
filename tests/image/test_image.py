"""The image as it would be shipped: what is in it, that it can be built again, and that it runs without any rights.

Where images cannot be built these tests are skipped, and say so. They need root, buildah and debootstrap; minutes.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import subprocess
import tarfile
from typing import TYPE_CHECKING, Final

import pytest

from tests.controlplane.pki import Authority
from tests.controlplane.processes import Process, free_port
from tests.image.building import ROOT, Builder, NotHereError, need_tools

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

OURS: Final = "opt/device-taint-webhook"
# Neither root nor the image's own user.
_SOMEBODY: Final = "12345:54321"
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


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    try:
        need_tools()
    except NotHereError as error:
        pytest.skip(f"the image was not built: {error}")
    builder = Builder(tmp_path_factory.mktemp("image"))
    builder.make_base()
    yield builder
    builder.buildah("umount", "--all")
    builder.buildah("rm", "--all")
    builder.buildah("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def digest(builder: Builder) -> str:
    return builder.build("localhost/first")


@pytest.fixture(scope="module")
def files(builder: Builder, digest: str) -> Path:
    assert digest
    return builder.mount("localhost/first")


def _packages(files: Path) -> set[str]:
    """Names of installed distributions, as the lock spells them."""
    found = files.glob(f"{OURS}/lib/python3*/site-packages/*.dist-info")
    return {re.sub(r"[-_.]+", "-", path.name.removesuffix(".dist-info").rpartition("-")[0]).lower() for path in found}


def test_same_sources_make_the_same_image(builder: Builder, digest: str) -> None:
    assert builder.build("localhost/second") == digest


def test_it_holds_the_locked_packages_and_no_other(files: Path) -> None:
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    assert _packages(files) == locked | {"device-taint-webhook"}


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
def layers(builder: Builder, digest: str) -> list[Path]:
    assert digest
    return builder.layers("localhost/first")


def test_no_layer_hides_a_secret(builder: Builder, layers: list[Path]) -> None:
    """What a later layer deletes is still there for whoever pulls the image; and the history tells how it was built."""
    assert len(layers) == 2, "the base, and what the last stage makes of it"
    for layer in layers:
        with tarfile.open(layer) as content:
            found = [each.name for each in content if each.isfile() and _is_secret(each, content)]
        assert found == []
    told = builder.buildah("inspect", "--type=image", "localhost/first")
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


def test_its_size_is_the_published_one(files: Path, builder: Builder, layers: list[Path]) -> None:
    """Of its own part: the base is the builder's choice."""
    size = sum(path.lstat().st_size for path in (files / OURS).rglob("*") if not path.is_symlink()) / 2**20
    pushed = layers[-1].stat().st_size / 2**20
    print(f"\n{OURS}: {size:.0f} MiB, {pushed:.0f} MiB pulled; with its base:\n{builder.buildah('images')}")
    page = (ROOT / "docs" / "operations.md").read_text()
    published = re.search(r"adds (\d+) MiB to its base, (\d+) MiB of them to pull", page)
    assert published
    assert size == pytest.approx(int(published[1]), rel=_TOLERANCE)
    assert pushed == pytest.approx(int(published[2]), rel=_TOLERANCE)


def test_it_says_how_it_is_to_be_run(builder: Builder, digest: str) -> None:
    assert digest
    config = json.loads(builder.buildah("inspect", "--type=image", "localhost/first"))["OCIv1"]["config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["device-taint-webhook"]
    assert set(config["ExposedPorts"]) == {"9443/tcp", "8081/tcp", "8080/tcp"}


def test_any_user_can_run_it_on_a_root_that_is_read_only(files: Path, tmp_path: Path) -> None:
    authority = Authority("image-ca")
    for file in authority.server("127.0.0.1").write(tmp_path):
        file.chmod(0o444)
    tmp_path.chmod(0o555)
    review_port, health_port = free_port(), free_port()
    # In a mount namespace of its own: the image read-only, /proc, and the certificates where a volume would be.
    script = f"""
        mount --bind {files} {files} && mount -o remount,bind,ro {files} &&
        mount --bind -o ro {tmp_path} {files}/mnt && mount -t proc proc {files}/proc &&
        exec chroot --userspec={_SOMEBODY} {files} /usr/bin/env -i PATH=/{OURS}/bin:/usr/bin \\
            device-taint-webhook serve --standalone --cert-dir /mnt --bind-address 127.0.0.1 --port {review_port} \\
            --health-probe-bind-address 127.0.0.1:{health_port} --metrics-bind-address 0"""
    process = Process(
        "image",
        ["/usr/bin/env", "unshare", "--mount", "sh", "-c", script],
        tmp_path.parent / "image.log",
        grace_seconds=90,
    )

    def ready() -> bool:
        try:
            return _get(health_port)
        except OSError:
            return False

    try:
        process.wait_ready(ready, seconds=180)
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": _rule_review()}
        answer = _post(review_port, authority.pem, review)
        assert answer["response"]["uid"] == "1"
        assert answer["response"]["allowed"] is True
    finally:
        code = process.stop()
    assert code == 0


def _get(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/readyz")
    status = connection.getresponse().status
    connection.close()
    return status == 200


def _post(port: int, ca_pem: bytes, body: object) -> dict[str, dict[str, object]]:
    context = ssl.create_default_context(cadata=ca_pem.decode())
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    connection.request("POST", "/validate", json.dumps(body), {"Content-Type": "application/json"})
    answer: dict[str, dict[str, object]] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def _rule_review() -> dict[str, object]:
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r"},
        "spec": {
            "deviceSelector": {"driver": "gpu.example.com"},
            "taint": {"key": "a.example.com/b", "effect": "None"},
        },
    }
    return {
        "uid": "1",
        "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "DeviceTaintRule"},
        "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "devicetaintrules"},
        "operation": "CREATE",
        "name": "r",
        "userInfo": {"username": "somebody"},
        "object": rule,
    }


def test_both_workloads_are_verbs_of_its_only_program(files: Path) -> None:
    done = subprocess.run(
        ["chroot", f"--userspec={_SOMEBODY}", str(files), f"/{OURS}/bin/device-taint-webhook", "--help"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done
    assert {"serve", "evict"} <= set(re.findall(r"^  (\w+)", done.stdout, re.MULTILINE))
