"""Settings of this room. Nothing here imports cryptography, so that reading flags stays quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """Where the pair lies, in the shape of a kubernetes.io/tls Secret, and how it is watched."""

    certificate_file: Path
    """PEM: the leaf first, then whatever stands between it and the CA that clients know."""
    key_file: Path
    """PEM, without a password."""
    client_ca_file: Path | None = None
    """PEM. When given, clients must show a certificate that one of these signed."""
    poll_seconds: float = 10.0
    """How often the content is compared: file events get lost, and a kubelet swaps whole directories."""
    first_poll_seconds: float = 1.0
    """The same while there is no certificate yet, when everything waits for it."""
    tolerated_failures: int = 12
    """So many failed polls in a row, two minutes' worth, before readiness says so."""
