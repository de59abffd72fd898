"""What `status` says of a pod that waits for another one that it goes together with."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.commands.status.test_states import budget, told
from tests.unit.eviction.objects import claim, pod, rule, tolerates
from webhook.api.pods import Pod
from webhook.commands.shared.objects import StatusObjects
from webhook.commands.status.report import lines_of
from webhook.commands.status.views import PodState, PodStatus, StatusSettings, WaitKind
from webhook.eviction.modes import InTree, Mode
from webhook.policy.model import BUILTIN, EvictionProfile, EvictionWindow

WEB = (("app", "web"),)


def member(name: str, after: int | None = None, gang: str = "train", **fields: Any) -> list[Any]:
    """A pod of a gang with a claim of its own."""
    tolerations = () if after is None else (tolerates(after),)
    return [claim(name, *tolerations, devices=(f"gpu-{name}",)), pod(name, gang=gang, **fields)]


def statuses(
    *given: Any, profiles: tuple[EvictionProfile, ...] = (EvictionProfile(),), seconds: float = 0.0
) -> dict[str, PodStatus]:
    """By name of the pod."""
    objects = StatusObjects()
    for each in given:
        objects.add(each)
    policy = structs.replace(BUILTIN, eviction=profiles)
    now = NOW + timedelta(seconds=seconds)
    lines, _ = lines_of(objects, StatusSettings(policy, Mode.REPLACEMENT, InTree.ABSENT, now))
    return {each.name: each for line in lines for each in line.pods}


def test_pods_wait_for_the_last_of_their_gang_and_are_due_with_it() -> None:
    given = [rule(), *member("a", 10), *member("b", 50), *member("c", 30)]
    found = statuses(*given, seconds=20)
    text = "ml/b, which it goes together with and which is not due yet"
    assert told(found["a"]) == (PodState.NOT_DUE, WaitKind.GANG, text)
    assert found["a"].waits_for.pods == ["ml/b"]
    assert told(found["b"]) == (PodState.NOT_DUE, WaitKind.TIME, "its due time")
    assert told(found["c"]) == (PodState.NOT_DUE, WaitKind.TIME, "its due time")
    assert {each.due for each in found.values()} == {NOW + timedelta(seconds=50)}
    assert {each.since for each in found.values()} == {NOW}
    found = statuses(*given, seconds=50)
    assert {each.state for each in found.values()} == {PodState.DUE}
    assert {each.since for each in found.values()} == {NOW + timedelta(seconds=50)}


@pytest.mark.parametrize(("hold", "tail"), [("debugging", ": debugging"), ("", "")])
def test_pods_wait_for_one_on_hold(hold: str, tail: str) -> None:
    found = statuses(rule(), *member("a", hold=hold), *member("b"))
    text = f"ml/a, which it goes together with and which is on hold{tail}"
    assert told(found["b"]) == (PodState.HELD, WaitKind.GANG, text)
    assert found["b"].waits_for.pods == ["ml/a"]
    assert found["a"].waits_for.kind is WaitKind.HOLD


def test_pods_wait_for_one_that_may_complete() -> None:
    profile = EvictionProfile(wait_for_completion_seconds=60.0)
    found = statuses(rule(), *member("a", completes=True), *member("b"), profiles=(profile,))
    text = "ml/a, which it goes together with and which is left to complete, at most until 2026-06-01T12:01:00Z"
    assert told(found["b"]) == (PodState.PUT_OFF, WaitKind.GANG, text)
    assert found["a"].waits_for.kind is WaitKind.COMPLETION


def test_pods_wait_for_the_window_of_another_one() -> None:
    profiles = (
        EvictionProfile(priority_at_most=-1, windows=(EvictionWindow("0 22 * * *", 3600.0, "Europe/Berlin"),)),
        EvictionProfile(),
    )
    found = statuses(rule(), *member("a", priority=-1), *member("b"), profiles=profiles)
    text = "a window, which opens at 2026-06-01T22:00:00+02:00 (Europe/Berlin)"
    assert [told(each) for each in found.values()] == [(PodState.PUT_OFF, WaitKind.WINDOW, text)] * 2


def test_pods_wait_for_the_budget_of_another_one() -> None:
    since = NOW - timedelta(seconds=20)
    given = [rule(), *member("a"), *member("b", labels=WEB), *member("c"), *member("lone", gang="")]
    found = statuses(*given, budget(since=since))
    blocked = "disruption budget web: disruptionsAllowed 0 since 2026-06-01T11:59:40Z, 2 healthy of 2 needed"
    assert told(found["b"]) == (PodState.BLOCKED, WaitKind.BUDGET, blocked)
    assert found["b"].waits_for.pods == []
    for name in "ac":
        text = f"ml/b, which it goes together with: {blocked}"
        assert told(found[name]) == (PodState.BLOCKED, WaitKind.BUDGET, text)
        assert (found[name].waits_for.name, found[name].waits_for.pods) == ("web", ["ml/b"])
    assert found["lone"].state is PodState.DUE
    assert {each.state for each in statuses(*given, budget(allowed=1)).values()} == {PodState.DUE}


def test_pods_wait_for_a_budget_that_allows_fewer_than_go_together() -> None:
    since = NOW + timedelta(seconds=20)
    given = [rule(), *[each for name in "abc" for each in member(name, labels=WEB)]]
    found = statuses(*given, budget(allowed=2, since=since), seconds=60)
    text = "disruption budget web: disruptionsAllowed 2, for 3 pods that go together, 2 healthy of 2 needed"
    assert [told(each) for each in found.values()] == [(PodState.BLOCKED, WaitKind.BUDGET, text)] * 3
    assert {each.since for each in found.values()} == {NOW}, "it is not known since when it allows too few"
    assert {each.state for each in statuses(*given, budget(allowed=3)).values()} == {PodState.DUE}


def test_only_pods_that_need_a_disruption_count() -> None:
    ready = [rule(), *member("a", labels=WEB), *member("b", labels=WEB)]
    mixed = [*ready, *member("c", labels=WEB, ready=False), *member("d", labels=WEB, phase="Pending")]
    found = statuses(*mixed, budget(allowed=1, always=True))
    text = "disruption budget web: disruptionsAllowed 1, for 2 pods that go together, 2 healthy of 2 needed"
    assert [told(found[name])[2] for name in "ab"] == [text] * 2
    assert [told(found[name])[2] for name in "cd"] == [f"ml/a, which it goes together with: {text}"] * 2
    assert {each.state for each in statuses(*mixed, budget(allowed=2, always=True)).values()} == {PodState.DUE}


def test_pods_wait_for_one_that_two_budgets_select() -> None:
    given = [rule(), *member("a"), *member("b", labels=WEB)]
    found = statuses(*given, budget(allowed=1), budget("all", allowed=1))
    text = "disruption budgets all, web: the Eviction API refuses pods that more than one selects"
    assert told(found["a"])[2] == f"ml/b, which it goes together with: {text}"
    assert told(found["b"])[2] == text


def test_pod_that_is_deleted_at_once_needs_nothing_of_a_budget() -> None:
    profiles = (
        EvictionProfile(priority_at_most=-1, delete_after_deadline=True, deadline_seconds=0.0),
        EvictionProfile(),
    )
    given = [rule(), *member("a", labels=WEB, priority=-1), *member("b", labels=WEB)]
    found = statuses(*given, budget(allowed=1), profiles=profiles)
    assert {each.state for each in found.values()} == {PodState.DUE}


def test_pods_that_are_never_evicted_are_skipped_and_not_waited_for() -> None:
    given = [*member("mirror", 50, mirror=True), *[each for name in "ab" for each in member(name)]]
    assert sum(isinstance(each, Pod) for each in given) == 3
    found = statuses(rule(), *given)
    assert {name: each.state for name, each in found.items()} == {
        "a": PodState.DUE,
        "b": PodState.DUE,
        "mirror": PodState.SKIPPED,
    }
