"""Where etcd, kube-apiserver, kubectl and their kin are: found, or built from the pinned Go modules next door.

As a command it prints the folder:  python -m tests.controlplane.assets [--version 1.37.2] [--kwok] [--cert-manager]
[--example-driver] [--gang-managers] [--helm]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from tests.controlplane import versions
from tests.controlplane.gobuild import AssetsUnavailableError, GoProgram, Progress, built

_HERE = Path(__file__).parent
_REQUIRED = ("etcd", "kube-apiserver", "kubectl")
EXAMPLE_DRIVER = "dra-example-kubeletplugin"
JOB_SET = "jobset"
LEADER_WORKER_SET = "lws"
_PROGRAMS = (*_REQUIRED, "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True, slots=True)
class Assets:
    """The programs of a control plane."""

    folder: Path
    """Holds etcd, kube-apiserver, kubectl, mostly also kube-controller-manager and kube-scheduler."""
    version: str
    """Of Kubernetes, without v: 1.37.0."""
    kwok: Path | None = None
    """The kwok executable, if it was asked for."""
    cert_manager: Path | None = None
    """The executable with cert-manager's controllers, if it was asked for; its CRDs are beside it, in crds."""
    example_driver: Path | None = None
    """The kubelet plugin of Kubernetes' example driver, if it was asked for."""
    job_set: Path | None = None
    """JobSet's manager, if it was asked for; its CRD is beside it in bases, its webhook configurations in webhook."""
    leader_worker_set: Path | None = None
    """The manager of LeaderWorkerSet, if it was asked for; beside it likewise."""

    def program(self, name: str) -> Path:
        """The path of one program.

        Raises: AssetsUnavailableError if there is none.
        """
        apart = {
            "kwok": self.kwok,
            "cert-manager": self.cert_manager,
            EXAMPLE_DRIVER: self.example_driver,
            JOB_SET: self.job_set,
            LEADER_WORKER_SET: self.leader_worker_set,
        }
        path = apart[name] if name in apart else self.folder / name
        if path is None or not os.access(path, os.X_OK):
            raise AssetsUnavailableError(f"{self.folder} has no {name}")
        return path


def find(
    version: str | None = None,
    *,
    kwok: bool = False,
    cert_manager: bool = False,
    example_driver: bool = False,
    gang_managers: bool = False,
    progress: Progress | None = None,
) -> Assets:
    """The programs of KUBEBUILDER_ASSETS if that is set, else our own build, made now if need be.

    The version is an argument, else ENVTEST_K8S_VERSION, else versions.DEFAULT; what KUBEBUILDER_ASSETS holds is
    taken as it is unless a version was asked for. kwok: build that too, if it is not among them; cert_manager,
    example_driver: build those too; gang_managers: those of JobSet and of LeaderWorkerSet.

    Raises: AssetsUnavailableError.
    """
    tell = progress if progress is not None else _to_stderr
    wanted = (version or os.environ.get("ENVTEST_K8S_VERSION") or "").removeprefix("v")
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if given:
        assets = _given(Path(given), wanted)
    else:
        program = controlplane(wanted or versions.DEFAULT)
        assets = Assets(built(program, tell), wanted or versions.DEFAULT)
    if kwok:
        beside = assets.folder / "kwok"
        path = beside if os.access(beside, os.X_OK) else built(_kwok(), tell) / "kwok"
        assets = replace(assets, kwok=path)
    if cert_manager:
        assets = replace(assets, cert_manager=built(_cert_manager(), tell) / "cert-manager")
    if example_driver:
        assets = replace(assets, example_driver=built(_example_driver(), tell) / EXAMPLE_DRIVER)
    if gang_managers:
        job_set, leader_worker_set = built(_job_set(), tell), built(_leader_worker_set(), tell)
        assets = replace(assets, job_set=job_set / JOB_SET, leader_worker_set=leader_worker_set / LEADER_WORKER_SET)
    return assets


def unbuilt(*, kwok: bool = False) -> list[str]:
    """The names of what `find` would build now, for minutes. Empty as well if it could not, which it says at once."""
    if shutil.which("go") is None:
        return []
    given = os.environ.get("KUBEBUILDER_ASSETS")
    programs = []
    if not given:
        wanted = (os.environ.get("ENVTEST_K8S_VERSION") or versions.DEFAULT).removeprefix("v")
        programs = [controlplane(wanted)] if wanted in available() else []
    if kwok and not os.access(Path(given or "") / "kwok", os.X_OK):
        programs.append(_kwok())
    return [program.name for program in programs if not program.folder.is_dir()]


def controlplane(version: str) -> GoProgram:
    """The one executable that is every program, for a Kubernetes release whose go.mod is here.

    Raises: AssetsUnavailableError for any other release.
    """
    module = _HERE / "binaries"
    modfile = "go.mod" if version == versions.DEFAULT else f"kubernetes-{version}.mod"
    if not (module / modfile).is_file():
        raise AssetsUnavailableError(
            f"no module for Kubernetes {version}; there is {', '.join(available())}, "
            "and KUBEBUILDER_ASSETS for any other"
        )
    _, minor, _ = version.split(".")
    stamp = "-X k8s.io/component-base/version."
    ldflags = f"-s -w {stamp}gitVersion=v{version} {stamp}gitMajor=1 {stamp}gitMinor={minor}"
    return GoProgram(f"kubernetes-{version}", module, modfile=modfile, ldflags=ldflags, links=_PROGRAMS)


def available() -> tuple[str, ...]:
    """The Kubernetes releases that can be built, the default first."""
    others = sorted(path.stem.removeprefix("kubernetes-") for path in (_HERE / "binaries").glob("kubernetes-*.mod"))
    return (versions.DEFAULT, *others)


def _kwok() -> GoProgram:
    module = _HERE / "kwok"
    return GoProgram(f"kwok-{_pinned(module, 'sigs.k8s.io/kwok')}", module, package="sigs.k8s.io/kwok/cmd/kwok")


def _cert_manager() -> GoProgram:
    module, name = _HERE / "certmanager", "github.com/cert-manager/cert-manager"
    return GoProgram(f"cert-manager-{_pinned(module, name)}", module, data=((name, "deploy/crds"),))


def _example_driver() -> GoProgram:
    module, name = _HERE / "exampledriver", "sigs.k8s.io/dra-example-driver"
    return GoProgram(f"{EXAMPLE_DRIVER}-{_pinned(module, name)}", module, package=f"{name}/cmd/{EXAMPLE_DRIVER}")


def selectors() -> GoProgram:
    """Kubernetes' compiler of CEL selectors, a program beside the control plane."""
    module = _HERE / "selectors"
    return GoProgram(f"selectors-{_pinned(module, 'k8s.io/dynamic-resource-allocation')}", module)


def slice_publisher() -> GoProgram:
    """A driver that does nothing but publish slices, by the library of Kubernetes."""
    module = _HERE / "slicepublisher"
    return GoProgram(f"slicepublisher-{_pinned(module, 'k8s.io/dynamic-resource-allocation')}", module)


def evictor_of_1_38() -> GoProgram:
    """The device taint eviction controller of 1.38 alone: what its API server requires is not all published."""
    module = _HERE / "evictor138"
    return GoProgram(f"evictor138-{_pinned(module, 'k8s.io/kubernetes')}", module)


def helm() -> GoProgram:
    """Helm, which renders and installs the chart."""
    module = _HERE / "helm"
    return GoProgram(f"helm-{_pinned(module, 'helm.sh/helm/v4')}", module, package="helm.sh/helm/v4/cmd/helm")


def helm_3() -> GoProgram:
    """Helm 3; the linker sets which Kubernetes it renders for, as its makefile does."""
    module, name = _HERE / "helm3", "helm.sh/helm/v3"
    _, minor, _ = _pinned(module, "k8s.io/client-go").split(".")
    stamp = "-X helm.sh/helm/v3/pkg/"
    settings = [
        f"{stamp}{package}.k8sVersion{part}"
        for package in ("chartutil", "lint/rules")
        for part in ("Major=1", f"Minor={minor}")
    ]
    return GoProgram(
        f"helm-{_pinned(module, name)}", module, package=f"{name}/cmd/helm", ldflags=" ".join(("-s -w", *settings))
    )


def registry() -> GoProgram:
    """A registry of images and charts, in memory."""
    module, name = _HERE / "publishing", "github.com/google/go-containerregistry"
    return GoProgram(f"registry-{_pinned(module, name)}", module, package=f"{name}/cmd/registry")


def actionlint() -> GoProgram:
    """A linter of workflows."""
    module, name = _HERE / "publishing", "github.com/rhysd/actionlint"
    return GoProgram(f"actionlint-{_pinned(module, name)}", module, package=f"{name}/cmd/actionlint")


def _job_set() -> GoProgram:
    module, name = _HERE / "jobset", "sigs.k8s.io/jobset"
    webhook = "config/components/webhook"
    data = ((name, "config/components/crd/bases"), (name, webhook), (name, f"{webhook}/patches"))
    return GoProgram(f"{JOB_SET}-{_pinned(module, name)}", module, package=name, data=data)


def _leader_worker_set() -> GoProgram:
    module, name = _HERE / "leaderworkerset", "sigs.k8s.io/lws"
    data = ((name, "config/crd/bases"), (name, "config/webhook"))
    return GoProgram(f"{LEADER_WORKER_SET}-{_pinned(module, name)}", module, package=f"{name}/cmd", data=data)


def _pinned(module: Path, required: str) -> str:
    """The version that a go.mod requires."""
    found = re.search(rf"^\s*{re.escape(required)} v(\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def _given(folder: Path, wanted: str) -> Assets:
    missing = [name for name in _REQUIRED if not os.access(folder / name, os.X_OK)]
    if missing:
        raise AssetsUnavailableError(f"KUBEBUILDER_ASSETS={folder} has no {', '.join(missing)}")
    try:
        answer = subprocess.run(
            [folder / "kube-apiserver", "--version"], check=True, capture_output=True, text=True, timeout=300
        ).stdout
    except (OSError, subprocess.SubprocessError) as e:
        raise AssetsUnavailableError(f"KUBEBUILDER_ASSETS={folder}: kube-apiserver --version: {e}") from e
    version = answer.strip().removeprefix("Kubernetes v")
    if wanted and wanted != version:
        raise AssetsUnavailableError(
            f"KUBEBUILDER_ASSETS={folder} holds Kubernetes {version}, asked for was {wanted}: "
            "unset one of KUBEBUILDER_ASSETS and ENVTEST_K8S_VERSION"
        )
    return Assets(folder.absolute(), version)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Finds or builds, and prints the folder, and the path of each other program asked for in a line of its own."""
    parser = argparse.ArgumentParser(prog="python -m tests.controlplane.assets", description=__doc__)
    parser.add_argument("--version", help=f"Kubernetes release: {', '.join(available())}")
    parser.add_argument("--kwok", action="store_true", help="kwok too; its path is the next line")
    parser.add_argument("--cert-manager", action="store_true", help="cert-manager's controllers too, in the next line")
    parser.add_argument("--example-driver", action="store_true", help="the example driver's plugin too, likewise")
    parser.add_argument(
        "--gang-managers", action="store_true", help="JobSet's and LeaderWorkerSet's, in two more lines"
    )
    parser.add_argument("--helm", action="store_true", help="Helm too; its path is the last line")
    given = parser.parse_args()
    helm_folder = None
    try:
        helm_folder = built(helm(), _to_stderr) if given.helm else None
        assets = find(
            given.version,
            kwok=given.kwok,
            cert_manager=given.cert_manager,
            example_driver=given.example_driver,
            gang_managers=given.gang_managers,
        )
    except AssetsUnavailableError as e:
        print(e, file=sys.stderr)
        return 1
    print(assets.folder)
    apart = (assets.kwok, assets.cert_manager, assets.example_driver, assets.job_set, assets.leader_worker_set)
    helm_path = helm_folder / "helm" if helm_folder is not None else None
    for path in (*apart, helm_path):
        if path is not None:
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
