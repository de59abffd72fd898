"""Text that is cut off: which of two readings its error is of."""

from __future__ import annotations

import pytest

from webhook.files import read
from webhook.files.read import parse


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"items": [\n{"a": 1},\n', "not JSON: expecting value"),
        ("{items: [\n{a: 1},\n", "has more than 32 MiB of YAML"),
    ],
)
def test_json_that_is_too_long_for_yaml_and_cut_off_is_called_json(
    text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "YAML_MAX_CHARACTERS", 10)
    (fault,) = parse("dump.json", text.encode()).unreadable
    assert fault.message.startswith(message)
