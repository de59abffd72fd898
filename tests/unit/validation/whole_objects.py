"""Whole objects, changed in a place, and what is reported of them."""

from __future__ import annotations

import random
from typing import Any

from tests.apiserver.breakage import whole_object
from webhook.api.meta import GroupVersionKind
from webhook.validation.objects import object_errors
from webhook.validation.releases import RELEASES

CLAIM, TEMPLATE, SLICE, RULE = "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceTaintRule"
DROP = object()
LABEL = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"

Edits = list[tuple[str, Any]]


class _Form(random.Random):
    """Chooses one of the four forms of a slice."""

    def __init__(self, form: int) -> None:
        super().__init__(0)
        self.form = form

    def randrange(self, *_: int) -> int:  # type: ignore[override] # only the one call that breakage makes
        return self.form


def whole(kind: str, version: str = "v1", form: int = 0) -> dict[str, Any]:
    return whole_object(kind, version, _Form(form))


def edited(value: dict[str, Any], *edits: tuple[str, Any]) -> dict[str, Any]:
    """The object with fields set or dropped; a path is `spec/devices/0`."""
    for path, new in edits:
        *above, last = path.split("/")
        at: Any = value
        for step in above:
            at = at[int(step)] if isinstance(at, list) else at[step]
        if new is DROP:
            del at[last]
        elif isinstance(at, list):
            at[int(last)] = new
        else:
            at[last] = new
    return value


def reported(value: dict[str, Any], old: Any = None, minor: int = 37) -> list[str]:
    kind = GroupVersionKind.parse(value["apiVersion"], value["kind"])
    return [str(error) for error in object_errors(value, old, kind, RELEASES[minor])]


def assert_reported(found: list[str], expected: list[str]) -> None:
    """Each error begins as expected, in order; long ones are cut in the table."""
    assert [message[: len(wanted)] for message, wanted in zip(found, expected, strict=False)] == expected, found
    assert len(found) == len(expected), found
