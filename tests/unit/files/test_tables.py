"""Tables of text."""

from __future__ import annotations

import pytest

from webhook.files.tables import table

ROWS = [["ml/train-0", "100", "no toleration"], ["web/serve", "1000", "gpu op=Exists"]]


def test_columns_are_as_wide_as_they_must() -> None:
    assert table(ROWS, headers=("POD", "PRIORITY", "WHY"), right=(1,)) == [
        "POD          PRIORITY   WHY",
        "ml/train-0        100   no toleration",
        "web/serve        1000   gpu op=Exists",
    ]


def test_a_table_needs_no_header() -> None:
    assert table([("a", "b"), ("cc", "")]) == ["a    b", "cc"]


def test_nothing_is_no_line() -> None:
    assert table([], headers=("POD",)) == []


def test_lines_of_files_are_not_folded() -> None:
    long = "a sentence of many words " * 40
    assert table([("x", long)]) == [f"x   {long.rstrip()}"]


def test_on_a_screen_the_last_column_is_folded() -> None:
    assert table([("ml/train-0", "first second third")], width=24) == [
        "ml/train-0   first",
        "             second",
        "             third",
    ]


@pytest.mark.parametrize("name", ["[bold]x[/bold]", ":smile:", "http://example.com/1"])
def test_names_are_no_markup(name: str) -> None:
    assert table([(name, "x")], color=True) == [f"{name}   x"]


def test_nothing_in_a_cell_steers_a_terminal() -> None:
    assert table([("a\x1b[31m\n", "x")]) == [r"a\x1b[31m\n   x"]


def test_headers_are_bold_only_in_color() -> None:
    assert "\x1b[1m" in table(ROWS, headers=("A", "B", "C"), color=True)[0]
    assert "\x1b" not in table(ROWS, headers=("A", "B", "C"))[0]


def test_the_environment_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = table(ROWS, headers=("A", "B", "C"))
    for name, value in (("COLUMNS", "10"), ("FORCE_COLOR", "1"), ("TERM", "dumb"), ("NO_COLOR", "")):
        monkeypatch.setenv(name, value)
    assert table(ROWS, headers=("A", "B", "C")) == expected


def test_a_word_longer_than_its_column_begins_on_a_line_of_its_own_and_is_broken() -> None:
    assert table([("a", "one " + "x" * 18)], width=14) == ["a   one", "    xxxxxxxxxx", "    xxxxxxxx"]


def test_nothing_is_folded_where_the_other_columns_fill_the_screen() -> None:
    assert table([("ml/train-0", "first second")], width=12) == ["ml/train-0   first second"]


def test_wide_characters_take_two_columns_and_combining_ones_none() -> None:
    assert table([("日本", "x"), ("e\u0301", "y"), ("four", "z")]) == ["日本   x", "e\u0301      y", "four   z"]


def test_the_line_of_headers_is_bold_as_far_as_its_columns_reach() -> None:
    header = table(ROWS, headers=("A", "B", "C"), color=True)[0]
    assert header.replace("\x1b[1m", "").replace("\x1b[0m", "") == "A            B      C            "
