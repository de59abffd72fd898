"""Coverage that is switched off is switched on again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tracing import is_traced

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os
from tests.tracing import Tracing

def before():
    return 1

def between():
    return 2

def after():
    return 3

tracing = Tracing()
before()
for _ in range(2):
    tracing.switch(on=False)
assert "COVERAGE_PROCESS_START" not in os.environ
between()
for _ in range(2):
    tracing.switch(on=True)
assert "COVERAGE_PROCESS_START" in os.environ
after()
"""


def test_lines_count_before_and_after_the_pause(tmp_path: Path) -> None:
    script, settings, data = tmp_path / "script.py", tmp_path / "settings.toml", tmp_path / "data"
    script.write_text(SCRIPT)
    settings.write_text(f'[tool.coverage.run]\ndata_file = "{data}"\nsource = ["{tmp_path}"]\n')
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COVERAGE_PROCESS_START": str(settings)}
    environment.pop("COVERAGE_FILE", None)
    code = "import coverage, runpy, sys; coverage.process_startup(); runpy.run_path(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(script)], env=environment, check=True, timeout=60)
    command = [sys.executable, "-m", "coverage", "json", f"--rcfile={settings}", "-o", "-", "--quiet"]
    told = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    (measured,) = json.loads(told.stdout)["files"].values()
    lines = SCRIPT.splitlines()
    seen = {lines[number - 1] for number in measured["executed_lines"]}
    assert [f"    return {number}" in seen for number in (1, 2, 3)] == [True, False, True]


@pytest.mark.parametrize(
    ("path", "traced"),
    [
        ("properties/test_window.py", False),
        ("unit/test_tracing.py", True),
        ("https/test_process.py", True),
        ("apiserver/test_evict.py", True),
        ("apiserver/test_generated_whole.py", False),
        ("apiserver/eviction/test_manners.py", False),
    ],
)
def test_folders_and_comparisons_with_an_api_server_are_not_measured(path: str, *, traced: bool) -> None:
    assert (ROOT / "tests" / path).is_file()
    assert is_traced(Path(path), slow=False) is traced


def test_slow_unit_tests_are_not_measured() -> None:
    assert not is_traced(Path("unit/test_tracing.py"), slow=True)
    assert not is_traced(Path("unit/test_tracing.py"), slow=False, untraced=True)
    assert is_traced(Path("image/test_image.py"), slow=True)
