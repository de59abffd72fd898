"""What servers do, by their versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from webhook.api.servers import _HOLDS_FROM, UNKNOWN, ServerFacts, facts_of, parse_version

NONE = ServerFacts(**dict.fromkeys(ServerFacts.__struct_fields__, False))
FROM_1_36 = replace(NONE, taints_by_default=True)
FROM_1_37 = replace(FROM_1_36, rules_by_default=True)
FROM_1_37_1 = replace(FROM_1_37, missing_selects_nothing=True)
FROM_1_37_2 = replace(FROM_1_37_1, extended_evicted=True)
ALL = ServerFacts(**dict.fromkeys(ServerFacts.__struct_fields__, True))
NOT_KNOWN = dict.fromkeys(("empty_effect_protects", "warns_of_empty", "judges_as_1_38"), None)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (["v1.33.0"], NONE),
        (["v1.35.4"], NONE),
        (["v1.36.9"], FROM_1_36),
        (["v1.37.0"], FROM_1_37),
        (["v1.37.1"], FROM_1_37_1),
        (["v1.37.2-rc.0.12+0123456789abcd"], FROM_1_37_1),
        (["v1.37.2"], FROM_1_37_2),
        (["1.37.2"], FROM_1_37_2),
        (["v1.37.2-gke.1000"], FROM_1_37_2),
        (["v1.37.2-eks-5e0fdde"], FROM_1_37_2),
        (["v1.37.2+k3s1"], FROM_1_37_2),
        (["v1.37.10"], FROM_1_37_2),
        (["v1.38.0-alpha.3"], FROM_1_37_2),
        (["v1.38.0-beta.0"], ALL),
        (["v1.38.0-rc.1"], ALL),
        (["v1.38.0"], ALL),
        (["v1.39.0-alpha.1"], ALL),
        (["v1.100.2"], ALL),
        (["1.36"], FROM_1_36),
        (["1.38"], ALL),
        (["1.37"], replace(FROM_1_37, extended_evicted=None, missing_selects_nothing=None)),
        (["v1.37.1", "v1.37.2"], replace(FROM_1_37_2, extended_evicted=None)),
        (["v1.37.0", "v1.37.1"], replace(FROM_1_37, missing_selects_nothing=None)),
        (["v1.37.2", "v1.38.0"], replace(FROM_1_37_2, **NOT_KNOWN)),
        (["v1.37.2", "v1.37.2"], FROM_1_37_2),
        ([], UNKNOWN),
        ([""], UNKNOWN),
        (["v1.37.2", "tomorrow's"], UNKNOWN),
    ],
    ids=str,
)
def test_facts_of_a_control_plane(versions: list[str], expected: ServerFacts) -> None:
    assert facts_of(versions) == expected


@pytest.mark.parametrize(
    "text", ["", "v", "1", "2.37.0", "v1.", "v1.x", "one", "v1.३७.2", "1" * 5000, "v1.37." + "9" * 400]
)
def test_what_is_no_version_is_not_guessed(text: str) -> None:
    assert parse_version(text) is None


def test_page_lists_the_version_of_each_fact() -> None:
    page = (Path(__file__).parents[3] / "docs" / "compatibility.md").read_text()
    table = page.partition("| fact | from | before |\n|---|---|---|\n")[2].partition("\n\n")[0]
    listed = sorted(line.split(" | ")[1] for line in table.splitlines())
    assert listed == sorted(f"1.{since.minor}.{since.patch}" for since in _HOLDS_FROM.values())
