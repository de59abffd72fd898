"""The SVG of the demo shows the lines that the terminal showed."""

from __future__ import annotations

import io
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest

from tests.controlplane.webhook_process import ROOT
from tests.demo.picture import SHOWN, Line, drawn, read, screens
from tests.demo.terminal import Terminal
from tests.demo.tour import TOUR

_TEXT = "{http://www.w3.org/2000/svg}text"


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def _played(monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = _Tty()
    terminal = Terminal(stream)
    for number, command in enumerate(["kubectl version", *(each.removeprefix("$ ") for each in (*SHOWN, *SHOWN))], 1):
        terminal.chapter(number, f"Chapter {number}.")
        terminal.command(command)
        terminal.output(f"output <{number}> & more")
    terminal.blank()
    return read(stream.getvalue())


def test_only_the_first_chapter_with_each_command_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = "\n".join(line.text for line in screens(_played(monkeypatch), SHOWN))
    assert [number for number in range(1, 6) if f"Chapter {number}." in shown] == [2, 3]
    assert not shown.endswith("\n")


def test_a_command_that_no_chapter_has_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LookupError, match="kubectl drain"):
        screens(_played(monkeypatch), ["$ kubectl drain"])


def test_every_visible_line_is_drawn_with_its_words_and_its_style(monkeypatch: pytest.MonkeyPatch) -> None:
    root = ET.fromstring(drawn(screens(_played(monkeypatch), SHOWN)))
    rows = [(each.text, each.get("class")) for each in root.iter(_TEXT)]
    assert rows == [
        ("2. Chapter 2.", "title"),
        ("$ kubectl apply -f all-gpus.yaml", "bold"),
        ("output <2> & more", None),
        ("3. Chapter 3.", "title"),
        ("$ kubectl dtaint drain server.example.com/server-1 --interval 10", "bold"),
        ("output <3> & more", None),
    ]


def test_lines_do_not_overlap_and_stay_within_the_picture() -> None:
    root = ET.fromstring(drawn([Line("x" * 100), Line(""), Line("  y")]))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    rows = list(root.iter(_TEXT))
    assert [float(row.attrib["y"]) for row in rows] == sorted({float(row.attrib["y"]) for row in rows})
    for row in rows:
        assert float(row.attrib["x"]) + float(row.attrib["textLength"]) < width
        assert float(row.attrib["y"]) < height


def test_a_colour_goes_on_over_wrapped_lines_until_it_is_reset() -> None:
    assert read("\033[2mone\n  two\033[0m\nthree\n") == [Line("one", "dim"), Line("  two", "dim"), Line("three")]


def test_the_picture_of_the_readme_is_of_the_demo_as_it_is() -> None:
    picture = (ROOT / "docs" / "images" / "demo.svg").read_text()
    shown = [
        next(each for each in TOUR if command in {f"$ {step.command}" for step in each.steps}) for command in SHOWN
    ]
    assert [text for text in (*SHOWN, *(each.title for each in shown)) if escape(text) not in picture] == []
