"""docs/cli.md has every verb, flag and variable; the examples of each help are command lines; bash completes them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.cli_reference import REFERENCE, ROOT, reference
from webhook.api.names import PROGRAM
from webhook.commands import completion
from webhook.commands.shared.main import main_of
from webhook.commands.verbs import VERBS, command_line_of
from webhook.config.serve import parse_serve
from webhook.config.settings import ENVIRONMENT_PREFIX
from webhook.config.workers import parse_evict, parse_patch

PAGE = REFERENCE.read_text()
PARSERS: dict[str, Any] = {"serve": parse_serve, "evict": parse_evict, "patch": parse_patch}


def test_page_is_what_the_command_lines_make_of_it() -> None:
    assert reference() == PAGE, "run `make docs`"


@pytest.mark.parametrize("verb", VERBS)
def test_page_has_every_flag_of_a_verb(verb: str) -> None:
    """B6."""
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (own,) = [text for text in section if text.startswith(f"{verb}\n")]
    names = {name for action in command_line_of(verb)._actions for name in action.option_strings} - {"-h", "--help"}
    assert names <= set(re.findall(r"--?[a-z][a-z-]*", own))


@pytest.mark.parametrize("verb", PARSERS)
def test_page_has_the_variable_of_each_flag_that_has_one(verb: str) -> None:
    flags = [action for action in command_line_of(verb)._actions if action.dest != "help"]
    expected = {f"{ENVIRONMENT_PREFIX}{flag.dest.upper().replace('-', '_')}" for flag in flags}
    assert set(command_line_of(verb).variables.values()) == expected
    assert expected <= set(re.findall(r"[A-Z_]{8,}", PAGE))
    assert {"NO_COLOR", "FORCE_COLOR"} <= set(re.findall(r"[A-Z_]{8,}", PAGE))


def _examples() -> list[Any]:
    return [pytest.param(verb, each, id=each) for verb in VERBS for each in command_line_of(verb).examples]


@pytest.mark.parametrize(("verb", "example"), _examples())
def test_example_of_the_help_is_a_command_line_of_the_verb(verb: str, example: str) -> None:
    own = example.rsplit(" | ", maxsplit=1)[-1].partition(" > ")[0]
    program, named, *words = shlex.split(own)
    assert (program, named) == (PROGRAM, verb)
    command_line_of(verb).parse_args(words)
    if verb in PARSERS:
        PARSERS[verb](PROGRAM, words, {})


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_examples_and_exit_codes_or_the_environment(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = command_line_of(verb).format_help()
    assert f"examples:\n  {command_line_of(verb).examples[0]}\n" in text
    assert "Exit codes: " in text or ENVIRONMENT_PREFIX in text


# --- completion ---------------------------------------------------------------------------------


@cache
def _script() -> str:
    command = [sys.executable, "-m", "webhook", "completion", "bash"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def completed(*words: str) -> list[str]:
    """What bash offers for the last word."""
    script = f"""
source <(cat <<'SCRIPT'
{_script()}SCRIPT
)
COMP_WORDS=({" ".join(map(shlex.quote, words))})
COMP_CWORD={len(words) - 1}
_device_taint_webhook
printf '%s\\n' "${{COMPREPLY[@]}}"
complete -p {words[0]}
"""
    command = ["bash", "--norc", "-u", "-c", script]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert ended.stderr == ""
    *offered, registered = ended.stdout.splitlines()
    assert "-F _device_taint_webhook" in registered
    return [word for word in offered if word]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ([PROGRAM, "ex"], ["explain", "export-vap"]),
        ([PROGRAM, "check", "--output=j"], ["json", "junit"]),
        (["kubectl-dtaint", "pre"], ["preview"]),
        ([PROGRAM, "check", "--po"], ["--policy", "--policy-configmap"]),
        ([PROGRAM, "check", "--output", "j"], ["json", "junit"]),
        ([PROGRAM, "check", "--output", "=", "y"], ["yaml"]),
        ([PROGRAM, "check", "--output", "="], ["github", "gitlab", "json", "junit", "sarif", "text", "yaml"]),
        ([PROGRAM, "check", "--policy", ""], []),
        ([PROGRAM, "evict", "--mode", "d"], ["delegated"]),
        ([PROGRAM, "evict", "--in-tree", ""], ["active", "absent"]),
        ([PROGRAM, "serve", "--tls-min-version", "VersionTLS13"], ["VersionTLS13"]),
        ([PROGRAM, "completion", ""], ["bash", "fish", "zsh"]),
        ([PROGRAM, "schema", "s"], ["suite"]),
        ([PROGRAM, "frobnicate", "--x"], []),
    ],
    ids=" ".join,
)
def test_bash_completes(words: list[str], offered: list[str]) -> None:
    assert completed(*words) == offered


@pytest.mark.parametrize("shell", ["fish", "zsh"])
def test_other_shells_ask_the_program_too(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_of(completion, [shell]) == 0
    script = capsys.readouterr().out
    assert "__complete" in script
    assert {PROGRAM, "kubectl-dtaint"} <= set(re.findall(r"[\w-]+", script))
    assert [line for line in script.splitlines() if line.count("'") % 2] == []


def test_unknown_shell_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_of(completion, ["tcsh"]) == 2
    assert "invalid choice: 'tcsh'" in capsys.readouterr().err
