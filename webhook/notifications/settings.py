"""Where notices are sent. An address without entries is a sink that is off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSettings:
    """Receivers of one sort."""

    urls: tuple[str, ...] = ()
    ca_file: Path | None = None
    """PEM; None: the system's authorities."""
    token_file: Path | None = None
    """A bearer token, read again for each request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationSettings:
    """All of them."""

    alertmanager: ReceiverSettings = ReceiverSettings()
    """Each URL is one Alertmanager; all of them get every alert, as a cluster of Alertmanagers expects it."""
    cloud_events: ReceiverSettings = ReceiverSettings()
    cluster: str = ""
    """The name of this cluster, for receivers of several."""

    @property
    def wanted(self) -> bool:
        """Whether there is any receiver."""
        return bool(self.alertmanager.urls or self.cloud_events.urls)
