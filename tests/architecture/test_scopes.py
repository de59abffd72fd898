"""Which tests stay in one process when they run side by side."""

from __future__ import annotations

from tests.scopes import scope_of


def test_module_stays_together_and_so_does_a_folder_that_shares_a_control_plane() -> None:
    assert scope_of("tests/apiserver/test_evict.py") == "tests/apiserver/test_evict.py"
    assert scope_of("tests/apiserver/eviction/test_faults.py") == "tests/apiserver/eviction/test_faults.py"
    assert scope_of("tests/apiserver/impact/test_refused.py") == "tests/apiserver/impact"
