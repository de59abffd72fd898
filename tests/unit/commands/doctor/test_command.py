"""`doctor`: its output, its probes, and the rights that it asks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest
import yaml

from tests.builders import NOW, make_review
from tests.unit.commands.api_server import ApiServer, serving
from tests.unit.commands.doctor.test_checks import POLICY
from tests.unit.policy.documents import policy_of
from webhook.admission.chain import validate
from webhook.admission.context import AdmissionContext
from webhook.admission.review import decode_review
from webhook.api.meta import SERVED_VERSIONS, format_time
from webhook.api.names import PATCH_ACCOUNT, PROGRAM, WORKER
from webhook.cluster.client.errors import ClusterError
from webhook.commands.doctor import command as doctor
from webhook.commands.doctor.checks import AHEAD_CODE, PROBE_CODE, Check, Status, as_json, as_text
from webhook.commands.doctor.probe import (
    COLLECTIONS,
    PATCH_ENTRIES,
    RIGHTS,
    SELF_MANAGED,
    Doctor,
    Right,
    forged_template,
    policy_probe,
    probe,
    wait_answered,
    webhook_entry_of,
)
from webhook.commands.shared.main import main_of
from webhook.config.texts import policy_config_map

MANIFESTS: Final = Path(__file__).parents[4] / "manifests"
CERTS: Final = Path(__file__).parents[4] / "certs"
CHECKS: Final = [
    Check("clock", Status.OK, "agrees"),
    Check("key", Status.FAIL, "none\x1b[2J", "apply the manifests"),
    Check("policy", Status.WARN, "mild", "be strict"),
]


def test_text_has_a_line_for_each_check_and_one_for_what_to_do() -> None:
    assert as_text(CHECKS) == (
        "ok    clock: agrees\nfail  key: none\\x1b[2J\n      apply the manifests\nwarn  policy: mild\n      be strict\n"
    )
    assert "\x1b[1;31mfail\x1b[0m  key" in as_text(CHECKS, color=True)


def test_json_has_the_worst_and_all() -> None:
    assert json.loads(as_json(CHECKS[::2])) == {
        "version": 1,
        "status": "warn",
        "checks": [
            {"name": "clock", "status": "ok", "message": "agrees", "advice": ""},
            {"name": "policy", "status": "warn", "message": "mild", "advice": "be strict"},
        ],
    }


# --- probes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", SERVED_VERSIONS)
@pytest.mark.parametrize("sort", COLLECTIONS)
def test_every_probe_is_worth_the_advice_that_marks_an_answer(sort: str, version: str) -> None:
    if (sort, version) == ("rules", "v1beta1"):
        version = "v1alpha3"
    if sort == "patches":
        version = "v1alpha1"
    decision = _judged(probe(sort, version, "default").obj)
    assert decision.allowed
    assert PROBE_CODE in {finding.code for finding in decision.findings}


@pytest.mark.parametrize("version", SERVED_VERSIONS)
def test_forged_template_has_no_other_fault(version: str) -> None:
    (finding,) = _judged(forged_template(version, "ns").obj).findings
    assert (finding.rule, "names another author" in finding.error.detail) == ("requestedBy", True)


@pytest.mark.parametrize(("seconds", "ahead"), [(50, False), (70, True)])
def test_a_time_is_told_from_the_future(seconds: int, *, ahead: bool) -> None:
    time = format_time(NOW.fromtimestamp(NOW.timestamp() + seconds, NOW.tzinfo))
    obj = probe("rules", "v1", "").obj
    obj["spec"]["taint"]["timeAdded"] = time
    findings = _judged(obj).findings
    assert (AHEAD_CODE in {finding.code for finding in findings}) is ahead


def test_the_policy_probe_is_refused() -> None:
    made = policy_probe(policy_config_map("device-taint-webhook"))
    assert made.collection == "/api/v1/namespaces/device-taint-webhook/configmaps"
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    review = make_review(probe("rules", "v1", "").obj)
    review["request"] |= {"object": made.obj, "resource": resource, "kind": kind, **made.obj["metadata"]}
    from webhook.commands.shared.policy_files import read_policy  # noqa: PLC0415 -- as serve does

    context = AdmissionContext(now=NOW, read_policy=read_policy)
    assert not validate(decode_review(json.dumps(review).encode()), context).allowed


def _judged(obj: Any) -> Any:
    return validate(decode_review(json.dumps(make_review(obj)).encode()), AdmissionContext(now=NOW))


@pytest.mark.parametrize(
    ("config", "address"),
    [
        ({"service": {"name": "n", "namespace": "ns"}}, ("n.ns.svc", 443, "n.ns.svc")),
        ({"service": {"name": "n", "namespace": "ns", "port": 8443}}, ("n.ns.svc", 8443, "n.ns.svc")),
        ({"url": "https://127.0.0.1:9443/validate"}, ("127.0.0.1", 9443, "127.0.0.1")),
    ],
)
def test_addresses(config: Any, address: tuple[str, int, str]) -> None:
    assert webhook_entry_of("Validating", {"name": "x", "clientConfig": config}).address == address


class Waiting:
    """A doctor with these reasons in turn, and then none."""

    def __init__(self, *reasons: str | ClusterError) -> None:
        self._reasons = [*reasons]

    async def unanswered(self) -> str:
        reason = self._reasons.pop(0) if self._reasons else ""
        if isinstance(reason, ClusterError):
            raise reason
        return reason


def test_waiting_tells_each_new_reason_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """M5: five silent minutes look like a program that hangs."""
    monkeypatch.setattr("webhook.commands.doctor.probe._POLL_SECONDS", 0.0)
    waiting = cast("Doctor", Waiting(ClusterError("no answer"), "a", "a", "b"))
    asyncio.run(wait_answered(waiting, 60.0))
    assert capsys.readouterr().err == "waiting: no answer\nwaiting: a\nwaiting: b\n"


# --- the policy in use ----------------------------------------------------------------------------

SPACE: Final = "/namespaces/device-taint-webhook"
CONFIG_MAP: Final = f"/api/v1{SPACE}/configmaps/device-taint-webhook-policy"
EVENTS: Final = f"/api/v1{SPACE}/events"
LEASE_PATH: Final = f"/apis/coordination.k8s.io/v1{SPACE}/leases/device-taint-webhook-evict"
BROKEN: Final = {"data": {"policy.yaml": "kind: ["}}
LATER: Final = "2126-01-01T00:00:00.000000Z"


def lease(used: str, lost: str = "", holder: str = "evict-7") -> Any:
    annotations = {"devicetaint.io/policy": used, **({"devicetaint.io/last-policy": lost} if lost else {})}
    return {"metadata": {"annotations": annotations}, "spec": {"holderIdentity": holder, "renewTime": LATER}}


def event(message: str, at: str = "2026-06-01T12:00:00Z") -> Any:
    return {"metadata": {"creationTimestamp": at}, "message": message}


GONE: Final = event("policy abc was deleted: the built-in one is in use, which allows every toleration")
NOT_LOADED: Final = event("policy not loaded, abc stays in use: data[policy.yaml]: x")
OLDER: Final = event("policy not loaded, builtin stays in use: data[policy.yaml]: x", "2026-06-01T11:00:00Z")


def examined(tables: ApiServer, folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> list[tuple[str, str]]:
    """Status and message of the checks of this name."""
    tables.objects["/version"] = {"gitVersion": "v1.37.2"}
    tables.verdict = 201, {"status": {"allowed": True}}
    with serving(tables, folder):
        main_of(doctor, [f"--kubeconfig={folder / 'kubeconfig'}", "-o", "json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    return [(each["status"], each["message"]) for each in checks if each["name"] == name]


def test_a_worker_need_not_be_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = f"no Deployment {PROGRAM} in namespace {PROGRAM}"
    assert examined(ApiServer(), tmp_path, capsys, "deployment") == [("warn", missing)]


NONE_SET: Final = "the built-in policy applies: all tolerations are allowed"
UNUSED: Final = "; the eviction worker uses"
MILD: Final = {"data": {"policy.yaml": f"{POLICY}mode: 'off'\n"}}
GOOD: Final = {"data": {"policy.yaml": POLICY}}
HASH: Final = policy_of().hash


@pytest.mark.parametrize(
    ("config_map", "found", "events", "said"),
    [
        (404, 404, [], ("ok", f"none is set, so {NONE_SET}")),
        (404, 404, [GONE], ("warn", f"policy abc is gone, so {NONE_SET}")),
        (404, 403, [GONE], ("ok", f"none is set, so {NONE_SET}")),
        (404, 404, 403, ("ok", f"none is set, so {NONE_SET}")),
        (404, lease("builtin", "abc"), [], ("warn", f"policy abc is gone, so {NONE_SET}")),
        (404, lease("abc", "abc", holder=""), [], ("warn", f"policy abc is gone, so {NONE_SET}")),
        (404, lease("builtin"), [], ("ok", f"none is set, so {NONE_SET}")),
        (BROKEN, 404, [], ("fail", "did not find expected node content")),
        (BROKEN, 404, [NOT_LOADED, OLDER], ("fail", "; policy abc stays in use")),
        (BROKEN, lease("abc", "abc"), [], ("fail", "; policy abc stays in use")),
        (BROKEN, lease("builtin", "abc"), [], ("fail", "; the built-in policy stays in use")),
        (MILD, 404, [], ("warn", "0 taint rules, mode off: nothing is refused")),
        (GOOD, lease("abc", "abc"), [], ("warn", f"0 taint rules{UNUSED} policy abc instead")),
        (GOOD, lease("builtin", "abc"), [], ("warn", f"0 taint rules{UNUSED} the built-in policy instead")),
        (GOOD, lease(HASH, HASH), [], ("ok", "0 taint rules")),
        (GOOD, lease("abc", "abc", holder=""), [], ("ok", "0 taint rules")),
        (GOOD, {"metadata": {"annotations": 7}, "spec": "x"}, [], ("ok", "0 taint rules")),
    ],
)
def test_policy_that_is_lost_refused_or_not_in_use_is_told(
    config_map: Any, found: Any, events: Any, said: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """H2: by the Lease of the worker, or else by what `serve` has told."""
    tables = ApiServer()
    tables.objects = {CONFIG_MAP: config_map, LEASE_PATH: found, EVENTS: 403}
    if events != 403:
        del tables.objects[EVENTS]
        tables.collections[EVENTS] = events
    [(status, told)] = examined(tables, tmp_path, capsys, "policy")
    assert (status, told[-len(said[1]) :]) == said


# --- rights -------------------------------------------------------------------------------------


def _granted(files: list[Path], account: str, only_with: str = "") -> Iterator[Right]:
    for file in files:
        for document in yaml.safe_load_all(file.read_text()):
            if document["kind"] not in ("Role", "ClusterRole"):
                continue
            namespaced = document["kind"] == "Role"
            for rule in document["rules"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        for verb in rule["verbs"]:
                            for name in rule.get("resourceNames", [""]):
                                yield Right(account, verb, group, resource, name, namespaced, only_with)


def test_the_rights_asked_for_are_those_that_the_manifests_grant() -> None:
    granted = {
        *_granted([MANIFESTS / "base/access.yaml"], PROGRAM),
        *_granted([CERTS / "self-managed/access.yaml"], PROGRAM, SELF_MANAGED),
        *_granted([MANIFESTS / "components/patches/access.yaml"], PROGRAM, PATCH_ENTRIES),
        *_granted([MANIFESTS / "components/evict/access.yaml"], WORKER),
        *_granted([MANIFESTS / "components/patch-controller/access.yaml"], PATCH_ACCOUNT),
    }
    assert set(RIGHTS) == granted
    assert len(RIGHTS) == len(granted)


def test_a_right_as_a_review_asks_for_it() -> None:
    right = Right(WORKER, "patch", "resource.k8s.io", "devicetaintrules/status", namespaced=False)
    assert right.attributes("ns") == {
        "verb": "patch",
        "group": "resource.k8s.io",
        "resource": "devicetaintrules",
        "subresource": "status",
    }
    assert str(Right(PROGRAM, "get", "", "secrets", "key", namespaced=True)) == "get secrets key"
