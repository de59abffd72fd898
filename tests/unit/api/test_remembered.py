"""Taints and tolerations that were read are remembered if their text is short, and few enough to bound the memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_claim, make_device, make_slice
from webhook.api import taints
from webhook.api.claims import decode_claim
from webhook.api.decode import Reader
from webhook.api.slices import decode_slice

TIME = "2026-06-01T12:00:00Z"


@pytest.fixture(autouse=True)
def _own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taints, "_taints", {})
    monkeypatch.setattr(taints, "_tolerations", {})


def full(key: str) -> dict[str, Any]:
    return {"key": key, "value": "v", "effect": "None", "timeAdded": TIME}


def read(*entries: Any) -> None:
    errors: list[Any] = []
    decode_slice(Reader.of(make_slice([make_device("d", entries)]), errors))
    assert errors == []


def read_tolerations(*entries: Any) -> None:
    errors: list[Any] = []
    decode_claim(Reader.of(make_claim(entries), errors))
    assert errors == []


def test_taint_of_512_characters_is_remembered_and_a_longer_one_is_not() -> None:
    rest = len("v" + "None" + TIME)
    read(full("k" * (512 - rest)))
    assert len(taints._taints) == 1
    read(full("k" * (513 - rest)))
    assert len(taints._taints) == 1


def test_toleration_of_512_characters_is_remembered_and_a_longer_one_is_not() -> None:
    rest = len("Exists")
    read_tolerations({"key": "k" * (512 - rest), "operator": "Exists", "tolerationSeconds": 5})
    assert len(taints._tolerations) == 1
    read_tolerations({"key": "k" * (513 - rest), "operator": "Exists"})
    assert len(taints._tolerations) == 1


def test_full_memory_of_4096_taints_begins_again() -> None:
    for start in range(0, 4096, 64):
        read(*(full(f"k{start + number}") for number in range(64)))
    assert len(taints._taints) == 4096
    read(full("one-more"))
    assert len(taints._taints) == 1


@pytest.mark.parametrize("field", ["key", "value", "effect", "timeAdded"])
def test_taint_that_leaves_a_field_out_is_remembered_as_another(field: str) -> None:
    shorter = {name: value for name, value in full("k").items() if name != field}
    read(full("k"))
    read(shorter)
    whole, short = taints._taints.values()
    assert whole != short
    assert taints._remembered_taint(shorter) is short


def test_taint_that_is_remembered_is_read_as_at_first() -> None:
    first, again = (decode_slice(Reader.of(make_slice([make_device("d", [full("k")])]), [])) for _ in range(2))
    assert first == again
    assert first.devices[0].taints[0] is again.devices[0].taints[0]
