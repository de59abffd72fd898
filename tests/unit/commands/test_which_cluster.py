"""Which cluster the verbs ask that look at one, and what the kubectl plugin calls itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.unit.commands.preview_runner import rule
from tests.unit.commands.runner import Ran
from webhook.commands.verbs import VERBS as VERBS_BY_NAME

VERBS = (
    ["doctor"],
    ["audit"],
    ["preview", "rule.yaml"],
    ["status"],
    ["unregister"],
    ["taint", "gpu.example.com/node-0/gpu-0", "a:None"],
    ["untaint", "gpu.example.com/node-0/gpu-0", "a-"],
    ["list"],
    ["drain", "node-0"],
)


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not in a pod, with an empty home, in a folder with a rule."""
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/device-taint-webhook"])
    (tmp_path / "rule.yaml").write_text(json.dumps(rule()))


def write_kubeconfig(path: Path, *contexts: str) -> None:
    """Contexts whose servers are discard ports of hosts that there are not; the first one is current."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "current-context": contexts[0],
        "contexts": [{"name": name, "context": {"cluster": name}} for name in contexts],
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}.invalid:9"}} for name in contexts],
    }
    path.write_text(json.dumps(content))


def told(words: list[str], ran: Ran) -> str:
    code, output, error = ran(*words)
    assert (code, error.count("\n")) == (2, 1), (output, error)
    return error


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_a3_the_cluster_of_the_variable_or_of_the_home_is_asked(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    write_kubeconfig(tmp_path / ".kube" / "config", "home")
    assert "home.invalid:9: no such host" in told(words, ran)
    write_kubeconfig(tmp_path / "mine", "variable", "other")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "mine"))
    assert "variable.invalid:9: no such host" in told(words, ran)
    assert "other.invalid:9: no such host" in told([*words, "--context", "other"], ran)
    assert "other.invalid:9: no such host" in told(["--context=other", *words], ran)
    assert "other.invalid:9: no such host" in told(["--context", "other", *words], ran)
    assert 'there is no context "prod"; there are other, variable' in told([*words, "--context", "prod"], ran)


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_a3_a_file_that_is_not_there_is_named(words: list[str], monkeypatch: pytest.MonkeyPatch, ran: Ran) -> None:
    name = f"device-taint-webhook {words[0]}"
    assert told([*words, "--kubeconfig", "typo"], ran) == f"{name}: typo: no such file\n"
    assert "no cluster: there is no " in told(words, ran)
    monkeypatch.setenv("KUBECONFIG", "typo")
    assert "$KUBECONFIG names typo (not found)" in told(words, ran)


@pytest.mark.parametrize("called", ["kubectl-dtaint", "kubectl-dtaint.exe"])
@pytest.mark.parametrize(
    "words",
    [*VERBS, ["check"], ["test"], ["export-vap"], ["serve"], ["evict", "--mode", "x"]],
    ids=lambda words: words[0],
)
def test_m9_the_plugin_calls_itself_as_kubectl_does_in_errors_and_usage(
    called: str, words: list[str], monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    monkeypatch.setattr(sys, "argv", [f"/home/dana/.krew/bin/{called}"])
    name = f"kubectl dtaint {words[0]}"
    code, _, error = ran(*words)
    assert (code, name in error) == (2, True)
    assert "device-taint-webhook" not in error.replace("device-taint-webhook/", "")
    code, output, _ = ran(words[0], "--help")
    assert (code, f"usage: {name} " in output) == (0, True)


@pytest.mark.parametrize("verb", VERBS_BY_NAME)
def test_m9_the_examples_of_the_help_are_those_of_the_plugin(
    verb: str, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/dana/.krew/bin/kubectl-dtaint"])
    code, output, _ = ran(verb, "--help")
    assert code == 0
    _, examples = output.split("examples:\n")
    assert f"kubectl dtaint {verb}" in examples.splitlines()[0]
    assert f"device-taint-webhook {verb}" not in examples
