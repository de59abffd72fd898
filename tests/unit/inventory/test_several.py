"""Names under a key: few are a tuple, many are changed in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.inventory.state import add_name, remove_name

if TYPE_CHECKING:
    from webhook.inventory.state import Several


def with_names(number: int) -> dict[str, Several]:
    index: dict[str, Several] = {}
    for each in range(number):
        add_name(index, "key", f"n{each}")
    return index


def test_names_come_in_order_and_go() -> None:
    for number in (1, 2, 8, 9, 20):
        index = with_names(number)
        names = [f"n{each}" for each in range(number)]
        assert list(index["key"]) == names
        while names:
            assert list(remove_name(index, "key", names.pop(len(names) // 2))) == names
            assert list(index.get("key", ())) == names
        assert index == {}


def test_all_names_of_the_key_are_returned() -> None:
    index: dict[str, Several] = {}
    for number in range(20):
        assert list(add_name(index, "key", f"n{number}")) == [f"n{each}" for each in range(number + 1)]
    assert add_name(index, "other", "n0") == ("n0",)


def test_few_names_take_little_memory_and_many_are_not_copied() -> None:
    assert isinstance(with_names(8)["key"], tuple)
    index = with_names(9)
    names = index["key"]
    assert isinstance(names, dict)
    add_name(index, "key", "more")
    assert index["key"] is names
    assert remove_name(index, "key", "n0") is names
    assert list(names) == [*(f"n{each}" for each in range(1, 9)), "more"]


def test_names_that_are_few_again_are_a_tuple_again() -> None:
    index = with_names(100)
    names = index["key"]
    for number in range(95):
        assert remove_name(index, "key", f"n{number}") is names
    assert remove_name(index, "key", "n95") == ("n96", "n97", "n98", "n99")
    assert index == {"key": ("n96", "n97", "n98", "n99")}
