"""The corpus over HTTPS: a process as users start it, asked to mutate and then to judge. See tests/cases/README.md."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.builders import UID, encoded
from tests.cases.corpus import NEWEST_MINOR, Case, each_case, review_of, told, with_sets
from tests.controlplane.webhook_process import WebhookProcess
from webhook.admission.decision import apply_patch
from webhook.api.meta import format_time


@pytest.fixture(scope="module")
def ask(webhook_server: WebhookProcess) -> Iterator[Callable[[str, Any], dict[str, Any]]]:
    """Posts a review to a path, on one connection, and gives the response in the answer."""
    context = ssl.create_default_context(cadata=webhook_server.ca_pem.decode())
    address = urlsplit(webhook_server.base_url).netloc
    with contextlib.closing(http.client.HTTPSConnection(address, timeout=60, context=context)) as connection:

        def asked(path: str, review: Any) -> dict[str, Any]:
            connection.request("POST", path, encoded(review), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, body
            response: dict[str, Any] = json.loads(body)["response"]
            assert response["uid"] == UID
            return response

        yield asked


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)  # noqa: TID251 -- a process has a clock of its own


def seconds_between(before: datetime, after: datetime) -> Iterator[str]:
    """Every full second in which something may have been done, as Kubernetes writes it."""
    while before <= after:
        yield format_time(before)
        before += timedelta(seconds=1)


@each_case(lambda case: NEWEST_MINOR in case.minors)
def test_case_is_answered_as_its_header_says(case: Case, ask: Callable[[str, Any], dict[str, Any]]) -> None:
    review = review_of(case)
    before = now()
    mutation = ask("/mutate", review)
    assert mutation["allowed"]
    patch = json.loads(base64.b64decode(mutation.get("patch", "W10=")))
    changed = apply_patch(review["request"]["object"], patch)
    if case.sets is not None:
        possible = [with_sets(case.object, case.sets, second) for second in seconds_between(before, now())]
        # every template gets its author as well
        unauthored = [edit for edit in patch if not edit["path"].startswith("/spec/metadata")]
        assert apply_patch(case.object, unauthored) in possible
    review["request"]["object"] = changed

    response = ask("/validate", review)

    status = response.get("status", {})
    causes = status.get("details", {}).get("causes", [])
    assert told((cause["field"], cause["reason"]) for cause in causes) == case.errors
    assert (response["allowed"], status.get("code")) == (case.allowed, None if case.allowed else 422)
    codes = re.findall(r"\[(DT[0-9]{3})\]$", "\n".join(response.get("warnings", [])), re.MULTILINE)
    assert sorted(codes) == list(case.warnings)
