"""`--skip-others`: files that a hook names, and that hold nothing that is judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.commands.check_runner import RULE
from tests.unit.commands.runner import Ran
from tests.unit.commands.shared.test_reports import SUITE

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
def test_file_of_another_kind_is_skipped_and_otherwise_the_error_names_the_flag(name: str, ran: Ran) -> None:
    code, output, error = ran("check", "--skip-others", name)
    assert (code, output.count("\n"), error) == (0, 1, "")
    code, output, error = ran("check", name)
    assert code == (1 if name in ("words.yaml", "number.json") else 2)
    assert ("--skip-others" in output + error) is (name != "empty.yaml")


def test_all_of_them_beside_one_of_ours(ran: Ran) -> None:
    code, output, _ = ran("check", "--skip-others", *OTHERS, "rule.yaml")
    assert (code, "4 not readable and without our API groups" in output) == (0, True)
    assert output.startswith("11 files, 1 object: 0 errors, 0 warnings; skipped: ")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param(RULE.replace("NoSchedule", "Never"), 1, id="invalid"),
        pytest.param(RULE.replace("DeviceTaintRule", "DeviceTaintRul"), 1, id="misspelt kind"),
        pytest.param(RULE.replace("apiVersion: resource.k8s.io/v1\n", ""), 1, id="no version"),
        pytest.param(RULE + "  x: {{ .Values.x }}\n y", 2, id="template of ours"),
    ],
)
def test_what_is_ours_is_not_skipped(text: str, code: int, tmp_path: Path, ran: Ran) -> None:
    (tmp_path / "ours.yaml").write_text(text)
    found, output, _ = ran("check", "--skip-others", "ours.yaml")
    assert (found, "--skip-others" in output) == (code, False)


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
    text: str, codes: tuple[int, int], told: str, tmp_path: Path, ran: Ran
) -> None:
    """M9: a repository has Helm templates."""
    (tmp_path / "folder" / "chart").mkdir(parents=True)
    (tmp_path / "folder" / "chart" / "file.yaml").write_text(text)
    (tmp_path / "folder" / "rule.yaml").write_text(RULE)
    code, said, _ = ran("check", "folder")
    assert (code, "--skip-others skips templates" in said) == (codes[0], text == OF_OURS)
    code, said, _ = ran("check", "--skip-others", "--warnings-as-errors", "folder")
    assert (code, told in said, "file.yaml" in said) == (codes[1], True, "resource.k8s.io" in text)
    assert ran("audit", "--allow-empty", "--dump", "folder")[0] == 2


@pytest.mark.parametrize("name", ["folder", "folder/rule.yaml"])
def test_folder_or_file_that_cannot_be_opened_is_an_error(name: str, tmp_path: Path, ran: Ran) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "rule.yaml").symlink_to("nowhere.yaml")
    assert ran("check", "--skip-others", name)[0] == 2


def test_file_that_is_not_there_is_not_skipped(ran: Ran) -> None:
    assert [ran(verb, "--skip-others", "gone.yaml")[0] for verb in ("check", "test")] == [2, 2]


def test_file_without_a_suite(ran: Ran) -> None:
    code, output, _ = ran("test", "suite.yaml", "rule.yaml")
    text = "rule.yaml: error: contains no DeviceTaintPolicyTest; --skip-others skips such files"
    assert (code, text in output) == (2, True)
    assert ran("test", "--skip-others", "suite.yaml", "rule.yaml", "template.yaml")[0] == 0
    assert ran("test", "--skip-others", *OTHERS)[0] == 0
    assert ran("test", "--skip-others", "suite.yaml", "--run", "zzz")[0] == 2
