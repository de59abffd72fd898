"""A client with a rate limit, which pauses while the server asks for fewer requests.

Watches are not counted: they are few, and last for minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from webhook.api.meta import format_time
from webhook.api.names import WORKER
from webhook.cluster.client.connections import always
from webhook.cluster.client.rest import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.rules import Condition
    from webhook.cluster.client.credentials import Credentials
    from webhook.flowcontrol.throttle import Throttle

FIELD_MANAGER: Final = "device-taint-webhook"
APPLY: Final = "application/apply-patch+yaml"
STRATEGIC: Final = "application/strategic-merge-patch+json"


class ThrottledCluster(Cluster):
    """Requests that change things, beside those that read."""

    def __init__(
        self,
        credentials: Credentials,
        throttle: Throttle,
        *,
        user_agent: str = WORKER,
        permitted: Callable[[], bool] = always,
    ) -> None:
        """`permitted` is asked when the body of a request is written; if not, it is not sent."""
        super().__init__(credentials, user_agent=user_agent, throttle=throttle, permitted=permitted)
        self._throttle: Throttle = throttle

    async def reserve(self, requests: int) -> None:
        """Returns once this many requests may be made at once; make them with `reserved=True`."""
        await self._throttle.wait(requests)

    async def delete(self, path: str, options: Any = None, **more: Any) -> bytes:
        """The object as it was, or a Status; `options` are DeleteOptions without kind, `more` those of `request`."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **(options or {})}
        return await self.request("DELETE", path, body=body, **more)

    async def apply(self, path: str, obj: Any, *, manager: str = FIELD_MANAGER) -> bytes:
        """Server-side apply of our own fields, by force where another manager has them."""
        query = urlencode({"fieldManager": manager, "force": "true"})
        return await self.patch(f"{path}?{query}", obj, content_type=APPLY)


def clients_of_leader(
    credentials: Credentials, throttle: Throttle, leads: Callable[[], bool], *, user_agent: str = WORKER
) -> tuple[ThrottledCluster, ThrottledCluster]:
    """Two clients that share a rate limit: one for what any process may ask, one that writes only while it `leads`."""
    return (
        ThrottledCluster(credentials, throttle, user_agent=user_agent),
        ThrottledCluster(credentials, throttle, user_agent=user_agent, permitted=leads),
    )


def condition_object(condition: Condition) -> dict[str, Any]:
    """A condition of a status as it is applied."""
    assert condition.last_transition_time is not None
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": condition.observed_generation,
        "lastTransitionTime": format_time(condition.last_transition_time),
    }
