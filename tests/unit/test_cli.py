"""The command line: verbs, help, and what is imported for them."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from argparse import Namespace
from typing import Any

import pytest

from webhook import __version__, cli
from webhook.commands.verbs import VERBS, command_line_of, module_of
from webhook.config.command_line import CommandLine

HELP = """\
Makes Kubernetes device taints safe.

Usage: device-taint-webhook VERB [FLAGS]

Files:
  check      review manifests in files as the webhook would
  explain    explain why a policy allows or refuses, what taints do to an
             object, or a warning code
  preview    show which pods a taint would evict, when and why
  test       run test suites of policies
  diff       show which objects two policies judge differently
  export-vap print the part of a policy that Kubernetes can enforce by itself
  schema     print the JSON Schema of policies or of test suites, for editors
  completion print a shell completion script for these verbs and their flags

Devices:
  list       list tainted devices with their taints, sources and pods
  status     show what is being evicted, and what each pod waits for
  taint      taint devices with DeviceTaintRules, as kubectl taint does nodes
  untaint    remove the DeviceTaintRules that people have set on devices
  drain      taint the devices of a node or pool, have their pods evicted
             gently, and watch

Cluster:
  audit      list stored claims and templates that the policy would refuse
             today
  doctor     check whether an installation is healthy
  unregister delete the webhook configurations, before the webhook is
             uninstalled

Daemons:
  serve      answer admission reviews over HTTPS
  evict      evict pods from tainted devices, gently
  patch      turn ResourceSlicePatches into DeviceTaintRules, and keep them up
             to date

`device-taint-webhook VERB --help` lists the flags of a verb;
`device-taint-webhook --version` prints the version.
Exit codes: 0 fine, 1 findings, 2 wrong usage, unreadable input or no cluster.
"""


ORDER = re.findall(r"^  (\S+)", HELP, re.MULTILINE)


@pytest.fixture(autouse=True)
def called_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/device-taint-webhook"])
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_goes_to_stdout(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([word]) == 0
    assert capsys.readouterr() == (HELP, "")


def test_no_verb_is_a_mistake_that_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert capsys.readouterr() == ("", HELP)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"device-taint-webhook {__version__}\n"


def test_plugin_calls_itself_as_kubectl_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/kubectl-dtaint", "--version"])
    assert cli.main() == 0
    assert capsys.readouterr().out == f"kubectl dtaint {__version__}\n"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("chekc", "did you mean check?"),
        ("ta", "did you mean taint?"),
        ("d", "did you mean diff, doctor or drain?"),
        ("e", "did you mean evict, explain or export-vap?"),
        ("frobnicate", f"verbs are {', '.join(ORDER)}"),
    ],
)
def test_unknown_verb_is_named_with_a_hint(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([word]) == 2
    assert capsys.readouterr() == ("", f"device-taint-webhook: unknown verb '{word}'; {hint}\n")


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_is_as_wide_as_the_terminal_and_no_word_is_cut(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        return command_line_of(verb).format_help() if verb else cli._help()

    def words(text: str) -> list[str]:
        return re.sub(r"(?<=[,/])\s+", "", text.replace(" \\\n", "")).split()

    narrow = shown(60)
    assert [line for line in narrow.splitlines() if len(line) > 60] == []
    assert words(narrow) == words(shown(10_000))
    if verb:
        shown_examples = narrow.partition("examples:\n")[2].partition("\n\n")[0].replace(" \\\n", " ").splitlines()
        assert [*map(shlex.split, shown_examples)] == [*map(shlex.split, command_line_of(verb).examples)]


def stand_in(monkeypatch: pytest.MonkeyPatch, verb: str, run: Any) -> None:
    monkeypatch.setattr(importlib.import_module(module_of(verb)), "run", run)


def test_verb_gets_the_rest_of_the_line_and_gives_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def run(_: Namespace, parser: CommandLine) -> int:
        seen.append(parser.given)
        return 1

    stand_in(monkeypatch, "check", run)
    assert cli.main(["check", "-o", "json", "x.yaml"]) == 1
    assert seen == [["-o", "json", "x.yaml"]]


def test_every_verb_has_its_module() -> None:
    for verb in VERBS:
        assert importlib.util.find_spec(module_of(verb)) is not None


def test_interrupt_is_the_shells_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: list[str]) -> int:
        raise KeyboardInterrupt

    stand_in(monkeypatch, "serve", run)
    assert cli.main(["serve"]) == 130


def test_help_imports_no_verb() -> None:
    code = "import sys, webhook.cli; webhook.cli.main(['--help']); print(*sys.modules, sep='\\n')"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {name.partition(".")[0] for name in modules} & {"aiohttp", "cryptography", "msgspec", "yaml", "uvloop"}


def test_module_can_be_run() -> None:
    command = [sys.executable, "-m", "webhook", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, f"device-taint-webhook {__version__}\n")
