"""What every metric's name begins with, and the label value for what has no other."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "device_taint_webhook"
OTHER: Final = "other"
