"""Documents in texts of documents: where everything in them stands in the file."""

from __future__ import annotations

import pytest

from webhook.api.field import Path
from webhook.files.embedded import with_text_read
from webhook.files.read import parse
from webhook.files.spots import NOWHERE, Position, Spot, find

OUTER = "kind: ConfigMap\ndata:\n  other: 1\n  policy.yaml: {}\n"
POLICY = Path.root().child("data").key("policy.yaml")
RULE = POLICY.child("rules").index(0).child("name")
INNER = "# ours\nrules:\n- name: wait\n"


def spot_of(text: str, name: str = "policy.yaml") -> Spot:
    (manifest,) = parse("x", text.encode()).manifests
    return with_text_read(manifest.spot, ("data", name), manifest.value["data"][name])


def block(text: str, indent: int, header: str = "|") -> str:
    return header + "\n" + "".join(f"{' ' * indent}{line}\n" if line else "\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        pytest.param(OUTER.format(block(INNER, 4)), 7, 13, id="a literal block"),
        pytest.param(OUTER.format(block(INNER, 7)), 7, 16, id="a deeper one"),
        pytest.param(OUTER.format(block(f"\n\n{INNER}", 4, "|-")), 9, 13, id="blank lines before"),
        pytest.param(OUTER.format(block(INNER, 4)).replace("\n", "\r\n"), 7, 13, id="line ends of Windows"),
        pytest.param(OUTER.format(block("  rules:\n  - name: wait\n", 4, "|2")), 6, 15, id="an indent that is said"),
        pytest.param("# first\n---\n" + OUTER.format(block(INNER, 4)), 9, 13, id="not the first document"),
        pytest.param(OUTER.format("'rules: [{name: wait}]'"), 4, 16, id="a text in quotes stands where it begins"),
        pytest.param(OUTER.format(block(INNER, 4, ">")), 4, 16, id="and so does a folded one"),
    ],
)
def test_a_field_of_the_text_stands_in_the_file(text: str, line: int, column: int) -> None:
    assert find(spot_of(text), RULE)[0].position == Position(line, column)


def test_keys_have_their_places_too() -> None:
    spot = spot_of(OUTER.format(block(INNER, 4)))
    place, found = find(spot, RULE)
    assert (place.key_position, found) == (Position(7, 7), True)
    assert find(spot, POLICY)[0].position == Position(6, 5)


def test_the_rest_of_the_document_stands_where_it_did() -> None:
    spot = spot_of(OUTER.format(block(INNER, 4)))
    data = find(spot, Path.root().child("data"))[0]
    assert (spot.position, data.position) == (Position(1, 1), Position(3, 3))
    assert find(spot, Path.root().child("data", "other"))[0].position == Position(3, 10)
    assert [*spot.steps()] == ["kind", "data"]
    assert [*data.steps()] == ["other", "policy.yaml"]
    assert (spot.text_start, spot.key_position, data.key_position) == (None, None, Position(2, 1))


def test_long_keys_are_found_as_paths_show_them() -> None:
    key = "k" * 120
    spot = spot_of(OUTER.format(block(f"labels:\n  {key}: v\n", 4)))
    assert find(spot, POLICY.child("labels").key(key))[0].position == Position(6, 129)


def test_a_text_that_cannot_be_read_stands_at_its_fault() -> None:
    spot = spot_of(OUTER.format(block("rules:\n- [\n", 4)))
    place, _ = find(spot, RULE)
    assert place.position == Position(7, 1 + 4)
    assert (list(place.steps()), place.text_start) == ([], None)


@pytest.mark.parametrize("inner", ["", "# nothing\n"])
def test_a_text_without_a_document_is_left_alone(inner: str) -> None:
    assert find(spot_of(OUTER.format(block(inner, 4))), RULE)[0].position == Position(4, 16)


def test_json_has_texts_on_one_line() -> None:
    spot = spot_of('{"data": {"policy.yaml": "rules:\\n- name: wait"}}')
    assert find(spot, RULE)[0].position == Position(1, 26)


def test_nowhere_has_nothing_below() -> None:
    assert find(NOWHERE, RULE) == (NOWHERE, False)
    assert list(NOWHERE.steps()) == []
