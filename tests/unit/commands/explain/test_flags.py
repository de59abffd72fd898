"""`explain`: a flag that would do nothing with what is asked about is refused, as it may be meant to do something."""

from __future__ import annotations

import pytest

from tests.tables import table
from tests.unit.commands.runner import Ran

FILES = ("old=a.yaml", "user=mila", "group=ml", "namespace-labels=a=b", "device-class=gpu=gpu.example.com")
NAMES = ("dump=a.yaml", "mode=delegated", "in-tree=active")
BOTH = ("policy=a.yaml", "policy-configmap=a/b", "namespace=ml", "time=2026-06-01T00:00:00Z", "kubernetes-version=1.37")


@table(
    "words, flags, why",
    {
        "a code": (["DT001"], (*FILES, *NAMES, *BOTH), "does not go with codes"),
        "an object by name": (["pod", "ml/train-0"], FILES, "goes with files"),
        "files": (["claim.yaml"], NAMES, "goes with one pod, claim, device or rule by name"),
    },
)
def test_flag_that_would_do_nothing_is_refused(words: list[str], flags: tuple[str, ...], why: str, ran: Ran) -> None:
    for flag in flags:
        code, output, error = ran("explain", *words, f"--{flag}")
        assert (code, output) == (2, "")
        assert f"--{flag.partition('=')[0]} {why}" in error


@pytest.mark.parametrize("words", [["DT001", "-o", "json"], ["DT001", "DT002", "--color=always"]])
def test_code_is_explained_in_each_form(words: list[str], ran: Ran) -> None:
    assert ran("explain", *words)[0] == 0
