"""In which order tests begin: tests/scopes.py."""

from __future__ import annotations

import pytest

from tests.scopes import begun_in_order, scope_of

EVICTION = [f"tests/apiserver/eviction/test_{name}.py" for name in "ab"]
OTHERS = [f"tests/apiserver/test_{name}.py" for name in "cdef"]


@pytest.mark.parametrize(
    ("scopes", "begun"),
    [
        pytest.param(
            ["tests/unit/test_a.py", "tests/https/test_b.py", "tests/properties/test_c.py", "tests/release/test_d.py"],
            ["tests/release/test_d.py", "tests/properties/test_c.py", "tests/https/test_b.py", "tests/unit/test_a.py"],
            id="what takes minutes is first",
        ),
        pytest.param(
            [*EVICTION, *OTHERS],
            [OTHERS[0], EVICTION[0], *OTHERS[1:3], EVICTION[1], OTHERS[3]],
            id="what waits is spread among what computes",
        ),
        pytest.param(
            ["tests/image/test_a.py", "tests/apiserver/test_b.py"],
            ["tests/image/test_a.py", "tests/apiserver/test_b.py"],
            id="folders that take minutes are alike",
        ),
        pytest.param(EVICTION, EVICTION, id="nothing to spread among"),
        pytest.param([], [], id="no tests"),
    ],
)
def test_order(scopes: list[str], begun: list[str]) -> None:
    assert begun_in_order(scopes) == begun


@pytest.mark.parametrize(
    ("file", "scope"),
    [
        ("tests/apiserver/guard/test_soften.py", "tests/apiserver/guard"),
        ("tests/apiserver/test_vap.py", "tests/apiserver/test_vap.py"),
    ],
)
def test_folder_with_a_fixture_of_package_scope_stays_in_one_process(file: str, scope: str) -> None:
    assert scope_of(file) == scope
