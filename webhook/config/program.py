"""What this program was called by, for usage lines and errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

NAME: Final = "device-taint-webhook"
_PLUGIN: Final = "kubectl-"


def program(verb: str = "") -> str:
    """The name this was called by, with the verb; kubectl's plugins are called `kubectl x`, not `kubectl-x`."""
    called = Path(sys.argv[0]).name.removesuffix(".exe")
    # kubectl takes "_" in a plugin's file name for "-", and needs an ending for programs on Windows
    name = f"kubectl {called.removeprefix(_PLUGIN).replace('_', '-')}" if called.startswith(_PLUGIN) else NAME
    return f"{name} {verb}" if verb else name
