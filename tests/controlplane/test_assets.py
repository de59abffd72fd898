"""Finding and building the programs of a control plane."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.controlplane import assets, versions
from tests.controlplane.gobuild import AssetsUnavailableError, GoProgram, _Output, built

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBEBUILDER_ASSETS", "ENVTEST_K8S_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DEVICE_TAINT_WEBHOOK_CACHE", str(tmp_path / "cache"))


def _program(path: Path, says: str = "") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A KUBEBUILDER_ASSETS folder with what setup-envtest would put there."""
    folder = tmp_path / "given"
    for name in ("etcd", "kubectl"):
        _program(folder / name)
    _program(folder / "kube-apiserver", "Kubernetes v1.36.1")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(folder))
    return folder


# --- KUBEBUILDER_ASSETS --------------------------------------------------------------------------


def test_given_assets_are_taken_with_their_own_version(given: Path) -> None:
    assert assets.find() == assets.Assets(given, "1.36.1")


def test_given_assets_may_bring_their_own_kwok(given: Path) -> None:
    _program(given / "kwok")
    assert assets.find(kwok=True).kwok == given / "kwok"


@pytest.mark.usefixtures("given")
def test_given_assets_of_another_version_than_asked_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVTEST_K8S_VERSION", "v1.34.4")
    with pytest.raises(AssetsUnavailableError, match=r"holds Kubernetes 1\.36\.1, asked for was 1\.34\.4"):
        assets.find()


def test_what_given_assets_lack_is_named(given: Path) -> None:
    (given / "etcd").unlink()
    with pytest.raises(AssetsUnavailableError, match="has no etcd"):
        assets.find()


@pytest.mark.usefixtures("given")
def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(AssetsUnavailableError, match="has no kube-scheduler"):
        assets.find().program("kube-scheduler")


# --- our own build -------------------------------------------------------------------------------


def test_without_go_and_without_assets_the_message_names_both_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(AssetsUnavailableError, match=r"install Go .* or set KUBEBUILDER_ASSETS"):
        assets.find()


def test_a_release_that_cannot_be_built_is_answered_with_those_that_can() -> None:
    with pytest.raises(AssetsUnavailableError, match=rf"no module for Kubernetes 1\.2\.3; there is {versions.DEFAULT}"):
        assets.find("1.2.3")


def test_every_release_for_a_matrix_has_its_pinned_sums() -> None:
    for release in assets.available():
        program = assets.controlplane(release)
        module = (program.module / program.modfile).read_text()
        assert f"k8s.io/kubernetes v{release}" in module
        assert f"k8s.io/kubernetes v{release} h1:" in (program.module / program.modfile).with_suffix(".sum").read_text()


@pytest.mark.parametrize(
    ("program", "executable", "module", "brings"),
    [
        (assets._cert_manager(), "cert-manager", "github.com/cert-manager/cert-manager", {"crds"}),
        (assets.helm_3(), "helm", "helm.sh/helm/v3", set()),
        (assets.helm(), "helm", "helm.sh/helm/v4", set()),
        (assets._example_driver(), assets.EXAMPLE_DRIVER, "sigs.k8s.io/dra-example-driver", set()),
        (assets._job_set(), assets.JOB_SET, "sigs.k8s.io/jobset", {"bases", "webhook"}),
        (assets._leader_worker_set(), assets.LEADER_WORKER_SET, "sigs.k8s.io/lws", {"bases", "webhook"}),
        (assets.evictor_of_1_38(), "evictor138", "k8s.io/kubernetes", set()),
    ],
    ids=["cert-manager", "helm 3", "helm 4", "example driver", "jobset", "leader worker set", "evictor of 1.38"],
)
def test_versions_of_other_programs_are_pinned_and_bring_their_kinds(
    program: GoProgram, executable: str, module: str, brings: set[str]
) -> None:
    assert program.executable == executable
    assert {required for required, _ in program.data} == ({module} if brings else set())
    assert brings <= {Path(folder).name for _, folder in program.data}
    version = program.name.removeprefix(f"{executable}-")
    assert f"{module} v{version} h1:" in (program.module / "go.sum").read_text()


@pytest.fixture
def hello(tmp_path: Path) -> GoProgram:
    """A Go module that builds in a second."""
    if shutil.which("go") is None:
        if os.environ.get("CI"):
            pytest.fail("in CI there must be Go")
        pytest.skip("no Go")
    module = tmp_path / "hello"
    module.mkdir()
    (module / "go.mod").write_text("module hello\n\ngo 1.24\n")
    (module / "go.sum").write_text("")
    (module / "main.go").write_text('package main\n\nimport "os"\n\nfunc main() { println(os.Args[0]) }\n')
    return GoProgram("hello-1", module, links=("a", "b"))


@pytest.mark.apiserver
def test_two_at_the_same_time_build_once(hello: GoProgram) -> None:
    told: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: built(hello, told.append), range(2))
    assert first == second
    assert len([line for line in told if line.startswith("building")]) == 1
    assert sorted(path.name for path in first.iterdir()) == ["a", "b", "hello"]
    answer = subprocess.run([first / "b"], check=True, capture_output=True, text=True)
    assert answer.stderr.strip().endswith("/b")


@pytest.mark.apiserver
def test_a_build_is_used_again_until_its_source_changes(hello: GoProgram) -> None:
    told: list[str] = []
    first = built(hello, told.append)
    told.clear()
    assert built(hello, told.append) == first
    assert told == []
    with (hello.module / "main.go").open("a") as source:
        source.write("\n// changed\n")
    assert built(hello, told.append) != first


@pytest.mark.apiserver
def test_files_of_a_module_lie_beside_the_executable_and_can_be_removed(hello: GoProgram) -> None:
    (hello.module / "data/deeper").mkdir(parents=True)
    (hello.module / "data/kind.yaml").write_text("kind: Hello\n")
    (hello.module / "data/kind.yaml").chmod(0o444)  # as in Go's module cache
    folder = built(replace(hello, data=(("hello", "data"),)), lambda _: None)
    assert [path.name for path in (folder / "data").iterdir()] == ["kind.yaml"]
    assert (folder / "data/kind.yaml").read_text() == "kind: Hello\n"
    assert (folder / "data/kind.yaml").stat().st_mode & 0o200


@pytest.mark.apiserver
def test_a_module_that_is_not_required_is_named(hello: GoProgram) -> None:
    with pytest.raises(AssetsUnavailableError, match=r"go list .* example\.com/none"):
        built(replace(hello, data=(("example.com/none", "data"),)), lambda _: None)
    assert [path.name for path in hello.folder.parent.iterdir() if path.is_dir()] == []


@pytest.mark.apiserver
def test_a_build_that_fails_says_why_and_leaves_nothing(hello: GoProgram) -> None:
    (hello.module / "main.go").write_text("package main\n\nfunc main() { undefined() }\n")
    with pytest.raises(AssetsUnavailableError, match="undefined: undefined"):
        built(hello, lambda _: None)
    assert [path.name for path in hello.folder.parent.iterdir()] == [hello.folder.name + ".lock"]


# --- what tests make of it -----------------------------------------------------------------------


def _run_a_test_without_a_control_plane(tmp_path: Path, **environment: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    test = "tests/controlplane/test_plane.py::test_server_version_is_what_the_server_says"
    inherited = {k: v for k, v in os.environ.items() if k != "CI"}
    done = subprocess.run(
        [*command, test],
        cwd=ROOT,
        env={**inherited, "KUBEBUILDER_ASSETS": str(tmp_path / "empty"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_without_a_control_plane_tests_are_skipped_with_the_reason(tmp_path: Path) -> None:
    code, output = _run_a_test_without_a_control_plane(tmp_path)
    assert code == 0, output
    assert "1 skipped" in output
    assert "no control plane: KUBEBUILDER_ASSETS=" in output


def test_in_ci_such_a_skip_is_a_failure(tmp_path: Path) -> None:
    code, output = _run_a_test_without_a_control_plane(tmp_path, CI="true")
    assert code == 1, output
    assert "in CI the control plane must be there: KUBEBUILDER_ASSETS=" in output


# --- what would be built --------------------------------------------------------------------------


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Go on the path, and nothing else."""
    _program(tmp_path / "bin" / "go")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.mark.usefixtures("go")
def test_what_is_not_in_the_cache_would_be_built() -> None:
    program = assets.controlplane(versions.DEFAULT)
    names = assets.unbuilt(kwok=True)
    assert (names[0], names[1].partition("-")[0], len(names)) == (program.name, "kwok", 2)
    program.folder.mkdir(parents=True)
    assert assets.unbuilt(kwok=True) == names[1:]
    assert assets.unbuilt() == []


@pytest.mark.usefixtures("go")
def test_of_a_given_folder_only_kwok_would_be_built(given: Path) -> None:
    assert [name.partition("-")[0] for name in assets.unbuilt(kwok=True)] == ["kwok"]
    _program(given / "kwok")
    assert assets.unbuilt(kwok=True) == []


def test_without_go_or_with_an_unknown_release_nothing_would_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENVTEST_K8S_VERSION", "1.12.0")
    assert assets.unbuilt() == []
    monkeypatch.delenv("ENVTEST_K8S_VERSION")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert assets.unbuilt(kwok=True) == []


@pytest.mark.parametrize(
    ("total", "lines", "state"),
    [
        (0, [], "reading modules"),
        (0, ["go: downloading k8s.io/api v0.37.0"], "1 modules downloaded"),
        (8, [], "nothing of 8 packages compiled so far: reading modules, or linking"),
        (8, ["k8s.io/api/core/v1", "net/http"], "25 %, 2 of 8 packages compiled"),
    ],
)
def test_a_build_says_how_far_it_is(total: int, lines: list[str], state: str) -> None:
    output = _Output(io.StringIO("\n".join(lines)), total)
    output.follow()
    assert output.state == state
