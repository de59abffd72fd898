"""Branch coverage of each room against its floor: `python -m tests.coverage_report` after a run with coverage."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

import coverage

ROOT = Path(__file__).parents[1]
PURE = {"api", "expressions", "inventory", "policy", "validation", "admission"}
PURE_PERCENT = 95.0
SHELL_PERCENT = 90.0
"""The control plane's tests run the shells in processes of their own, whose coverage is combined with ours."""


def main() -> int:
    """Print a line a room; 1 if one is below its floor."""
    measured = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    measured.load()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        report = Path(folder) / "coverage.json"
        measured.json_report(outfile=str(report))
        files = json.loads(report.read_text())["files"]
    rooms: dict[str, list[int]] = {}
    for name, entry in files.items():
        room = Path(name).relative_to("webhook").parts[0].removesuffix(".py")
        summary = entry["summary"]
        covered, total = rooms.setdefault(room, [0, 0])
        rooms[room] = [
            covered + summary["covered_lines"] + summary["covered_branches"],
            total + summary["num_statements"] + summary["num_branches"],
        ]
    low = False
    print("branch coverage by room:")
    for room, (covered, total) in sorted(rooms.items()):
        percent = 100.0 * covered / total if total else 100.0
        floor = PURE_PERCENT if room in PURE else SHELL_PERCENT
        low |= percent < floor
        print(f"  {room:14} {percent:5.1f} %  (at least {floor:.0f} %){'  TOO LOW' if percent < floor else ''}")
    return int(low)


if __name__ == "__main__":
    sys.exit(main())
