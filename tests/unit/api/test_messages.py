"""Numbers in messages; what was probably meant by a name: the one that is nearest, two or three, or none of many."""

from __future__ import annotations

import pytest

from webhook.api.messages import counted, nearest


@pytest.mark.parametrize(("number", "text"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods")])
def test_only_one_is_singular(number: int, text: str) -> None:
    assert counted(number, "pod") == text


CODES = [f"DT{number:03}" for number in (*range(1, 22), *range(101, 120))]


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("firmwar", ["firmware", "fan"], "firmware"),
        ("fimrware", ["firmware", "fan"], "firmware"),
        ("f", ["firmware", "fan"], "fan or firmware"),
        ("train", [f"train-{number}" for number in range(3)], "train-0, train-1 or train-2"),
        ("train", [f"train-{number}" for number in range(4)], ""),
        ("train-9", [f"train-{number}" for number in range(4)], ""),
        (
            "gpu.example.com/node-1/gpu-9",
            [f"gpu.example.com/node-{n}/gpu-0" for n in range(4)],
            "gpu.example.com/node-1/gpu-0",
        ),
        ("DT9", CODES, ""),
        ("DT130", CODES, ""),
        ("x", ["firmware"], ""),
        ("", ["firmware"], ""),
        ("firmware", [], ""),
    ],
)
def test_nearest(word: str, known: list[str], meant: str) -> None:
    assert nearest(word, known) == meant
    assert nearest(word, known, quote='"').replace('"', "") == meant
