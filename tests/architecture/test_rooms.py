"""The tree, the page that describes it and the contracts that guard it say the same."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "webhook"
PAGE = (ROOT / "docs" / "development" / "architecture.md").read_text()
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = {"webhook": 600, "benchmarks": 600, "release": 600, "tests": 600}


def rooms() -> set[str]:
    folders = {each.parent.name for each in PACKAGE.glob("*/__init__.py")}
    modules = {each.stem for each in PACKAGE.glob("*.py")} - {"__init__"}
    return folders | modules


def layers() -> list[set[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    stacked = next(contract for contract in contracts if contract["id"] == "layers")["layers"]
    return [{room.strip() for room in layer.split("|")} for layer in stacked]


def test_every_room_stands_in_the_page_and_no_other() -> None:
    table = PAGE.partition("## The rooms")[2].partition("\n## ")[0]
    listed = {
        name for cell in re.findall(r"^\|(`[^|]+)\|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    }
    assert listed == rooms()


def test_every_room_has_its_layer_and_no_other() -> None:
    assert {room for layer in layers() for room in layer} == rooms()


def test_the_page_stacks_the_rooms_as_the_contract_does() -> None:
    tower = PAGE.partition("```\n")[2].partition("\n```")[0]
    assert [set(line.split(" | ")) for line in tower.splitlines()] == layers()


def test_the_walks_name_what_is_in_the_code() -> None:
    named = re.findall(r"`([a-z_]+(?:\.\w+)+)`", PAGE.partition("## One review")[2])
    assert len(named) > 20
    assert [name for name in named if not _exists(name.split("."))] == []


def _exists(parts: list[str]) -> bool:
    """Whether the parts name a module, or something on the top level of one."""
    if PACKAGE.joinpath(*parts).with_suffix(".py").is_file():
        return True
    module = PACKAGE.joinpath(*parts[:-1]).with_suffix(".py")
    return module.is_file() and bool(
        re.search(rf"^(?:async def |def |class )?{parts[-1]}\b", module.read_text(), re.MULTILINE)
    )


def test_no_module_has_grown_two_subjects() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for folder, most in MODULE_LINES_MAX.items()
        for path in (ROOT / folder).rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > most
    }
    assert long == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{function.name}": lines
        for path in PACKAGE.rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := _body_lines(function)) > FUNCTION_LINES_MAX
    }
    assert long == {}


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function without its signature and its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_no_key_is_committed() -> None:
    found = [
        str(path.relative_to(ROOT))
        for folder in ("certs", "manifests", "webhook", "tests", "benchmarks", "release", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in {".pem", ".key", ".crt", ".p12"}
    ]
    assert found == []


def test_lock_files_have_hashes_and_no_addresses() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / name).read_text()
        pins = re.findall(r"^[a-z0-9][\w.-]*==", text, re.MULTILINE)
        assert len(pins) > 10
        assert "://" not in text
        assert text.count("--hash=sha256:") >= len(pins)
