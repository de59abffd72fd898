"""The corpus, judged by a real API server, alone and with our webhook. tests/cases/README.md says what a case holds.

On another release than the default (ENVTEST_K8S_VERSION) the cases are those that tell that release's verdict.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.apiserver.comparison import defaulted
from tests.apiserver.stored import write
from tests.cases.corpus import NEWEST_MINOR, NOW, Case, each_case, told, with_sets
from tests.controlplane import arguments, versions
from tests.controlplane.assets import Assets
from tests.controlplane.client import Reply, path
from tests.controlplane.plane import ControlPlane
from tests.controlplane.registration import registered
from tests.controlplane.webhook_process import WebhookProcess
from webhook.api.meta import parse_time
from webhook.validation.kinds import BY_KIND

MANIFESTS = Path(__file__).parents[2] / "manifests"
MINOR = versions.minor(os.environ.get("ENVTEST_K8S_VERSION") or versions.DEFAULT)


class Answer(NamedTuple):
    """What the server said, and between which times."""

    reply: Reply
    before: datetime
    after: datetime


@pytest.fixture(scope="module")
def server(assets: Assets) -> Iterator[ControlPlane]:
    """A control plane of its own: its etcd comes to hold what no server would have stored."""
    if versions.minor(assets.version) != MINOR:
        pytest.skip(f"KUBEBUILDER_ASSETS holds {assets.version}: set ENVTEST_K8S_VERSION to have its cases chosen")
    gates = {"DRAListTypeAttributes": True} if MINOR >= 36 else {"DRAPartitionableDevices": True}
    with ControlPlane(assets, feature_gates=gates) as plane:
        yield plane


def url(case: Case, name: str = "", subresource: str = "") -> str:
    resource = BY_KIND[case.kind]
    namespace = case.object["metadata"].get("namespace", "")
    return path(case.kind.api_version, resource.resource, namespace=namespace, name=name, subresource=subresource)


def store(plane: ControlPlane, case: Case) -> dict[str, Any]:
    """The case's old object as the server shows it; what the server refuses goes into etcd behind its back."""
    name = case.old["metadata"]["name"]
    reply = plane.client.create(url(case), case.old)
    if reply.ok and "status" in case.old:
        reply = plane.client.replace(url(case, name, "status"), {**reply.object, "status": case.old["status"]})
    if not reply.ok:
        write(plane.folder / arguments.ETCD_SOCKET, BY_KIND[case.kind].resource, case.old)
    return plane.client.get(url(case, name)).object


def ask(plane: ControlPlane, case: Case, field_validation: str = "") -> Answer:
    """The server's verdict; nothing of the case is left there."""
    new = copy.deepcopy(case.object)
    if case.operation == "CREATE":
        return timed(lambda: plane.client.create(url(case), new, dry_run=True, field_validation=field_validation))
    name = case.old["metadata"]["name"]
    try:
        stored = store(plane, case)
        if "resourceVersion" in new["metadata"]:
            new["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        place = url(case, name, case.sub_resource)
        return timed(lambda: plane.client.replace(place, new, dry_run=True, field_validation=field_validation))
    finally:
        assert plane.client.delete(url(case, name)).ok


def timed(send: Any) -> Answer:
    before = datetime.now(UTC)  # noqa: TID251 -- a server has a clock of its own
    reply = send()
    return Answer(reply, before, datetime.now(UTC))  # noqa: TID251 -- likewise


def on_this_release(case: Case) -> bool:
    return case.served and MINOR in case.minors


@each_case(on_this_release)
def test_api_server_says_of_a_case_what_its_header_says(case: Case, server: ControlPlane) -> None:
    reply = ask(server, case).reply
    expected = () if case.ours else case.errors
    if case.undecodable:
        assert (reply.code, reply.reason) == (400, "BadRequest"), reply.message
        return
    distinct = dict.fromkeys(reply.causes)  # 1.34 says some things twice, word for word
    assert told((cause.field, cause.reason) for cause in distinct) == expected, reply.message
    assert reply.ok == (not expected), reply.message


@each_case(lambda case: on_this_release(case) and case.sets is not None and not case.ours)
def test_api_server_sets_what_the_header_says(case: Case, server: ControlPlane) -> None:
    check_sets(case, ask(server, case))


def check_sets(case: Case, answer: Answer) -> None:
    expected = with_sets(case.object, case.sets or {}, NOW)
    for (where, mine), (_, theirs) in zip(defaulted(expected), defaulted(answer.reply.object), strict=True):
        if mine == NOW:
            time = parse_time(theirs or "")
            assert time is not None, where
            assert answer.before - timedelta(seconds=1) <= time <= answer.after, where
        elif where.endswith(".timeAdded"):
            assert parse_time(theirs or "") == parse_time(mine or ""), where
        else:
            assert theirs == mine, where


@each_case(lambda case: on_this_release(case) and case.strict != ())
def test_api_server_refuses_fields_that_nobody_has_when_asked_to_be_strict(case: Case, server: ControlPlane) -> None:
    reply = ask(server, case, field_validation="Strict").reply
    assert (reply.code, reply.reason) == (400, "BadRequest"), reply.message
    assert [field for field in case.strict if f'unknown field "{field}"' not in reply.message] == []


def of_no_release(case: Case) -> bool:
    """It has fields of a design that was never released, in a kind and version that is."""
    if case.kind.kind == "DeviceTaintRule":
        here = case.kind.version in versions.rule_versions(f"1.{MINOR}.0")
    else:
        here = case.kind.kind == "ResourceSlice" and case.kind.version != "v1alpha3"
    return here and MINOR in case.minors and not case.served and case.operation == "CREATE"


@each_case(of_no_release)
def test_api_server_drops_fields_that_were_never_released(case: Case, server: ControlPlane) -> None:
    """N-1 to N-12, N-26: whatever is in them; it warns, and refuses them only when asked to be strict."""
    reply = ask(server, case).reply
    dropped = set(re.findall(r'unknown field "([^"]+)"', " ".join(reply.warnings)))
    assert dropped, reply.warnings
    assert not any(has(reply.object, field) for field in dropped)
    assert all(has(case.object, field) for field in dropped)
    strict = ask(server, case, field_validation="Strict").reply
    assert (strict.code, set(re.findall(r'unknown field "([^"]+)"', strict.message))) == (400, dropped)


def has(obj: Any, field: str) -> bool:
    """Whether an object has a field, by its path in warnings, such as `spec.devices[0].taints`."""
    for step in re.findall(r"[^.\[\]]+", field):
        if isinstance(obj, list):
            obj = obj[int(step)]
        elif step in obj:
            obj = obj[step]
        else:
            return False
    return True


@pytest.fixture(scope="module")
def beside_us(server: ControlPlane) -> Iterator[ControlPlane]:
    """The same server, with our webhook registered as shipped; what it judges alone stands above."""
    if MINOR != NEWEST_MINOR:
        pytest.skip("our process judges by the rules of the newest release")
    with WebhookProcess() as webhook, registered(server, MANIFESTS, webhook.base_url, webhook.ca_pem):
        yield server


def told_by_us(case: Case) -> bool:
    """What we add to the verdict of servers, and what came from designs that were never released."""
    ours = case.ours or case.warnings != () or any(each.startswith("N-") for each in case.ids)
    return on_this_release(case) and ours and case.strict == ()  # fields that the server drops do not come to us


@each_case(told_by_us)
def test_users_are_told_what_we_decide_otherwise_or_warn_of(case: Case, beside_us: ControlPlane) -> None:
    """N-9 to N-12, N-22, L-7, L-8: the whole way, through the API server."""
    answer = ask(beside_us, case)
    reply = answer.reply
    assert told({(cause.field, cause.reason) for cause in reply.causes}) == tuple(dict.fromkeys(case.errors)), reply
    assert reply.ok == case.allowed, reply.message
    assert not case.ours or reply.ok or "denied the request" in reply.message
    if reply.ok:
        assert sorted(set(re.findall(r"\bDT\d{3}\b", " ".join(reply.warnings)))) == sorted(set(case.warnings))
        if case.sets is not None and "D-2" not in case.ids:  # there the server was first, and has set the time
            check_sets(case, answer)
