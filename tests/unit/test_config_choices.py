"""Flags of daemons that are one of several words: what they take, and what is said of other words."""

from __future__ import annotations

import pytest

from tests.tables import table
from webhook.config.settings import ConfigError
from webhook.config.workers import evict_command_line, parse_evict

SUPPORTED = 'supported values: "absent", "active"'


@table(
    "words, environment, says",
    {
        "the default": (["--in-tree=unknown"], {}, f'--in-tree: Unsupported value: "unknown": {SUPPORTED}'),
        "another word": (["--in-tree=maybe"], {}, f'--in-tree: Unsupported value: "maybe": {SUPPORTED}'),
        "in the environment": (
            [],
            {"DEVICE_TAINT_WEBHOOK_IN_TREE": "unknown"},
            f'DEVICE_TAINT_WEBHOOK_IN_TREE: Unsupported value: "unknown": {SUPPORTED}',
        ),
    },
)
def test_in_tree_controller_is_active_or_absent(words: list[str], environment: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_evict("evict", words, environment)
    assert str(error.value) == says


def test_completion_offers_what_is_taken() -> None:
    assert set(evict_command_line("x").values["in-tree"]) == {"active", "absent"}
