"""How long verbs take to start, beside `kubectl version --client`, in one run: real time and processor time.

The verbs run from bytecode, as in an installation; a first start, which is not counted, writes it. The last two rows
import what a verb works with when it looks at a cluster, and do nothing.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.controlplane import assets

ROOT: Final = Path(__file__).parents[1]
ROUNDS: Final = 15
_PLUGIN: Final = "import sys; sys.argv[0] = 'kubectl-dtaint'; from webhook.cli import main; sys.exit(main())"
_CLIENT: Final = "webhook.commands.shared.snapshot, webhook.cluster.client.kubeconfig"
_HELP: Final = (["--version"], ["--help"], ["status", "--help"], ["explain", "--help"], ["status", "--limit", "x"])


def commands() -> dict[str, list[str]]:
    """What is measured, by its title."""
    kubectl = str(assets.find().program("kubectl"))
    python = [sys.executable, "-c"]
    ours = {" ".join(("kubectl-dtaint", *words)): [*python, _PLUGIN, *words] for words in _HELP}
    return {
        "kubectl version --client": [kubectl, "version", "--client"],
        **ours,
        "imports of status": [*python, f"import webhook.commands.status.run, {_CLIENT}"],
        "imports of explain": [*python, f"import webhook.commands.explain.values, {_CLIENT}"],
    }


def measure(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Milliseconds of real time and of processor time of one run."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, check=False)
    taken, after = time.perf_counter() - start, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return taken * 1000, used * 1000


def main() -> int:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "KUBECONFIG": f"{folder}/none"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        measured = commands()
        taken: dict[str, list[tuple[float, float]]] = {title: [] for title in measured}
        for number in range(ROUNDS + 1):  # in turns, so that all of them meet the same load
            for title, command in measured.items():
                figures = measure(command, environment)
                if number:
                    taken[title].append(figures)
    print("| command | least ms | median ms | processor ms |\n|---|---:|---:|---:|")
    for title, runs in taken.items():
        real = [each for each, _ in runs]
        used = statistics.median(each for _, each in runs)
        print(f"| `{title}` | {min(real):.0f} | {statistics.median(real):.0f} | {used:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
