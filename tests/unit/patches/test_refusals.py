"""When writes that were refused are tried again."""

from __future__ import annotations

from webhook.patches.refusals import MOST_SECONDS, WriteAttempts, again_seconds


def test_waits_double_and_end_at_a_minute() -> None:
    assert [again_seconds(times) for times in range(1, 10)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_attempts_are_counted_until_the_thing_changes_or_is_accepted() -> None:
    attempts = WriteAttempts()

    def wait(name: str, version: int) -> float:
        return attempts.tried(name, version, 0.0, "no")

    assert [wait("a", 1), wait("a", 1), wait("b", 1)] == [1, 2, 1]
    assert [wait("a", 2), wait("a", 2)] == [1, 2]
    attempts.forget("a")
    attempts.forget("never refused")
    assert wait("a", 2) == 1


def test_the_same_again_has_to_wait_and_anything_else_does_not() -> None:
    attempts = WriteAttempts()
    assert attempts.left_seconds("a", 1, 100.0) == 0
    attempts.tried("a", 1, 100.0)
    assert attempts.left_seconds("a", 1, 100.0) == 1
    assert attempts.left_seconds("a", 1, 100.75) == 0.25
    assert attempts.left_seconds("a", 2, 100.0) == 0
    assert attempts.left_seconds("b", 1, 100.0) == 0
    attempts.tried("a", 1, 101.0)
    assert attempts.left_seconds("a", 1, 101.0) == 2
    attempts.tried("a", 2, 101.0)
    assert attempts.left_seconds("a", 2, 101.0) == 1


def test_what_was_long_ago_does_not_count() -> None:
    attempts = WriteAttempts()
    for _ in range(7):
        attempts.tried("a", 1, 0.0, "no")
    assert attempts.left_seconds("a", 1, 1.0) == MOST_SECONDS - 1
    attempts.expire(2 * MOST_SECONDS - 1)
    assert attempts.refused(["a"]) == {"a": "no"}
    attempts.tried("b", 1, 2 * MOST_SECONDS)
    attempts.expire(2 * MOST_SECONDS)
    assert attempts.refused(["a"]) == {}
    attempts.tried("a", 1, 0.0)
    attempts.tried("a", 1, 2 * MOST_SECONDS)
    assert attempts.left_seconds("a", 1, 2 * MOST_SECONDS) == 1, "counted from the beginning"


def test_refused_is_what_the_last_answer_said() -> None:
    attempts = WriteAttempts()
    attempts.tried("a", 1, 0.0, "no")
    attempts.tried("b", 1, 0.0)
    assert attempts.refused(["a", "b", "c"]) == {"a": "no"}
    attempts.tried("a", 1, 1.0)
    assert attempts.refused(["a"]) == {}


def test_after_a_change_of_what_decides_all_may_be_tried() -> None:
    attempts = WriteAttempts()
    attempts.tried("a", 1, 0.0, "no")
    attempts.clear()
    assert attempts.left_seconds("a", 1, 0.0) == 0
    assert attempts.refused(["a"]) == {}
