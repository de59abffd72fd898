"""The table through the API server: what a person gets to read, and what the audit log keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from tests.apiserver.policy.rows import POLICY, ROWS, Row
from tests.apiserver.policy.stage import Stage, hash_of
from tests.controlplane.client import Cause, Reply

_ADVICE = re.compile(r"DT\d{3}")
_PLURALS = {"claim": "claims", "template": "templates"}


class Answer(NamedTuple):
    """What became of a row."""

    reply: Reply
    audited: Mapping[str, str]
    """Annotations of the audit event."""


def _send(stage: Stage, row: Row) -> Reply:
    client = stage.client.acting_as(*row.requester)
    if row.operation == "create":
        return client.create(row.collection, row.manifest, dry_run=True)
    _ = stage.client.create(row.collection, row.manifest).object
    try:
        return client.patch(row.url, {"metadata": {"labels": {"changed": "yes"}}})
    finally:
        stage.client.delete(row.url)


@pytest.fixture(scope="module")
def replies(installed: Stage) -> Mapping[str, Reply]:
    """All rows, sent one after the other by their requesters."""
    installed.use(POLICY)
    return {row.url: _send(installed, row) for row in ROWS}


@pytest.fixture(scope="module")
def audited(installed: Stage, replies: Mapping[str, Reply]) -> Mapping[str, Mapping[str, str]]:
    """The audit annotations of each row: read once, for the log is long."""
    assert len(replies) == len(ROWS)
    wanted = {row.url: ("create" if row.operation == "create" else "patch", row.requester.user) for row in ROWS}
    found: dict[str, dict[str, Any]] = {}
    for event in installed.plane.audit_events():
        about = event.get("objectRef", {})
        name = about.get("name") or (event.get("requestObject") or {}).get("metadata", {}).get("name")
        url = f"{event['requestURI'].partition('?')[0].removesuffix(f'/{name}')}/{name}"
        user = event.get("impersonatedUser", {}).get("username")
        if wanted.get(url) == (event["verb"], user):
            found[url] = event.get("annotations", {})
    return found


@pytest.fixture
def answer(request: pytest.FixtureRequest, replies: Mapping[str, Reply], audited: Mapping[str, Any]) -> Answer:
    """What became of the test's row."""
    url = request.getfixturevalue("row").url
    return Answer(replies[url], audited[url])


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_row(row: Row, answer: Answer) -> None:
    expected, reply = row.expected, answer.reply
    said = [text for text in reply.warnings if "(rule " in text]  # others are advice, or about old versions
    if expected.verdict == "denied":
        assert (reply.code, reply.reason) == (403, "Forbidden"), reply
        denying = [name for name in expected.rules if f"(rule {name})" in reply.message]
        assert denying, reply.message
        assert expected.text in reply.message
        assert [cause.field for cause in reply.causes if cause.reason == "FieldValueForbidden"] == [expected.path]
        assert all(f"(rule {denying[0]})" in cause.message for cause in reply.causes), reply.causes
        assert f'admission webhook "{_PLURALS[row.kind]}.validate.devicetaint.io" denied the request' in reply.message
    elif expected.verdict == "warned":
        assert reply.ok, reply
        (warning,) = said
        assert warning.startswith(f"{expected.path}: ")
        assert expected.text in warning
    else:
        assert reply.ok, reply
        assert said == []


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_audit_log_says_what_was_decided_by_which_rules(row: Row, answer: Answer) -> None:
    entry = f"{_PLURALS[row.kind]}.validate.devicetaint.io/"
    ours = {key.removeprefix(entry): text for key, text in answer.audited.items() if key.startswith(entry)}
    if not row.expected.asked:
        assert ours == {}
        return
    rules = [name for name in ours.pop("rules", "").split(",") if name and not _ADVICE.fullmatch(name)]
    assert tuple(rules) == row.expected.rules
    if not row.expected.rules:  # nothing to remember
        return
    advised = any(_ADVICE.search(text) for text in answer.reply.warnings)
    decision = "warned" if row.expected.verdict == "allowed" and advised else row.expected.verdict
    assert ours == {"decision": decision, "policy-hash": hash_of(POLICY)}


@pytest.mark.parametrize("row", [row for row in ROWS if row.expected.kubectl], ids=str)
def test_what_kubectl_prints(row: Row, stage: Stage) -> None:
    done = stage.plane.kubectl(
        "create",
        "--dry-run=server",
        "-f",
        "-",
        stdin=json.dumps(row.manifest),
        user=row.requester.user,
        groups=row.requester.groups,
    )
    assert done.stderr == row.expected.kubectl
    assert (done.code == 0) is (row.expected.verdict != "denied")


def test_some_rows_say_what_kubectl_prints() -> None:
    assert {row.expected.verdict for row in ROWS if row.expected.kubectl} == {"denied", "warned"}


def test_nobody_but_us_has_refused_anything(replies: Mapping[str, Reply]) -> None:
    assert {reply.code for reply in replies.values()} <= {200, 201, 403}
    assert all(Cause("", "", "") not in reply.causes for reply in replies.values())
