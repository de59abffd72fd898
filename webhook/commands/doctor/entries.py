"""Entries of webhook configurations, and a TLS handshake with the servers behind them."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from webhook.cluster.client.raw import NoHandshake, Untrusted, certificate_end
from webhook.commands.doctor.checks import Handshake, WebhookEntry
from webhook.commands.doctor.probes import address_of

_SECONDS: Final = 5.0


def webhook_entry_of(kind: str, webhook: dict[str, Any]) -> WebhookEntry:
    """An entry of a webhook configuration of this kind."""
    config = webhook.get("clientConfig") or {}
    rules = tuple(
        (group, resource, frozenset(rule.get("apiVersions") or ()))
        for rule in webhook.get("rules") or ()
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
    )
    try:
        bundle = base64.b64decode(config.get("caBundle") or "")
    except binascii.Error:
        bundle = b""
    fails_open = webhook.get("failurePolicy") == "Ignore"
    return WebhookEntry(webhook["name"], kind, fails_open, bundle, address_of(config), rules)


async def handshake_with(entry: WebhookEntry) -> Handshake:
    """A handshake with the server behind the entry, trusting its caBundle only."""
    host, port, name = entry.address
    try:
        ends = await certificate_end(host, port, name, entry.bundle, _SECONDS)
    except Untrusted as error:
        return Handshake(entry.name, untrusted=str(error))
    except NoHandshake as error:
        return Handshake(entry.name, unreachable=str(error))
    return Handshake(entry.name, ends=ends)
