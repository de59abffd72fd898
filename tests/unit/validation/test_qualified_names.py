"""Names of attributes and capacities, and drivers of configurations: their parts, sizes and releases."""

from __future__ import annotations

from tests.tables import table
from tests.unit.validation.whole_objects import assert_reported
from webhook.api.field import Path
from webhook.validation.formats import fully_qualified_name, identifier, opaque_driver, qualified_name
from webhook.validation.releases import RELEASES

AT = Path.root().child("at")
NOW, BEFORE = RELEASES[37], RELEASES[36]
IDENTIFIER = "a valid C identifier must start with alphabetic character or '_'"
SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of"


@table(
    "name, errors, declarative",
    {
        "a name": ("model", [], []),
        "a domain and a name": ("gpu.example.com/model", [], []),
        "a domain in upper case": (
            "GPU.example.com/model",
            [],
            [f'at: Invalid value: "GPU.example.com": prefix: {SUBDOMAIN}'],
        ),
        "a wrong domain": (
            "a_b/model",
            [f'at: Invalid value: "a_b": {SUBDOMAIN}'],
            [f'at: Invalid value: "a_b": prefix: {SUBDOMAIN}'],
        ),
        "a domain of 63 bytes": ("d" * 63 + "/model", [], []),
        "a longer domain": ("d" * 64 + "/model", ["at: Too long: may not be more than 63 bytes"], None),
        "a wrong name": ("example.com/a-b", [f'at: Invalid value: "a-b": {IDENTIFIER}'], None),
        "a wrong name alone": ("a-b", [f'at: Invalid value: "a-b": {IDENTIFIER}'], None),
        "an empty domain": (
            "/model",
            ['at: Invalid value: "": the domain must not be empty'],
            ['at: Invalid value: "": prefix must not be empty'],
        ),
        "an empty name": (
            "example.com/",
            ['at: Invalid value: "": the name must not be empty'],
            ['at: Invalid value: "": name must not be empty'],
        ),
        "two slashes": ("a/b/c-d", [], []),
    },
)
def test_qualified_name_is_judged_part_by_part(name: str, errors: list[str], declarative: list[str] | None) -> None:
    """`declarative`: in other words from 1.37 on, where the name must be fully qualified."""
    bare = [] if "/" in name else [f'at: Invalid value: "{name}": a fully qualified name must be']
    for judge, release, expected in (
        (qualified_name, NOW, errors),
        (fully_qualified_name, BEFORE, bare + errors),
        (fully_qualified_name, NOW, bare + (errors if declarative is None else declarative)),
    ):
        assert_reported([str(error) for error in judge(AT, name, release)], expected)


def test_second_slash_is_refused_since_1_38() -> None:
    """k/k 141644: in names with and without a domain alike."""
    for judge in (qualified_name, fully_qualified_name):
        found = [str(error) for error in judge(AT, "a/b/c-d", RELEASES[38])]
        assert found == ['at: Invalid value: "a/b/c-d": must not contain more than one slash']


def test_identifier_has_at_most_32_bytes() -> None:
    assert list(identifier(AT, "x" * 32)) == []
    assert [str(error) for error in identifier(AT, "x" * 33)] == ["at: Too long: may not be more than 32 bytes"]


def test_driver_of_a_configuration_has_at_most_63_bytes_and_may_be_in_upper_case() -> None:
    for release in (NOW, BEFORE):
        assert list(opaque_driver(AT, "GPU.example.com", release)) == []
        assert list(opaque_driver(AT, "d" * 63, release)) == []
        assert [str(error) for error in opaque_driver(AT, "d" * 64, release)] == [
            "at: Too long: may not be more than 63 bytes"
        ]
        assert len(list(opaque_driver(AT, "a_b", release))) == 1
    assert [str(error) for error in opaque_driver(AT, "", NOW)] == ["at: Required value"]
    # Only ASCII letters are put in lower case from 1.37 on.
    assert len(list(opaque_driver(AT, "\u0130.example.com", NOW))) == 1
