"""No text of a stranger steers the terminal, whatever verb and format; programs get it back as it was."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.builders import make_claim, make_device, make_meta, make_rule, make_slice, make_taint, make_toleration
from webhook.cli import main
from webhook.commands.completion import Suggestions
from webhook.files.report import json_text, yaml_stream, yaml_text

HOSTILE: Final = (
    "\x1b[2J\x1b[31m",
    "\x1b]8;;http://example.com\x07link\x1b]8;;\x07",
    "\x9b31m",
    "\r overwritten",
    "\b\b\b",
    "\x7f",
    "a\u0085b",
    "a\u2028b\u2029c",
    "\u202eabc\u202c",
    "\u2066abc\u2069",
    "\u200b\u200e\u200f\u061c",
    "\U000e0041",
    "\n::error::injected",
    "\r\n::stop-commands::x",
    "##[stop-commands]x",
    "%0A::error::x",
    "]]>",
    "<b>&amp;",
    ": - yes\n- {",
    "x" * 5000,
)
STEERS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
COMMAND: Final = re.compile(r"^\s*::(?!(?:error|warning|notice|group|endgroup)\b)|^\s*::error::|##\[", re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files and a dump in which every name is hostile, the names of the files too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    for number, text in enumerate(HOSTILE):
        objects = [
            make_claim([make_toleration(key=text, operator=text)], meta=make_meta(text, namespace=text)),
            make_rule(
                selector={"driver": text, "pool": text}, taint=make_taint(key=text, value=text), meta=make_meta(text)
            ),
            make_slice([make_device(text, [make_taint(key=text)])], driver=text, pool=text, meta=make_meta(text)),
        ]
        name = text.replace("/", "_")[:100]
        (tmp_path / f"{number}{name}.json").write_text(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )
    dump = [json.loads(file.read_text())["items"] for file in sorted(tmp_path.glob("*.json"))]
    (tmp_path / "dump").mkdir()
    whole = {"apiVersion": "v1", "kind": "List", "items": [each for items in dump for each in items]}
    (tmp_path / "dump" / "all.json").write_text(json.dumps(whole))
    (tmp_path / "rule.yaml").write_text(yaml.safe_dump(make_rule(selector={"driver": HOSTILE[0]})))
    (tmp_path / "policy.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "policy.devicetaint.io/v1alpha1",
                "kind": "DeviceTaintPolicy",
                "rules": [{"name": text[:40], "action": "deny", "message": text[:40]} for text in HOSTILE],
            }
        )
    )
    return tmp_path


FORMATS: Final = ("text", "json", "yaml", "junit", "github", "gitlab", "sarif")
LINES: Final = [
    *[["check", "-o", each, "."] for each in FORMATS],
    *[["audit", "--dump", "dump", "-o", each] for each in (*FORMATS, "openreports")],
    *[["preview", "rule.yaml", "--dump", "dump", "-o", each] for each in ("text", "json", "yaml")],
    *[["explain", text] for text in HOSTILE],
    *[["list", "--context", text] for text in HOSTILE],
    ["check", "--policy", "policy.yaml", "."],
    ["check", "--color", "always", "."],
    ["export-vap", "--policy", "policy.yaml"],
    ["diff", "policy.yaml", "policy.yaml"],
    ["test", "."],
    *[["status", "--kubeconfig", text] for text in HOSTILE],
    *[[text] for text in HOSTILE],
    *[["check", text] for text in HOSTILE],
    *[["check", f"--{text}"] for text in HOSTILE],
]


@pytest.mark.parametrize("words", LINES, ids=lambda words: ascii(" ".join(words))[:60])
def test_verb_prints_nothing_that_steers_the_terminal(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(words)
    out, err = capsys.readouterr()
    if "always" in words:
        out = re.sub(r"\x1b\[(?:0|1|36|1;31|1;33)m", "", out)
    assert (out + err).strip(), folder
    assert not STEERS.search(out), ascii(out)
    assert not STEERS.search(err), ascii(err)
    if "github" in words:
        assert not COMMAND.search(out)
    elif "json" in words and out:
        json.loads(out)
    elif "yaml" in words and out:
        yaml.safe_load(out)
    elif "junit" in words:
        ET.fromstring(out)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_programs_get_the_text_back(text: str) -> None:
    value: dict[str, Any] = {"plain": "Grüße", text: [text, {"deep": text}]}
    assert json.loads(json_text(value)) == value
    assert json.loads(json_text(value, indent=None)) == value
    assert yaml.safe_load(yaml_text(value)) == value
    assert list(yaml.safe_load_all(yaml_stream([value, value]))) == [value, value]


def test_text_that_steers_nothing_stays_readable() -> None:
    assert json_text({"a": "Grüße"}) == '{\n  "a": "Grüße"\n}\n'
    assert yaml_text({"a": "Grüße"}) == "a: Grüße\n"


def test_name_of_several_lines_is_not_suggested() -> None:
    words = (("fine", ""), ("two\nlines", "x"), ("\x1b[2J", ""))
    assert str(Suggestions(words)).splitlines()[:1] == ["fine"]
    assert len(str(Suggestions(words)).splitlines()) == 2
