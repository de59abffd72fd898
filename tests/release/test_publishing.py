"""The workflow of a release: linted, and its last two jobs played against a registry on loopback."""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from release.__main__ import build_release, command_line
from release.bases import NotHereError, need_mounts
from release.images import Archive, Builder, need_tools
from release.index import digest_of
from release.source import Source
from tests.apiserver.chart.helming import helm_program
from tests.controlplane.assets import Assets, actionlint, registry
from tests.controlplane.gobuild import AssetsUnavailableError, GoProgram, built
from tests.controlplane.processes import Process, free_port
from tests.release.releasing import EPOCH, REPOSITORY, REVISION, tree_at
from webhook import __version__

pytestmark = pytest.mark.whole
ROOT: Final = Path(__file__).parents[2]
WORKFLOW: Final = ROOT / ".github" / "workflows" / "release.yml"
TAG: Final = f"v{__version__}"
NOTE: Final = """\
#!/bin/sh
echo "$(basename "$0") $*" >> "$NOTES"
while [ $# -gt 0 ]; do if [ "$1" = --bundle ]; then echo signed > "$2"; fi; shift; done
"""
"""A program that only notes how it was called, and writes the bundle that cosign would."""


@dataclass(frozen=True)
class Published:
    """What the two jobs left."""

    address: str
    folder: Path
    calls: list[str]

    def get(self, path: str) -> bytes:
        accept = {"Accept": "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"}
        request = urllib.request.Request(f"http://{self.address}/v2/team/{path}", headers=accept)
        with urllib.request.urlopen(request, timeout=30) as answer:
            content: bytes = answer.read()
        return content


def _program(program: GoProgram) -> Path:
    try:
        return built(program, lambda line: print(line, file=sys.stderr)) / program.executable
    except AssetsUnavailableError as error:
        pytest.skip(f"no {program.name}: {error}")


def _run_steps(job: str) -> list[str]:
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"][job]["steps"]
    return [step["run"] for step in steps if "run" in step]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program, port = _program(registry()), free_port()
    log = tmp_path_factory.mktemp("registry") / "log"
    with Process("registry", [program, "-port", str(port)], log) as process:
        process.wait_ready(lambda: _listens(port))
        yield f"127.0.0.1:{port}"


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def published(address: str, assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    """A release with small images in place of ours, published by what the workflow runs."""
    try:
        need_tools()
        need_mounts()
    except NotHereError as error:
        pytest.skip(f"no images: {error}")
    if shutil.which("skopeo") is None:
        pytest.skip("no skopeo (Debian: apt-get install skopeo)")
    work = tmp_path_factory.mktemp("publishing")
    tree = tree_at(work / "tree")
    folder = tree / "dist" / TAG
    folder.mkdir(parents=True)
    given = command_line().parse_args(
        [
            f"--version={__version__}",
            f"--registry={address}/team",
            f"--repository={REPOSITORY}",
            f"--kubectl={assets.program('kubectl')}",
            "--platforms=linux/amd64",
        ]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("release.images.build_archive", _small_image)
        build_release(Source(tree, __version__, REVISION, EPOCH), given, folder)
    yield Published(address, folder, _play(tree, work))
    shutil.rmtree(work)


def _small_image(architecture: str, version: str, _revision: str, folder: Path) -> Archive:
    target = folder / f"device-taint-webhook-{version}-linux-{architecture}.tar"
    work = folder.parents[2] / architecture
    work.mkdir()
    (work / "file").write_text(architecture)
    builder = Builder(work, epoch=EPOCH)
    container = builder.buildah("from", "scratch").strip()
    builder.buildah("add", "--quiet", container, str(work / "file"), "/file")
    builder.buildah("config", "--arch", architecture, container)
    builder.buildah("commit", "--quiet", "--rm", container, f"localhost/{architecture}")
    return Archive(target, builder.write_archive(f"localhost/{architecture}", version, target), architecture)


def _play(tree: Path, work: Path) -> list[str]:
    """Runs the scripts of both jobs as GitHub does, with skopeo and helm, and gives the calls of what is not here."""
    programs = work / "bin"
    programs.mkdir()
    (programs / "helm").symlink_to(helm_program())
    for name in ("cosign", "docker", "gh"):
        (programs / name).write_text(NOTE)
        (programs / name).chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(work),
        "NOTES": str(work / "calls"),
        "REGISTRY": "registry.example.com/team",
        "TAG": TAG,
        "LOGIN": "someone",
        "PASSWORD": "secret",
        "PUBLISH": "--plain-http",
    }
    shell = ["bash", "-e", "-o", "pipefail", "-c"]
    for script in _run_steps("publish"):
        subprocess.run([*shell, script], cwd=tree, env=environment, check=True, timeout=600)
    gathered = work / "gathered"
    shutil.copytree(tree / "dist" / TAG, gathered / "dist")
    for script in _run_steps("release"):
        subprocess.run([*shell, script], cwd=gathered, env=environment, check=True, timeout=60)
    return (work / "calls").read_text().splitlines()


def _index(published: Published) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(published.get(f"device-taint-webhook/manifests/{__version__}"))
    return document


def test_the_workflow_passes_a_linter() -> None:
    done = subprocess.run([_program(actionlint()), WORKFLOW], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_one_image_for_both_processors_is_in_the_registry(published: Published) -> None:
    manifests = _index(published)["manifests"]
    assert [each["platform"]["architecture"] for each in manifests] == ["amd64", "arm64"]
    for each in manifests:
        content = published.get(f"device-taint-webhook/manifests/{each['digest']}")
        assert digest_of(content) == each["digest"]
        (layer,) = json.loads(content)["layers"]
        assert digest_of(published.get(f"device-taint-webhook/blobs/{layer['digest']}")) == layer["digest"]


def test_what_installs_names_the_image_by_the_digest_that_the_registry_has(published: Published) -> None:
    digest = digest_of(published.get(f"device-taint-webhook/manifests/{__version__}"))
    image = f"{published.address}/team/device-taint-webhook:{__version__}@{digest}"
    installations = sorted(published.folder.glob("install-*.yaml"))
    assert installations
    for path in installations:
        documents = [each for each in yaml.safe_load_all(path.read_text()) if each["kind"] == "Deployment"]
        assert documents
        for each in documents:
            assert {container["image"] for container in each["spec"]["template"]["spec"]["containers"]} == {image}
    assert digest in (published.folder / "image-digests.txt").read_text()


def test_the_chart_is_in_the_registry_as_it_was_built(published: Published) -> None:
    manifest = json.loads(published.get(f"charts/device-taint-webhook/manifests/{__version__}"))
    (layer,) = manifest["layers"]
    chart = published.folder / f"device-taint-webhook-{__version__}.tgz"
    assert published.get(f"charts/device-taint-webhook/blobs/{layer['digest']}") == chart.read_bytes()


def test_image_and_files_are_signed_and_the_release_has_all_files(published: Published) -> None:
    digest = digest_of(published.get(f"device-taint-webhook/manifests/{__version__}"))
    image = f"{published.address}/team/device-taint-webhook@{digest}"
    signed = [call.split()[1] for call in published.calls if call.startswith("cosign ")]
    assert signed == ["sign-blob", "attest-blob", "sign", "attest", "attest"]
    assert [call.endswith(f" {image}") for call in published.calls if call.startswith("cosign ")][2:] == [True] * 3
    assert published.calls[0] == "docker login registry.example.com --username someone --password-stdin"
    (made,) = [call for call in published.calls if call.startswith("gh ")]
    assert made.startswith(f"gh release create {TAG} --verify-tag --title {TAG} --notes-file dist/RELEASE_NOTES.md ")
    files = {word.removeprefix("dist/") for word in made.split() if word.startswith("dist/")}
    assert files == {path.name for path in published.folder.iterdir()}
    assert {"SHA256SUMS.sigstore.json", "provenance.sigstore.json", "dtaint.yaml"} < files


def test_no_link_of_the_archived_pages_leads_out_of_the_archive(published: Published) -> None:
    with tarfile.open(published.folder / f"device-taint-webhook-{__version__}-docs.tar.gz") as archive:
        names = set(archive.getnames())
        files = {name: archive.extractfile(name) for name in names if name.endswith(".md")}
        pages = {name: file.read().decode() for name, file in files.items() if file is not None}
    links = {(name, link) for name, text in pages.items() for link in re.findall(r"\]\((?!#)([^)#\s]+)", text)}
    targets = {posixpath.normpath(posixpath.join(posixpath.dirname(name), link)) for name, link in links}
    assert {each for each in targets if each.startswith("..")} == set()
    assert f"device-taint-webhook-{__version__}-docs/getting-started.md" in targets & names
    assert any(link.startswith(f"{REPOSITORY}/blob/{TAG}/") for _, link in links)


def test_a_release_that_was_changed_is_not_published(published: Published, tmp_path: Path) -> None:
    folder = tmp_path / TAG
    folder.mkdir()
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  RELEASE_NOTES.md\n")
    shutil.copy(published.folder / "RELEASE_NOTES.md", folder)
    command = [sys.executable, "-m", "release.publish", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert f"make publish: {folder / 'RELEASE_NOTES.md'} is not what SHA256SUMS says" in done.stderr


@pytest.mark.parametrize("sums", ["", f"{digest_of(b'x').removeprefix('sha256:')}  listed\n"], ids=["empty", "one"])
def test_a_file_that_the_sums_do_not_name_is_not_published(sums: str, tmp_path: Path) -> None:
    """The signature is on the sums alone."""
    (tmp_path / "SHA256SUMS").write_text(sums)
    (tmp_path / "listed").write_text("x")
    (tmp_path / "added.yaml").write_text("x")
    command = [sys.executable, "-m", "release.publish", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "SHA256SUMS does not name added.yaml" in done.stderr
