"""Flags about notices: where they are sent, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.api.field import required
from webhook.config.flags import Flag, flag_path
from webhook.config.texts import as_file, as_text, as_urls
from webhook.notifications.settings import NotificationSettings, ReceiverSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.api.field import FieldError

_ALERTMANAGER: Final = "notify-alertmanager"
_CLOUD_EVENTS: Final = "notify-cloudevents"
NOTIFY: Final = (
    Flag(
        _ALERTMANAGER,
        "URLs of Alertmanagers, without /api/v2, that get an alert when a rule is stopped, blocked, softened or"
        " released",
        as_urls,
        None,
        "URL,...",
    ),
    Flag(f"{_ALERTMANAGER}-ca-file", "CA of their certificates; default: the system's", as_file, None, "F"),
    Flag(f"{_ALERTMANAGER}-token-file", "bearer token for them, read for each request", as_file, None, "F"),
    Flag(_CLOUD_EVENTS, "URLs that get the same as CloudEvents, by POST", as_urls, None, "URL,..."),
    Flag(f"{_CLOUD_EVENTS}-ca-file", "CA of their certificates; default: the system's", as_file, None, "F"),
    Flag(f"{_CLOUD_EVENTS}-token-file", "bearer token for them, read for each request", as_file, None, "F"),
    Flag("notify-cluster", "name of this cluster in alerts and events", as_text, None, "NAME"),
)


def notification_settings(values: Mapping[str, Any], errors: list[FieldError]) -> NotificationSettings:
    """The settings; adds what is wrong with flags that do not fit together."""
    return NotificationSettings(
        alertmanager=_receivers(_ALERTMANAGER, values, errors),
        cloud_events=_receivers(_CLOUD_EVENTS, values, errors),
        cluster=values["notify-cluster"] or "",
    )


def _receivers(flag: str, values: Mapping[str, Any], errors: list[FieldError]) -> ReceiverSettings:
    files = {name: values[f"{flag}-{name}"] for name in ("ca-file", "token-file")}
    urls = values[flag] or ()
    for name, path in files.items():
        if path is not None and not urls:
            errors.append(required(flag_path(f"--{flag}"), f"must come with --{flag}-{name}"))
    return ReceiverSettings(urls=urls, ca_file=files["ca-file"], token_file=files["token-file"])
