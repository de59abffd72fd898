"""A cluster that is acted on: no faster than allowed, and not while the server asks to be left alone.

Watches are not counted: they are few, and last for minutes.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from webhook.cluster.client.errors import ClusterError, is_disruption_budget
from webhook.cluster.client.rest import JSON, Cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.cluster.client.credentials import Credentials
    from webhook.flowcontrol.throttle import Throttle

FIELD_MANAGER: Final = "device-taint-webhook"
APPLY: Final = "application/apply-patch+yaml"
STRATEGIC: Final = "application/strategic-merge-patch+json"
WEBHOOK: Final = "admission webhook"
"""Stands in whatever a webhook says through the server, which then is neither busy nor knows better
(k8s.io/apiserver pkg/admission/plugin/webhook/errors/statuserror.go)."""


class ActingCluster(Cluster):
    """Requests that change things, beside those that read."""

    def __init__(
        self, credentials: Credentials, throttle: Throttle, *, user_agent: str = "device-taint-webhook-evict"
    ) -> None:
        super().__init__(credentials, user_agent=user_agent)
        self._throttle = throttle

    async def delete(self, path: str, options: Any = None) -> bytes:
        """The object as it was, or a Status; `options` are DeleteOptions without kind."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **(options or {})}
        return await self._ask("DELETE", path, body=body, headers={"Accept": JSON, "Content-Type": JSON})

    async def apply(self, path: str, obj: Any) -> bytes:
        """Server-side apply of what is ours, whoever else had it."""
        query = urlencode({"fieldManager": FIELD_MANAGER, "force": "true"})
        return await self.patch(f"{path}?{query}", obj, content_type=APPLY)

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> bytes:
        taken = _TAKEN.get()
        if taken:
            _TAKEN.set(taken - 1)
        else:
            await self._wait(1)
        try:
            return await super()._ask(
                method, path, query, body=body, headers=headers or {"Accept": JSON}, timeout_seconds=timeout_seconds
            )
        except ClusterError as error:
            if _is_busy(error):
                self._throttle.pause(error.retry_after_seconds)
            raise

    async def turn(self, requests: int) -> None:
        """Returns once so many requests may be made; the next ones of the same task then are, without a wait."""
        _TAKEN.set(0)
        await self._wait(requests)
        _TAKEN.set(requests)

    async def _wait(self, requests: int) -> None:
        delay = max(self._throttle.delay_seconds() for _ in range(requests))
        if delay:
            await asyncio.sleep(delay)


_TAKEN: Final = ContextVar("_TAKEN", default=0)
"""Requests that the task may make at once."""


def _is_busy(error: ClusterError) -> bool:
    """Whether it is the server as a whole that wants to be left alone, and not about one pod."""
    too_many = error.code == HTTPStatus.TOO_MANY_REQUESTS
    return too_many and not is_disruption_budget(error) and WEBHOOK not in str(error)
