"""`--skip-others`: files that a hook names, and that hold nothing that is judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.commands.check_runner import RULE
from tests.unit.commands.shared.test_reports import SUITE
from webhook import cli

OTHERS: dict[str, str | bytes] = {
    "workflow.yaml": "on: push\n",
    "pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n",
    "empty.yaml": "# nothing\n",
    "list.yaml": "- hosts: all\n",
    "words.yaml": "just words\n",
    "number.json": "3\n",
    "template.yaml": "a: {{ .Values.a }}\n  b: [\n",
    "gitlab.yaml": "x: !reference [a, b]\n  y: [\n",
    "utf16.yaml": "a: 1\n".encode("utf-16"),
    "binary.json": b"\xff\xfe\x00{\x80",
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in OTHERS.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "rule.yaml").write_text(RULE)
    (tmp_path / "suite.yaml").write_text(json.dumps(SUITE).replace('"allowed"', '"denied"'))


@pytest.mark.parametrize("name", OTHERS)
def test_file_of_another_kind_is_skipped_and_otherwise_the_error_names_the_flag(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", "--skip-others", name]) == 0
    said = capsys.readouterr()
    assert (said.out.count("\n"), said.err) == (1, "")
    assert cli.main(["check", name]) == (1 if name in ("words.yaml", "number.json") else 2)
    said = capsys.readouterr()
    assert ("--skip-others" in said.out + said.err) is (name != "empty.yaml")


def test_all_of_them_beside_one_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--skip-others", *OTHERS, "rule.yaml"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("11 files, 1 object: 0 errors, 0 warnings; skipped: ")
    assert "4 not readable and without our API groups" in output


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param(RULE.replace("NoSchedule", "Never"), 1, id="invalid"),
        pytest.param(RULE.replace("DeviceTaintRule", "DeviceTaintRul"), 1, id="misspelt kind"),
        pytest.param(RULE.replace("apiVersion: resource.k8s.io/v1\n", ""), 1, id="no version"),
        pytest.param(RULE + "  x: {{ .Values.x }}\n y", 2, id="template of ours"),
    ],
)
def test_what_is_ours_is_not_skipped(text: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ours.yaml").write_text(text)
    assert cli.main(["check", "--skip-others", "ours.yaml"]) == code
    assert "--skip-others" not in capsys.readouterr().out


OF_OURS = RULE + "  x: {{ .Values.x }}\n y"


@pytest.mark.parametrize(
    ("text", "codes", "told"),
    [
        pytest.param(
            "a: {{ .Values.a }}\n  b: [\n", (0, 0), "1 not readable and without our API groups", id="template"
        ),
        pytest.param("x: !reference [a, b]\n  y: [\n", (0, 0), "1 not readable and without", id="tags"),
        pytest.param(OF_OURS, (2, 0), "1 templates that name our API groups, not rendered", id="template of ours"),
        pytest.param(RULE + "\n  y: [\n", (2, 2), "1 unreadable", id="broken, of ours"),
        pytest.param(RULE + '  x: "{{ page }}"\n  y: [\n', (2, 2), "1 unreadable", id="broken, with braces in a text"),
    ],
)
def test_folder_with_a_file_that_cannot_be_read(
    text: str, codes: tuple[int, int], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """M9: a repository has Helm templates."""
    (tmp_path / "folder" / "chart").mkdir(parents=True)
    (tmp_path / "folder" / "chart" / "file.yaml").write_text(text)
    (tmp_path / "folder" / "rule.yaml").write_text(RULE)
    assert cli.main(["check", "folder"]) == codes[0]
    assert ("--skip-others skips templates" in capsys.readouterr().out) is (text == OF_OURS)
    assert cli.main(["check", "--skip-others", "--warnings-as-errors", "folder"]) == codes[1]
    said = capsys.readouterr().out
    assert told in said
    assert ("file.yaml" in said) is ("resource.k8s.io" in text)
    assert cli.main(["audit", "--allow-empty", "--dump", "folder"]) == 2


@pytest.mark.parametrize("name", ["folder", "folder/rule.yaml"])
def test_folder_or_file_that_cannot_be_opened_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "rule.yaml").symlink_to("nowhere.yaml")
    assert cli.main(["check", "--skip-others", name]) == 2


def test_file_that_is_not_there_is_not_skipped() -> None:
    assert cli.main(["check", "--skip-others", "gone.yaml"]) == 2
    assert cli.main(["test", "--skip-others", "gone.yaml"]) == 2


def test_file_without_a_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["test", "suite.yaml", "rule.yaml"]) == 2
    assert (
        "rule.yaml: error: contains no DeviceTaintPolicyTest; --skip-others skips such files" in capsys.readouterr().out
    )
    assert cli.main(["test", "--skip-others", "suite.yaml", "rule.yaml", "template.yaml"]) == 0
    assert cli.main(["test", "--skip-others", *OTHERS]) == 0
    assert cli.main(["test", "--skip-others", "suite.yaml", "--run", "zzz"]) == 2
