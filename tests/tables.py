"""Tables of cases, each named by a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping


def table(names: str, rows: Mapping[str, Any]) -> pytest.MarkDecorator:
    """A test for each row, whose key is its id; `names` are those of the columns, as in "match, expected"."""
    return pytest.mark.parametrize(names, rows.values(), ids=rows)
