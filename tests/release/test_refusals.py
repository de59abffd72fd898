"""When there is no release, why, and that nothing is left of it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from release.__main__ import main
from release.archives import build_images
from release.index import digest_of, image_index
from release.needs import main as needs
from release.needs import renderer_of
from release.source import ReleaseError, Source, source_of
from tests.release.releasing import EPOCH, REPOSITORY, REVISION, ROOT, commit_all, release, tree_at
from webhook import __version__

OF_THE_TREE = {"SOURCE_REVISION": REVISION, "SOURCE_DATE_EPOCH": str(EPOCH)}


def test_another_version_than_the_trees_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    done = release(ROOT, f"--output={tmp_path / 'out'}", version="99.0.0")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"VERSION=99.0.0 was asked for, and the tree is {__version__}: set __version__" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_tree_with_changes_is_refused(tmp_path: Path) -> None:
    """A release is what a commit says."""
    (tmp_path / "webhook").mkdir()
    (tmp_path / "webhook" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    commit_all(tmp_path)
    source = source_of(tmp_path, "1.2.3", {})
    assert len(source.revision) == 40
    assert source.epoch > EPOCH
    (tmp_path / "more").touch()
    with pytest.raises(ReleaseError, match=r"1 files are not as committed \(\?\? more\)"):
        source_of(tmp_path, "1.2.3", {})


def test_a_tree_without_git_needs_a_revision_and_a_time(tmp_path: Path) -> None:
    (tmp_path / "webhook").mkdir()
    (tmp_path / "webhook" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    with pytest.raises(ReleaseError, match="set SOURCE_REVISION and SOURCE_DATE_EPOCH"):
        source_of(tmp_path, "1.2.3", {"GIT_CEILING_DIRECTORIES": str(tmp_path)})
    assert source_of(tmp_path, "1.2.3", OF_THE_TREE) == Source(tmp_path, "1.2.3", REVISION, EPOCH)
    with pytest.raises(ReleaseError, match="are not a commit"):
        source_of(tmp_path, "1.2.3", {**OF_THE_TREE, "SOURCE_REVISION": "main"})


def test_a_version_without_a_section_in_the_changelog_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    tree = tree_at(tmp_path / "tree")
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\ntext\n")
    done = release(tree, f"--output={tmp_path / 'out'}", "--images=none")
    assert done.returncode == 2
    assert f"no section '## {__version__}'" in done.stderr
    assert "set NOTES=Unreleased" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_without_a_program_that_renders_both_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReleaseError, match="set KUBECTL or KUSTOMIZE"):
        renderer_of("", "")
    assert renderer_of("", "/bin/kustomize") == ["/bin/kustomize", "build"]
    assert renderer_of("kubectl", "kustomize") == ["kubectl", "kustomize"]


def test_what_is_missing_is_said_before_anything_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in OF_THE_TREE.items():
        monkeypatch.setenv(name, value)
    words = [f"--version={__version__}", "--kubectl=kubectl"]
    assert (needs([*words, "--images=none"]), capsys.readouterr().err) == (0, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert needs([*words, "--images=amd64"]) == needs(words) == 2
    missing = (
        "make release: images: no buildah, debootstrap, unshare, chroot (Debian: apt-get install buildah debootstrap)"
    )
    assert capsys.readouterr().err.splitlines() == [f"{missing}; to release without them, say so: IMAGES=none"] * 2
    assert needs(["--images=none", words[0]]) == 2
    assert "neither kubectl nor kustomize is on PATH" in capsys.readouterr().err
    assert needs(["--images=none"]) == 2
    assert "VERSION is required" in capsys.readouterr().err


def test_needs_are_asked_without_any_package_and_before_setup(tmp_path: Path) -> None:
    code = "import sys, release.needs; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"yaml", "packaging", "msgspec"} & set(done.stdout.split())
    done = subprocess.run(
        ["make", "--dry-run", "release", f"BIN={tmp_path}", f"VENV={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert -1 < done.stdout.find("release.needs") < done.stdout.find("-m venv")


@pytest.mark.parametrize(
    "wrong",
    [
        ["--images=none,amd64"],
        ["--images=riscv64"],
        ["--platforms=linux/amd64,linux/amd64"],
        ["--platforms="],
        ["--repository=http://example.com"],
    ],
)
def test_wrong_flags_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([f"--version={__version__}", *wrong])
    assert end.value.code == 2


@dataclass(frozen=True)
class _Built:
    path: Path
    digest: str
    architecture: str


@pytest.fixture
def source() -> Source:
    return Source(ROOT, "1.2.3", REVISION, EPOCH)


def test_no_image_is_built_unless_asked_for(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(monkeypatch, fault="asked for")
    assert build_images(source, REPOSITORY, [], tmp_path) == ""


def test_a_machine_that_cannot_build_images_says_so(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(monkeypatch, fault="no buildah")
    with pytest.raises(ReleaseError, match="images: no buildah; to release without them, say so: IMAGES=none"):
        build_images(source, REPOSITORY, ["amd64"], tmp_path)


def test_images_are_built_of_the_version_and_the_commit(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(monkeypatch, fault="")
    digest = build_images(source, REPOSITORY, ["amd64", "arm64"], tmp_path)
    names = [f"{each}-1.2.3-{REVISION}" for each in ("amd64", "arm64")]
    assert sorted(each.name for each in tmp_path.iterdir()) == [*names, "image-digests.txt"]
    assert (tmp_path / "image-digests.txt").read_text().splitlines() == [
        f"sha256:0  linux/amd64  {names[0]}",
        f"sha256:0  linux/arm64  {names[1]}",
        f"{digest}  linux/amd64,linux/arm64  device-taint-webhook:1.2.3",
    ]
    assert digest == digest_of(image_index([tmp_path / name for name in names]))
    platforms = [each["platform"] for each in json.loads(image_index([tmp_path / name for name in names]))["manifests"]]
    assert platforms == [{"architecture": each, "os": f"{EPOCH} {REPOSITORY}"} for each in ("amd64", "arm64")]
    assert "SOURCE_URL" not in os.environ


def _stand_in(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """In place of what builds an image: it builds a small one, or cannot."""

    def build_archive(architecture: str, version: str, revision: str, folder: Path) -> _Built:
        if fault:
            raise RuntimeError(fault)
        path = folder / f"{architecture}-{version}-{revision}"
        _write_layout(path, architecture, f"{os.environ['SOURCE_DATE_EPOCH']} {os.environ['SOURCE_URL']}")
        return _Built(path, "sha256:0", architecture)

    monkeypatch.setattr("release.images.build_archive", build_archive)


def _write_layout(path: Path, architecture: str, system: str) -> None:
    """An image of which nothing is there but what a list of images needs; its system says what it was built with."""
    manifest = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:0", "size": 1}
    files = {
        "index.json": {"manifests": [{**manifest, "annotations": {}}]},
        "blobs/sha256/0": {"config": {"digest": "sha256:1"}},
        "blobs/sha256/1": {"architecture": architecture, "os": system},
    }
    with tarfile.open(path, "w") as archive:
        for name, document in files.items():
            content = json.dumps(document).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def test_make_passes_what_it_is_given() -> None:
    given = ["VERSION=1.2.3", "REGISTRY=r.example.com", "REPOSITORY=https://example.com", "IMAGES=none", "KUBECTL=mine"]
    command = ["make", "--dry-run", "--assume-old=requirements-dev.lock", "release", *given]
    recipe = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert '-m release --version "$RELEASE_VERSION" --kubectl "mine" --kustomize ""' in recipe
    for flag in ('--registry "r.example.com"', '--repository "https://example.com"', '--images "none"'):
        assert flag in recipe
    assert "--platforms" not in recipe
