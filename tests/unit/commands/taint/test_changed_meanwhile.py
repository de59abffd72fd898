"""Rules of which more than the status changes between the read and the write of a verb: they are left as they are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.tables import table
from tests.unit.commands.rule_server import ECC, RULES, VerbRunner, rule_on, status
from webhook.commands.shared.words import DeviceAddress, TaintSpec, WantedRule

GPU = "gpu.example.com/node-0/gpu-0"
NAME = WantedRule(DeviceAddress(*GPU.split("/")), TaintSpec(ECC, "", "NoSchedule")).name
CHANGED = status(409, "Conflict", "the object has been modified")
REFUSED = (1, "", "Error from server (Conflict): the object has been modified\n")
ACTING = {"devicetaint.io/evict": "true", "devicetaint.io/expires-at": "2020-06-01T11:00:00Z"}


def newer(**meta: Any) -> Any:
    rule = rule_on(NAME, **{"annotations": ACTING, **meta})
    rule["metadata"]["resourceVersion"] = "6"
    return rule


def of_generation(number: int, rule: Any) -> Any:
    rule["metadata"]["generation"] = number
    return rule


def of_uid(uid: str, rule: Any) -> Any:
    rule["metadata"]["uid"] = uid
    return rule


@pytest.fixture
def change(verb: VerbRunner, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set what becomes of the rule right before the first write of it."""
    verb.server.keep(rule_on(NAME, annotations=ACTING))
    write, left = verb.server.write, list[list[Any]]()

    def changed(method: str, target: str, body: bytes) -> tuple[int, Any]:
        if method == "PUT" and left:
            verb.server.keep(*copy.deepcopy(left.pop()))
            return CHANGED
        return write(method, target, body)

    monkeypatch.setattr(verb.server, "write", changed)
    return lambda *rules: left.append([*rules])


@table(
    "rules",
    {
        "a person stopped it": [of_generation(2, newer(effect="None", annotations={}))],
        "the worker ended it": [of_generation(2, newer(effect="None"))],
        "it ends pods at once by now": [of_generation(2, newer(effect="NoExecute"))],
        "it was set and reset": [of_generation(3, newer())],
        "it is gone": [],
        "it is another of that name": [of_uid("another", newer())],
        "its impact was confirmed": [newer(annotations={**ACTING, "devicetaint.io/confirm-impact": "v1 devices=1"})],
        "it no longer asks for eviction": [newer(annotations={})],
        "a controller owns it": [
            newer(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}])
        ],
        "it is being deleted": [newer(deletionTimestamp="2026-06-01T11:00:00Z")],
    },
)
def test_rule_that_was_changed_meanwhile_is_left_as_it_is(
    rules: list[Any], verb: VerbRunner, change: Callable[..., None]
) -> None:
    change(*rules)
    assert verb("taint", GPU, f"{ECC}=x:NoSchedule", "--overwrite", "--evict", "--reason", "x") == REFUSED
    assert (verb.server.collections[RULES], verb.server.sent) == (
        [{name: part for name, part in each.items() if name not in ("apiVersion", "kind")} for each in rules],
        [],
    )


def test_status_and_its_manager_are_no_change(verb: VerbRunner, change: Callable[..., None]) -> None:
    change({**newer(managedFields=[{"manager": "evict"}]), "status": {"conditions": []}})
    assert verb.output("taint", GPU, f"{ECC}=x:NoSchedule", "--overwrite").startswith(f"{GPU} modified by ")


def test_conflict_is_named_where_the_rule_cannot_be_read_again(verb: VerbRunner, change: Callable[..., None]) -> None:
    change(newer())
    verb.server.forbidden.add(f"{RULES}/{NAME}")
    assert verb("taint", GPU, f"{ECC}=x:NoSchedule", "--overwrite") == REFUSED
