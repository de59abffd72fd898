"""`check --old -n`: which stored object is the same as one that names no namespace."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_meta, make_template, make_toleration
from tests.unit.commands.check_runner import CheckRunner


def template(namespace: str | None, *tolerations: Any, **meta: Any) -> Any:
    about = make_meta("t", namespace=namespace, **meta)
    return make_template(tolerations, meta={name: each for name, each in about.items() if each is not None})


@pytest.mark.parametrize(
    ("words", "stored", "sent", "code"),
    [
        (["-n", "ml"], "ml", None, 1),
        (["-n", "ml"], "ml", "ml", 1),
        (["-n", "ml"], None, "ml", 1),
        (["-n", "ml"], None, None, 1),
        (["-n", "ml"], "default", None, 0),
        ([], "default", None, 1),
        ([], None, None, 1),
        ([], "ml", None, 0),
    ],
)
def test_a_change_of_a_stored_template_is_found_in_the_namespace_of_the_flag(
    words: list[str], stored: str | None, sent: str | None, code: int, run: CheckRunner
) -> None:
    old, new = template(stored, resourceVersion="7"), template(sent, make_toleration("a.example.com/b"))
    assert run(*words, new=new, old=old)[0] == code
