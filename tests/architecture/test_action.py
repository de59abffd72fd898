"""The composite GitHub action: its file is one, and its steps do what it says, run by bash as a runner runs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.unit.commands.check_runner import RULE
from tests.unit.commands.shared.test_reports import SUITE

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).parents[2]
ACTION: Final = yaml.safe_load((ROOT / "action.yml").read_text())
_TEXT: Final = {"type": "string", "minLength": 1}
_STEP: Final = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("name", "id", "if", "run", "shell", "working-directory"), _TEXT),
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["name", "run", "shell"],
    "additionalProperties": False,
}
SCHEMA: Final = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "description": _TEXT,
        "inputs": {
            "patternProperties": {
                "^[a-z_][a-z0-9_-]*$": {
                    "properties": {
                        "description": _TEXT,
                        "default": {"type": "string"},
                        "required": {"type": "boolean"},
                    },
                    "required": ["description"],
                    "additionalProperties": False,
                }
            },
            "additionalProperties": False,
        },
        "outputs": {
            "additionalProperties": {
                "properties": {"description": _TEXT, "value": _TEXT},
                "required": ["description", "value"],
                "additionalProperties": False,
            }
        },
        "runs": {
            "properties": {"using": {"const": "composite"}, "steps": {"type": "array", "minItems": 1, "items": _STEP}},
            "required": ["using", "steps"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "description", "runs"],
    "additionalProperties": False,
}
"""What a runner takes for a composite action (its own src/Runner.Worker/action_yaml.json), as a JSON Schema."""
_EXPRESSION: Final = re.compile(r"\$\{\{ *(.+?) *\}\}")


class ActionRunner:
    """Runs the steps as a runner does: inputs put in, each script by `bash -eo pipefail`, files for what steps say."""

    def __init__(self, folder: Path, work: Path) -> None:
        """`work` is the repository that is checked, `folder` is for everything else."""
        self.work = work
        self.temp = folder / "temp"
        self.path = [Path(sys.executable).parent]
        self._files = {name: folder / name for name in ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")}
        programs = self.temp / "device-taint-webhook/bin"
        programs.mkdir(parents=True)
        (programs / "device-taint-webhook").symlink_to(self.path[0] / "device-taint-webhook")
        for file in self._files.values():
            file.touch()

    def run(self, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        """One step, by its name."""
        (step,) = (each for each in ACTION["runs"]["steps"] if each["name"] == name)
        given = {key: str(about.get("default", "")) for key, about in ACTION["inputs"].items()} | inputs

        def put_in(match: re.Match[str]) -> str:
            return given[match[1].removeprefix("inputs.")]

        script = self.temp / "step.sh"
        script.write_text(step["run"])
        environment = {
            "PATH": os.pathsep.join([*map(str, self.path), os.environ["PATH"]]),
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_ACTION_PATH": str(ROOT),
            **{key: str(file) for key, file in self._files.items()},
            **{key: _EXPRESSION.sub(put_in, text) for key, text in step["env"].items()},
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        return subprocess.run(
            command, cwd=self.work, env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    def said(self, name: str) -> str:
        """What steps have written into one of the runner's files."""
        return self._files[name].read_text()


@pytest.fixture
def runner(tmp_path: Path) -> ActionRunner:
    (tmp_path / "work").mkdir()
    made = ActionRunner(tmp_path, tmp_path / "work")
    (made.work / "rule.yaml").write_text(RULE)
    (made.work / "a b.yaml").write_text(RULE.replace("NoSchedule", "Never"))
    return made


def test_the_file_is_a_composite_action() -> None:
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(ACTION)] == []
    assert set(ACTION["inputs"]) == {"version", "policy", "tests", "paths", "args"}


def test_no_script_has_an_expression_in_its_text() -> None:
    """An input in the text of a script could be a command."""
    assert [step["name"] for step in ACTION["runs"]["steps"] if "${{" in step["run"]] == []


def test_expressions_name_inputs_and_steps_that_there_are() -> None:
    steps = {step["id"] for step in ACTION["runs"]["steps"] if "id" in step}
    for found in _EXPRESSION.findall((ROOT / "action.yml").read_text().replace("${{ }}", "")):
        kind, name, *_ = found.split(".")
        assert name in (ACTION["inputs"] if kind == "inputs" else steps), found


def test_findings_become_annotations_a_summary_and_sarif(runner: ActionRunner) -> None:
    done = runner.run("check manifests")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("::error file=a b.yaml,line=10,col=13,title=FieldValueNotSupported ")
    (name, sarif) = runner.said("GITHUB_OUTPUT").rstrip("\n").split("=")
    (run,) = json.loads(Path(sarif).read_text())["runs"]
    assert (name, len(run["results"])) == ("sarif", 1)
    assert [line[:4] for line in runner.said("GITHUB_STEP_SUMMARY").splitlines()] == ["    "] * 2
    assert ACTION["outputs"]["sarif"]["value"] == "${{ steps.check.outputs.sarif }}"


@pytest.mark.parametrize(
    ("inputs", "code", "files"),
    [
        ({"paths": "rule.yaml"}, 0, 1),
        ({"paths": "rule.yaml 'a b.yaml'"}, 1, 2),
        ({"paths": 'rule.yaml\n"a b.yaml"\n'}, 1, 2),
        ({"paths": "rule.yaml", "policy": "policy.yaml", "args": "--user mila --warnings-as-errors"}, 0, 1),
        ({"paths": "rule.yaml", "args": "--warnigs-as-errors"}, 2, None),
        ({"paths": "rule.yaml", "args": "'unclosed"}, 1, None),
        ({"paths": "'new\nline.yaml' rule.yaml"}, 0, 2),
        ({"paths": "--policy=x"}, 2, 1),
        ({"paths": "$(touch ran) `touch ran` ; touch ran"}, 2, 7),
    ],
)
def test_inputs_become_flags(inputs: Mapping[str, str], code: int, files: int | None, runner: ActionRunner) -> None:
    policy = {"apiVersion": "policy.devicetaint.io/v1alpha1", "kind": "DeviceTaintPolicy"}
    (runner.work / "policy.yaml").write_text(json.dumps(policy))
    (runner.work / "new\nline.yaml").write_text(RULE)
    done = runner.run("check manifests", **inputs)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("::error::a quote is not closed" in done.stdout) is (inputs.get("args") == "'unclosed")
    found = re.search(r"^(\d+) files?, ", done.stdout, re.MULTILINE)
    assert (None if found is None else int(found[1])) == files
    assert not (runner.work / "ran").exists()


@pytest.mark.parametrize("paths", [None, ".", *[pytest.param(each, marks=pytest.mark.whole) for each in ("./", ".\n")]])
def test_a_repository_with_helm_templates_passes(paths: str | None, runner: ActionRunner) -> None:
    """M9."""
    (runner.work / "a b.yaml").unlink()
    (runner.work / "chart/templates").mkdir(parents=True)
    for name, text in {"web": "{{- if .Values.web }}\na: b\n{{- end }}\n", "rule": f"{{{{- if .x }}}}\n{RULE}"}.items():
        (runner.work / f"chart/templates/{name}.yaml").write_text(text)
    done = runner.run("check manifests", **({} if paths is None else {"paths": paths}), args="--warnings-as-errors")
    assert done.returncode == 0, done.stdout
    (told,) = [line for line in done.stdout.splitlines() if "chart/templates/rule.yaml" in line]
    assert told.startswith("::notice ")
    assert runner.run("check manifests", paths="rule.yaml chart/templates/web.yaml").returncode == 2
    assert runner.run("check manifests", paths="chart").returncode == 2


def test_an_error_is_one_line_whatever_is_in_it(runner: ActionRunner) -> None:
    done = runner.run("check manifests", paths="rule.yaml\n::stop-commands::x\r\n100% 'a")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "::error::a quote is not closed in: rule.yaml%0A::stop-commands::x%0D%0A100%25 'a\n"


def test_suites_run_before_with_annotations(runner: ActionRunner) -> None:
    step = next(each for each in ACTION["runs"]["steps"] if each["name"] == "run policy tests")
    assert step["if"] == "inputs.tests != ''"
    (runner.work / "suite.yaml").write_text(json.dumps(SUITE))
    done = runner.run("run policy tests", tests=".")
    assert (done.returncode, done.stdout.count("::error file=suite.yaml,line=1,")) == (1, 1)


@pytest.mark.parametrize(
    ("version", "installed"),
    [
        ("", [f"--require-hashes -r {ROOT}/requirements.lock", f"--no-deps {ROOT}"]),
        ("1.2.3", ["device-taint-webhook==1.2.3"]),
    ],
)
def test_the_action_installs_itself_or_the_version_that_is_asked_for(
    version: str, installed: list[str], runner: ActionRunner
) -> None:
    """With a Python that makes an environment whose pip only writes down what it is to install."""
    programs = runner.temp / "programs"
    programs.mkdir()
    fake = programs / "python3"
    fake.write_text(
        '#!/bin/sh\ncase "$*" in\n'
        '"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;\n'
        '"-m pip "*) shift 5; echo "$*" >> "$RUNNER_TEMP/installed" ;;\n'
        "esac\n"
    )
    fake.chmod(0o755)
    runner.path.insert(0, programs)
    done = runner.run("install device-taint-webhook", version=version)
    assert (done.returncode, done.stderr) == (0, "")
    assert (runner.temp / "installed").read_text().splitlines() == installed
    # Later steps of the job keep their own Python.
    assert runner.said("GITHUB_PATH") == ""


def test_an_old_python_is_an_error_that_names_the_way_out(runner: ActionRunner) -> None:
    programs = runner.temp / "programs"
    programs.mkdir()
    (programs / "python3").write_text("#!/bin/sh\nexit 1\n")
    (programs / "python3").chmod(0o755)
    runner.path.insert(0, programs)
    done = runner.run("install device-taint-webhook")
    assert done.returncode == 1
    assert done.stdout.startswith("::error::Python 3.11 or later is needed")
