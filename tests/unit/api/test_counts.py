"""Numbers in messages."""

from __future__ import annotations

import pytest

from webhook.api.messages import counted


@pytest.mark.parametrize(("number", "text"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods")])
def test_only_one_is_singular(number: int, text: str) -> None:
    assert counted(number, "pod") == text
