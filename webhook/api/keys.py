"""The key that seals authors and confirmations: what it must be like, wherever it lies."""

from __future__ import annotations

from typing import Final

KEY_FIELD: Final = "key"
"""Of the Secret's data."""
KEY_LEAST_BYTES: Final = 16
"""128 bits, as many as of a seal are kept."""
