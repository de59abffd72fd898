"""What standard input is called, where files are named."""

from typing import Final

STDIN: Final = "-"
STDIN_NAME: Final = "<stdin>"
"""What standard input is called in every report."""
