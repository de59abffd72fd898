"""docs/development/releasing.md: its variables are those of `make release`, and its files those of a release."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from release.__main__ import command_line

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "development" / "releasing.md").read_text()
RECIPE: Final = (ROOT / "Makefile").read_text().partition("\nrelease:")[2].partition("\n\n")[0]


def test_the_page_has_every_variable_of_make_release_and_no_other() -> None:
    table = PAGE.partition("## Cut a release")[2].partition("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("|`")]
    listed = {name for row in rows for name in re.findall(r"`([A-Z]+)`", row.split("|")[1])}
    flags = {flag.removeprefix("--") for flag in command_line()._option_string_actions if flag.startswith("--")}
    assert {name.lower() for name in listed} == flags - {"help"}
    for name in listed:
        assert f"--{name.lower()} " in RECIPE
        assert f"({name})" in RECIPE or f"$$RELEASE_{name}" in RECIPE


def test_headings_that_a_provenance_statement_refers_to_are_there() -> None:
    named = re.findall(r"docs/development/releasing\.md#([\w-]+)", (ROOT / "release" / "provenance.py").read_text())
    assert len(named) == 2
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", PAGE, re.MULTILINE)}
    assert set(named) <= headings
