"""Errors of requests to an API server. Errors of libraries never leave this room."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

from webhook.api.decode import UNREADABLE

_MESSAGE_MOST: Final = 1024
_BUSY: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class NoCredentials(Exception):  # noqa: N818 -- it says what is missing
    """The address of the API server or the credentials for it are missing; the text says what could not be read."""


class StatusCause(NamedTuple):
    """An entry of a Status' `details.causes`."""

    reason: str
    """A word for programs, such as `DisruptionBudget`."""
    message: str


class ClusterError(Exception):
    """A request that was not granted.

    `code` is the HTTP status, 0 if there was no answer; `reason` is the Status' word for it ("NotFound"), or empty.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        retry_after_seconds: float = 0.0,
        server_message: str = "",
        causes: tuple[StatusCause, ...] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.server_message = server_message
        """The Status' message in full; the error's own text is cut for logs."""
        self.causes = causes
        """The Status' `details.causes`; empty if it has none."""
        self.has_status = False
        """Whether the answer is a meta/v1 Status, and not the page of a proxy or load balancer."""
        self.retry_after_seconds = retry_after_seconds
        """How long the server asks to wait before a retry; 0 if it does not say."""


class NotFound(ClusterError):  # noqa: N818 -- the word of Kubernetes, like the rest
    """404: there is no such object, or the resource is not served."""


class Conflict(ClusterError):  # noqa: N818 -- the same
    """409: the object changed since it was read, or exists already."""


class Gone(ClusterError):  # noqa: N818 -- the same
    """410: the resource version or the page is too old; list again."""


class Refused(ClusterError):  # noqa: N818 -- the same
    """The server understood the request and refuses it; a retry will not help."""


class Unavailable(ClusterError):  # noqa: N818 -- the same
    """No answer, or none about the request itself; a retry may succeed."""


class NotSent(Unavailable):
    """Nothing was sent: when the request was to be written, it was not permitted or not wanted any more."""


class Silent(Unavailable):
    """A watch was silent for too long: its connection is dead, or nothing happens and no bookmarks are sent."""


class Undecodable(Unavailable):
    """An answer, or an event of a watch, that is not what it should be: what it said is not known."""


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None
    causes: list[_Cause] | None = None


_NO_DETAILS: Final = _Details()


class _Status(msgspec.Struct):
    """The fields of meta/v1 Status that are read."""

    kind: str | None = None
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: _Details | None = None


_STATUS: Final = msgspec.json.Decoder(_Status)
_KINDS: Final[dict[int, type[ClusterError]]] = {
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.GONE: Gone,
}


def error_of(request: str, body: bytes, *, code: int = 0, retry_after: str = "") -> ClusterError:
    """The error that an answer stands for.

    `request` ("GET /api/v1/...") begins the message; `code` 0 is read from the body, which is a Status or anything
    else; `retry_after` is the header; only seconds are understood.
    """
    try:
        status = _STATUS.decode(body)
    except UNREADABLE:
        status = _Status()
    code = code or status.code or 0
    message = status.message or body[:_MESSAGE_MOST].decode(errors="replace").strip() or "no message"
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
    details = status.details or _NO_DETAILS
    kind = _KINDS.get(code, Unavailable if code in _BUSY or code >= HTTPStatus.INTERNAL_SERVER_ERROR else Refused)
    error = kind(
        f"{request}: {code}: {message[:_MESSAGE_MOST]}",
        code=code,
        reason=status.reason or "",
        retry_after_seconds=seconds or details.retry_after_seconds or 0.0,
        server_message=message,
        causes=tuple(StatusCause(each.reason, each.message) for each in details.causes or ()),
    )
    error.has_status = status.kind == "Status"
    return error


def _has_cause(error: ClusterError, reason: str) -> bool:
    return any(cause.reason == reason for cause in error.causes)


_VERSION_AHEAD: Final = "ResourceVersionTooLarge"
"""meta/v1 CauseTypeResourceVersionTooLarge."""
_VERSION_AHEAD_TEXT: Final = "Too large resource version"


def is_version_ahead(error: ClusterError) -> bool:
    """Whether the server does not know the requested version yet: it lags behind, or was restored from a backup.

    As in client-go's isTooLargeResourceVersionError: by the cause, or by the message of an answer without causes.
    """
    return _has_cause(error, _VERSION_AHEAD) or _VERSION_AHEAD_TEXT in error.server_message


_DISRUPTION_BUDGET: Final = "DisruptionBudget"
"""policy/v1 DisruptionBudgetCause."""
_BUDGET_PENDING: Final = "is still being processed by the server"
"""In the cause's message of a 429 while the disruption controller has not processed the budget's last change
(pkg/registry/core/pod/storage/eviction.go, createTooManyRequestsError)."""
_BUDGET_TEXT: Final = "disruption budget"
"""In the message of each 429 of the Eviction API for a budget."""
_BUDGET_UNUSABLE: Final = 'poddisruptionbudget.policy "'
"""The message of its 403 begins so: disruptionsAllowed is negative, or DisruptedPods is full (checkAndDecrement)."""
_TWO_BUDGETS: Final = "This pod has more than one PodDisruptionBudget"
"""The message of its 500 for a pod that two budgets select begins so; it has no causes."""


def is_disruption_budget(error: ClusterError) -> bool:
    """Whether a disruption budget refused an eviction, or two budgets did by selecting the same pod.

    Every release from 1.34 to 1.37 names the cause in its 429 and 403. For an answer without causes, as a proxy may
    leave it, the message has to do.
    """
    message = error.server_message
    match error.code:
        case HTTPStatus.TOO_MANY_REQUESTS | HTTPStatus.FORBIDDEN if error.causes:
            return _has_cause(error, _DISRUPTION_BUDGET)
        case HTTPStatus.TOO_MANY_REQUESTS:
            return _BUDGET_TEXT in message
        case HTTPStatus.FORBIDDEN:
            return message.startswith(_BUDGET_UNUSABLE)
        case HTTPStatus.INTERNAL_SERVER_ERROR:
            return message.startswith(_TWO_BUDGETS)
        case _:
            return False


def is_budget_pending(error: ClusterError) -> bool:
    """Whether the budget refused only because the disruption controller has not processed its last change yet.

    The code, the message and the cause's reason are those of a refusal; only the cause's message tells.
    """
    return is_disruption_budget(error) and any(_BUDGET_PENDING in cause.message for cause in error.causes)


_WEBHOOK: Final = "admission webhook"
"""Part of every refusal of a webhook that the server passes on
(k8s.io/apiserver pkg/admission/plugin/webhook/errors/statuserror.go)."""


def is_webhook_refusal(error: ClusterError) -> bool:
    """Whether an admission webhook, and not the server itself, refused the request, whatever the code."""
    return _WEBHOOK in str(error)


_POLICY: Final = "ValidatingAdmissionPolicy '"
"""Part of every refusal of a ValidatingAdmissionPolicy, whose code is the policy's choice
(k8s.io/apiserver pkg/admission/plugin/policy/validating/dispatcher.go)."""


def is_admission_refusal(error: ClusterError) -> bool:
    """Whether a webhook or a ValidatingAdmissionPolicy refused the request; missing permissions are none of them."""
    return is_webhook_refusal(error) or _POLICY in error.server_message


def is_busy(error: ClusterError) -> bool:
    """Whether the server as a whole asks for fewer requests; a 429 may also be about one pod."""
    too_many = error.code == HTTPStatus.TOO_MANY_REQUESTS
    return too_many and not is_disruption_budget(error) and not is_webhook_refusal(error)
