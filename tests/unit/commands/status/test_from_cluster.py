"""`status` of a cluster: what it asks an API server for, what it does without, and `--watch`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.unit.commands.api_server import bare, cluster_of, serving
from tests.unit.commands.preview_runner import HEADER
from tests.unit.commands.standing_clock import Then
from tests.unit.commands.status_runner import CLUSTER, IDLE, LEASE, StatusRunner
from webhook.commands.shared.main import main_of
from webhook.commands.status import command as status
from webhook.commands.status import run as running

GROUP = "/apis/resource.k8s.io"
RULES = f"{GROUP}/v1/devicetaintrules"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
CONFIG_MAP = "/api/v1/namespaces/device-taint-webhook/configmaps/device-taint-webhook-policy"
LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/device-taint-webhook/leases/device-taint-webhook-evict"
ASK = ("--kubeconfig", "kubeconfig")
SERVED = ("resourceslices", "resourceclaims", "devicetaintrules")


@pytest.fixture
def live(run_status: StatusRunner, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatusRunner]:
    monkeypatch.setattr(running, "datetime", Then)
    tables = cluster_of(*CLUSTER)
    with serving(tables, run_status.folder):
        run_status.server = tables
        yield run_status


def values(run_status: StatusRunner, *words: str) -> Any:
    return run_status.values(*ASK, "--pods", *words, dump=None)


@pytest.mark.parametrize("forgetful", [False, True])
def test_a_cluster_says_what_its_dump_says(live: StatusRunner, *, forgetful: bool) -> None:
    live.server.forgetful = forgetful
    found, dumped = values(live), live.values("--pods")
    assert found.pop("server").startswith("http://127.0.0.1:")
    assert (found.pop("source"), dumped.pop("source"), dumped.pop("server")) == ("cluster", "dump", None)
    assert found == dumped
    assert live.server.sent == []


def test_policy_is_that_of_the_config_map_unless_a_file_is_given(live: StatusRunner) -> None:
    policy = yaml.safe_dump({**HEADER, "inTreeEvictor": "absent"})
    meta = {"name": "device-taint-webhook-policy", "namespace": "device-taint-webhook"}
    live.server.objects[CONFIG_MAP] = {"metadata": meta, "data": {"policy.yaml": policy}}
    assert values(live)["worker"]["inTree"] == "absent"
    live.server.asked.clear()
    (live.folder / "own.yaml").write_text(yaml.safe_dump(HEADER))
    assert values(live, "--policy", "own.yaml")["worker"]["inTree"] == "active"
    assert CONFIG_MAP not in live.server.asked


def test_one_connection_and_the_lease_of_the_worker(live: StatusRunner) -> None:
    live.server.objects[LEASE_PATH] = LEASE
    worker = values(live)["worker"]
    assert (worker["mode"], worker["inTree"], worker["modeGuessed"]) == ("observe", "absent", False)
    assert (live.server.connections, live.server.asked.count(LEASE_PATH)) == (1, 1)


@pytest.mark.parametrize("spec", [{"holderIdentity": ""}, {"renewTime": "2026-06-01T11:50:00.000000Z"}], ids=str)
def test_lease_that_no_one_holds_or_renews_is_no_worker(spec: dict[str, Any], live: StatusRunner) -> None:
    """The conditions on rules are those of a worker that is gone."""
    live.server.objects[LEASE_PATH] = {**LEASE, "spec": {**LEASE["spec"], **spec}}
    found = values(live)
    assert (found["worker"]["mode"], found["worker"]["runs"]) == ("observe", False)
    assert "nothing: no eviction worker is known" in {each["waitsFor"]["message"] for each in found["pods"]}


def test_without_permission_to_read_the_lease_the_conditions_decide(live: StatusRunner) -> None:
    live.server.objects[LEASE_PATH] = 403
    found = values(live)
    assert (found["worker"]["mode"], found["worker"]["modeGuessed"]) == ("delegated", True)
    assert found["notes"][0].startswith("no permission to read the worker's Lease, so its mode is not known: ")


# --- without permission -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind", "note"),
    [
        (f"{GROUP}/v1/resourceslices", "ResourceSlice", "so published devices and taints on them are unknown"),
        (f"{GROUP}/v1/resourceclaims", "ResourceClaim", "so it is unknown which pods use a device"),
        ("/api/v1/pods", "Pod", "so no pod is counted"),
        ("/api/v1/namespaces", "Namespace", "so holds of namespaces are unknown"),
        (BUDGETS, "PodDisruptionBudget", "so pods are shown as due that a disruption budget blocks"),
    ],
)
def test_without_permission_it_says_what_is_unknown(path: str, kind: str, note: str, live: StatusRunner) -> None:
    del live.server.collections[path]
    live.server.objects[path] = 403
    found = values(live)
    assert found["missing"] == [kind]
    (only,) = found["notes"]
    assert only.startswith(f"no permission to read {path.rpartition('/')[2]}, {note}")
    assert found["taints"][0]["reported"]["evicted"] == 2


def test_without_permission_to_read_the_policy_the_built_in_one_is_used(live: StatusRunner) -> None:
    live.server.objects[CONFIG_MAP] = 403
    assert values(live)["notes"][0].startswith("no permission to read the policy, so the built-in one is used: ")


def test_without_permission_to_read_rules_there_is_no_status(live: StatusRunner) -> None:
    del live.server.collections[RULES]
    live.server.objects[RULES] = 403
    code, output, error = live(*ASK, dump=None)
    assert (code, output) == (2, "")
    assert "devicetaintrules" in error


def test_rules_that_are_not_served_leave_taints_in_slices(live: StatusRunner) -> None:
    live.server.objects[f"{GROUP}/v1"] = {"resources": [{"name": name} for name in SERVED[:2]]}
    found = values(live)
    assert found["notes"] == ["the cluster does not serve DeviceTaintRules (feature gate DRADeviceTaints)"]
    assert [each["kind"] for each in found["taints"]] == ["Driver"]


def test_claims_that_are_not_served_are_an_error(live: StatusRunner) -> None:
    live.server.objects[f"{GROUP}/v1"] = {"resources": [{"name": "devicetaintrules"}, {"name": "resourceslices"}]}
    code, _, error = live(*ASK, dump=None)
    assert (code, "resourceclaims.resource.k8s.io is not served in v1, v1beta2, v1beta1" in error) == (2, True)


def test_object_that_cannot_be_read_is_an_error(live: StatusRunner) -> None:
    live.server.collections[BUDGETS] = [{"metadata": {"name": "odd", "namespace": "ml"}, "spec": {"selector": 7}}]
    code, _, error = live(*ASK, dump=None)
    assert (code, "ml/odd cannot be read: spec.selector" in error) == (2, True)


# --- watching -----------------------------------------------------------------------------------


def watched(run_status: StatusRunner, *words: str) -> str:
    with pytest.raises(KeyboardInterrupt):
        main_of(status, [*ASK, "--watch", "--interval", "7", *words])
    return run_status.capsys.readouterr().out


def test_watched_json_is_one_document_a_line(live: StatusRunner, rounds: list[Callable[[], None]]) -> None:
    rounds.append(lambda: live.server.collections.update({RULES: [bare(IDLE)]}))
    first, second = [json.loads(line) for line in watched(live, "-o", "json").splitlines()]
    assert [[each["name"] for each in found["taints"]][:-1] for found in (first, second)] == [
        ["firmware", "idle"],
        ["idle"],
    ]
    documents = yaml.safe_load_all(watched(live, "-o", "yaml"))
    assert [[each["name"] for each in found["taints"]][:-1] for found in documents] == [["idle"]]


def test_rule_that_is_gone_while_it_is_watched_is_a_note(live: StatusRunner, rounds: list[Callable[[], None]]) -> None:
    rounds.append(lambda: live.server.collections.update({RULES: [bare(IDLE)]}))
    output = watched(live, "firmware")
    assert output.count("note: firmware is gone\n") == 1
    assert "\x1b" not in output


def test_last_answer_stays_while_the_cluster_does_not_answer(
    live: StatusRunner, rounds: list[Callable[[], None]]
) -> None:
    discovery = live.server.objects[f"{GROUP}/v1"]

    def break_down() -> None:
        live.server.objects[f"{GROUP}/v1"] = 500

    rounds += [break_down, break_down, lambda: live.server.objects.update({f"{GROUP}/v1": discovery})]
    documents = [json.loads(line) for line in watched(live, "-o", "json").splitlines()]
    assert [len(found["notes"]) for found in documents] == [0, 1, 1, 0]
    assert documents[1]["notes"][0].startswith("this is the last answer, because the cluster cannot be read now: ")
    assert documents[1]["taints"] == documents[0]["taints"]


def test_a_terminal_is_cleared_once_and_then_overwritten(
    live: StatusRunner, rounds: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    rounds.append(lambda: None)
    output = watched(live, "--color", "never")
    assert output.startswith("\x1b[2J\x1b[H")
    assert (output.count("\x1b[2J"), output.count("\x1b[H"), output.count("firmware")) == (1, 2, 2)
    assert "\x1b" not in watched(live, "-o", "json")


def test_screen_is_overwritten_line_by_line() -> None:
    assert running.framed("a\nb\n", 24) == "\x1b[H\x1b[?7la\x1b[K\nb\x1b[K\n\x1b[J\x1b[?7h"


def test_what_does_not_fit_on_the_screen_is_counted() -> None:
    framed = running.framed("".join(f"{number}\n" for number in range(10)), 5)
    assert framed.count("\n") == 4
    assert "2\x1b[K\nand 7 more lines; device-taint-webhook status without --watch shows all" in framed
    assert "more" not in running.framed("1\n2\n3\n4\n", 5)


@pytest.mark.usefixtures("live")
def test_watching_ends_when_the_reader_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "write_more", lambda _, **__: 0)
    assert main_of(status, [*ASK, "--watch"]) == 0
