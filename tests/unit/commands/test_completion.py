"""Suggestions for what is being typed: verbs, flags, their values, and names in the cluster."""

from __future__ import annotations

import asyncio
import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.builders import DRIVER, make_device, make_meta, make_pod, make_slice
from tests.unit.commands.api_server import ApiServer, bare, serving
from tests.unit.commands.status_runner import IDLE, RULE
from webhook import cli
from webhook.commands import cluster_names
from webhook.commands.cluster_names import names_of
from webhook.commands.completion import FILES, NO_FILES, cluster_flags, suggestions_for
from webhook.commands.shared.flags import credentials_of
from webhook.commands.verbs import VERBS

NAMES: Final = {
    "rules": ["firmware", "idle"],
    "pods": ["web-0", "web-1"],
    "devices": ["d/p/gpu-0"],
    "contexts": ["prod", "staging"],
    "namespaces": ["ml"],
    "claims": ["train"],
}


@pytest.mark.parametrize(
    ("words", "found", "directive"),
    [
        ([""], list(VERBS), NO_FILES),
        (["sta"], ["status"], NO_FILES),
        (["-n", "ml", "sta"], ["status"], NO_FILES),
        (["--context", "st"], ["staging"], NO_FILES),
        (["--con"], ["--context"], NO_FILES),
        (["nosuch", ""], [], NO_FILES),
        (["status", "--lim"], ["--limit"], NO_FILES),
        (["status", "-o", ""], ["json", "text", "yaml"], NO_FILES),
        (["status", "--output=j"], ["--output=json"], NO_FILES),
        (["status", "--limit", ""], [], NO_FILES),
        (["status", "--kubeconfig", ""], [], FILES),
        (["status", "--policy", ""], [], FILES),
        (["status", "--context", ""], ["prod", "staging"], NO_FILES),
        (["status", ""], ["firmware", "idle"], NO_FILES),
        (["status", "firmware", ""], ["idle"], NO_FILES),
        (["status", "-o", "json", "f"], ["firmware"], NO_FILES),
        (["explain", ""], ["pod", "claim", "device", "rule"], FILES),
        (["explain", "pod", ""], ["web-0", "web-1"], NO_FILES),
        (["explain", "-n", "ml", "claim", ""], ["train"], NO_FILES),
        (["explain", "-n", ""], ["ml"], NO_FILES),
        (["explain", "device", "d"], ["d/p/gpu-0"], NO_FILES),
        (["explain", "pod", "web-0", ""], [], FILES),
        (["check", ""], [], FILES),
        (["diff", "l"], ["live"], FILES),
        (["completion", ""], ["bash", "fish", "zsh"], NO_FILES),
        (["doctor", ""], [], NO_FILES),
    ],
)
def test_words_fit_what_has_been_typed(
    words: list[str], found: list[str], directive: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_names, "names_of", lambda what, _: NAMES[what])
    suggested = suggestions_for(words)
    assert ([word for word, _ in suggested.words], suggested.directive) == (found, directive)


def test_answer_is_in_cobras_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["__complete", "schem"]) == 0
    assert capsys.readouterr().out == f"schema\t{VERBS['schema']}\n:4\n"
    assert cli.complete(["status", "--watc"]) == 0
    assert capsys.readouterr().out.startswith("--watch\t")


def test_flags_that_choose_a_cluster_are_read_from_half_a_line() -> None:
    found = cluster_flags(["status", "--context", "prod", "-n", "ml", "--kubeconfig=k", "-o"])
    assert (found.context, found.namespace, found.kubeconfig) == ("prod", "ml", "k")
    assert vars(cluster_flags(["--context"]))["context"] is None


def test_packages_install_the_executable_that_kubectl_looks_for() -> None:
    scripts = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["kubectl_complete-dtaint"].partition(":")
    assert getattr(importlib.import_module(module), function) is cli.complete


# --- names --------------------------------------------------------------------------------------


@pytest.fixture
def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    tables = ApiServer()
    group = "/apis/resource.k8s.io/v1"
    tables.objects = {
        group: {"resources": [{"name": "devicetaintrules"}, {"name": "resourceslices"}]},
        f"{group}/devicetaintrules": {"items": [bare(RULE), bare(IDLE)]},
        f"{group}/resourceslices": {"items": [bare(make_slice([make_device("gpu-0")], meta=make_meta("s")))]},
        "/api/v1/namespaces/ml/pods": {"items": [bare(make_pod("web-0"))]},
        "/api/v1/nodes": 403,
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(cluster_names, "_SECONDS", 60.0)  # a busy machine may have no answer while a shell waits
    with serving(tables, tmp_path):
        yield tables


def ask(what: str, *words: str) -> list[str]:
    return names_of(what, cluster_flags(["--kubeconfig", "kubeconfig", *words]))


def test_names_come_from_the_cluster_that_the_flags_choose(api_server: ApiServer, tmp_path: Path) -> None:
    assert ask("rules") == ["firmware", "idle"]
    (device,) = ask("devices")
    assert device.startswith(f"{DRIVER}/")
    assert ask("pods", "-n", "ml") == ["web-0"]
    assert ask("contexts") == ["here"]
    config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    config["contexts"][0]["context"]["namespace"] = "ml"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    assert ask("pods") == ["web-0"]
    assert api_server.sent == []


def test_without_rights_or_a_cluster_there_are_no_names(api_server: ApiServer) -> None:
    assert ask("nodes") == []
    assert ask("pods", "--context", "none") == []
    assert names_of("pods", cluster_flags(["--kubeconfig", "missing"])) == []
    assert api_server.sent == []


@pytest.mark.usefixtures("api_server")
def test_names_are_those_that_the_user_to_act_as_may_read() -> None:
    words = ["--kubeconfig=kubeconfig", "--as", "jane", "--as-group=ml", "--as-group", "ops", "--as-uid", "7"]
    access = asyncio.run(credentials_of(cluster_flags([*words, "list", "--as-group"])).load())
    assert access.impersonation == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "ml"),
        ("Impersonate-Group", "ops"),
    )
