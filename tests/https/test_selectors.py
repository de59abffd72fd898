"""What CEL selectors take does not keep other reviews waiting; over real TLS, with a server that has one loop."""

from __future__ import annotations

import threading
from typing import Any, Final

import pytest

from tests.builders import encoded, make_review, make_rule, make_taint
from tests.https.conftest import StartServer
from tests.https.serving import Server, post
from tests.https.test_crowds import READS_ON, TARGET, refusing_beside, response_in
from tests.selectors.hostile import bomb, long, towers
from tests.unit.admission.patch_guarding import cel, known, patching, racks
from tests.unit.policy.documents import judge_of
from webhook.expressions.selectors import selector as selectors
from webhook.inventory.state import Sight
from webhook.patches.filter_memo import FilterMemo

CROWD: Final = 16
LANE: Final = "large-reviews"
CLOSING: Final = make_taint(effect="NoSchedule")


def rule_of(expression: str) -> bytes:
    selector = {"driver": "gpu.example.com", "selectors": [{"cel": {"expression": expression}}]}
    return encoded(make_review(make_rule(version="v1alpha3", selector=selector, taint=CLOSING)))


def patch_of(expression: str) -> bytes:
    return encoded(make_review(patching(cel(expression), CLOSING)))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The thread in which each selector was compiled to its end, and the selector."""
    found: list[tuple[str, str]] = []
    measured = selectors._measured

    def watched(expression: str, budget: Any) -> Any:
        result = measured(expression, budget)
        found.append((threading.current_thread().name, expression))
        return result

    monkeypatch.setattr(selectors, "_measured", watched)
    return found


@pytest.fixture
def following(start_server: StartServer) -> Server:
    """A server that knows four nodes, and patches."""
    server = start_server(READS_ON)
    server.state.policies.use(judge_of(default="deny"))
    inventory, memo = racks(), FilterMemo()
    server.state.sight = lambda: Sight(inventory)
    server.state.patches = lambda: known(memo=memo)
    return server


@pytest.mark.parametrize("make", [bomb, long, towers])
@pytest.mark.parametrize("review", [rule_of, patch_of], ids=["rule", "patch"])
def test_forbidden_claim_is_refused_in_its_time_beside_sixteen_hostile_selectors(
    following: Server, make: Any, review: Any
) -> None:
    answers = refusing_beside(following, [review(make(seed)) for seed in range(CROWD)])
    assert len(answers) == CROWD
    assert {answer["allowed"] or answer["status"]["code"] for answer in answers} <= {True, 403, 422, 504}


def test_selector_that_takes_long_is_compiled_in_the_lane_and_once(
    following: Server, compiled: list[tuple[str, str]]
) -> None:
    answer = response_in(following.ask(post(patch_of(long(1)), "/validate?timeout=30s")))
    assert answer["allowed"] is True
    assert [(name[: len(LANE)], text) for name, text in compiled] == [(LANE, long(1))]


def test_selector_that_takes_no_time_is_compiled_on_the_loop(
    following: Server, compiled: list[tuple[str, str]]
) -> None:
    expression = f"device.driver == 'gpu{id(compiled)}'"
    assert response_in(following.ask(post(patch_of(expression), TARGET)))["allowed"] is True
    assert [text for _, text in compiled] == [expression]
    assert not compiled[0][0].startswith(LANE)


def test_mutating_waits_for_the_lane_as_well(following: Server, compiled: list[tuple[str, str]]) -> None:
    assert response_in(following.ask(post(patch_of(long(2)), "/mutate?timeout=30s")))["allowed"] is True
    assert all(name.startswith(LANE) for name, _ in compiled)


def test_class_of_a_filter_is_compiled_in_the_lane(following: Server, compiled: list[tuple[str, str]]) -> None:
    memo = FilterMemo()
    following.state.patches = lambda: known(classes={"hostile": (long(3), towers(1))}, memo=memo)
    body = encoded(make_review(patching({"deviceClassName": "hostile"}, CLOSING)))
    for _ in range(2):
        answer = response_in(following.ask(post(body, "/validate?timeout=30s")))
        assert answer["allowed"] is True
    assert [(name[: len(LANE)], text) for name, text in compiled if text == long(3)] == [(LANE, long(3))]


def test_filter_that_takes_long_is_asked_in_small_steps_until_there_is_an_answer(following: Server) -> None:
    """As long as the loop is not held; each of these takes as many steps as an evaluation may."""
    inventory, memo = racks(2), FilterMemo()
    following.state.sight = lambda: Sight(inventory)
    following.state.patches = lambda: known(memo=memo)
    slow = "lists.range(40).all(x, lists.range(9).all(y, x + y >= 0))"
    answers = refusing_beside(following, [patch_of(f"{slow} && {seed} < 99") for seed in range(2)])
    said = [str(answer.get("status", "")) + str(answer.get("warnings", "")) for answer in answers]
    assert [text for text in said if "longer than a review may" in text] == []
