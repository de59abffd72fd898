from __future__ import annotations

import pytest

from webhook.api.field import Path
from webhook.files.read import parse
from webhook.files.spots import Position, Spot, descend, find, path_of

TEXT = """\
metadata:
  annotations:
    example.com/a: x
    "5": digits
    {long}: y
    "[odd": z
spec:
  devices:
  - name: a
    basic: {{taints: [{{key: k}}]}}
  - name: b
""".format(long="k" * 120)

JSON = """\
{
  "spec": {
    "devices": [
      {"name": "a"},
      {"name": "b", "basic": {}}
    ]
  }
}"""


def spot_of(text: str) -> Spot:
    (manifest,) = parse("x", text.encode()).manifests
    return manifest.spot


ROOT = Path.root()
SPEC = ROOT.child("spec")
ANNOTATIONS = ROOT.child("metadata", "annotations")


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        pytest.param(ROOT, 1, 1, id="the document"),
        pytest.param(ANNOTATIONS.key("example.com/a"), 3, 20, id="a map key with dots"),
        pytest.param(ANNOTATIONS.key("5"), 4, 10, id="a map key of digits"),
        pytest.param(ANNOTATIONS.key("k" * 120), 5, 127, id="a map key that the path shortens"),
        pytest.param(ANNOTATIONS.child("[odd"), 6, 13, id="a key that looks like a path"),
        pytest.param(SPEC.child("devices").index(1), 11, 5, id="a list entry"),
        pytest.param(Path(SPEC, ".devices[1]").child("name"), 11, 11, id="name and entry in one step"),
        pytest.param(
            SPEC.child("devices").index(0).only_written("basic").child("taints").index(0).child("key"),
            10,
            28,
            id="a level that only the manifest has",
        ),
        pytest.param(
            SPEC.child("devices").index(1).only_normalized("exactly").child("name"),
            11,
            11,
            id="a level that the manifest has not",
        ),
    ],
)
def test_a_path_finds_its_value(path: Path, line: int, column: int) -> None:
    spot, found = find(spot_of(TEXT), path)
    assert (spot.position, found) == (Position(line, column), True)


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        pytest.param(SPEC.child("taint", "effect"), 8, 3, id="the parent is missing too"),
        pytest.param(SPEC.child("devices").index(7).child("name"), 9, 3, id="no such entry"),
        pytest.param(SPEC.child("devices").index(1).child("taints"), 11, 5, id="no such field"),
        pytest.param(ANNOTATIONS.key("missing"), 3, 5, id="no such key"),
        pytest.param(SPEC.child("devices").index(1).child("name", "x"), 11, 11, id="below a text"),
        pytest.param(Path(SPEC, ".nothing[1]"), 8, 3, id="no such list"),
    ],
)
def test_a_path_that_is_missing_finds_its_nearest_parent(path: Path, line: int, column: int) -> None:
    spot, found = find(spot_of(TEXT), path)
    assert (spot.position, found) == (Position(line, column), False)


def test_json_has_the_same_spots() -> None:
    root = spot_of(JSON)
    spot, found = find(root, SPEC.child("devices").index(1).child("basic"))
    assert (spot.position, spot.key_position, found) == (Position(5, 30), Position(5, 21), True)
    spot, found = find(root, SPEC.child("devices").index(2))
    assert (spot.position, found) == (Position(3, 16), False)
    spot, found = find(root, SPEC.child("devices").index(0).child("name", "x"))
    assert (spot.position, found) == (Position(4, 16), False)


def test_key_positions_name_the_key_and_entries_have_none() -> None:
    root = spot_of(TEXT)
    assert descend(root, ("spec", "devices")).key_position == Position(8, 3)
    assert descend(root, ("spec", "devices", 0)).key_position is None
    assert descend(root, ("spec", "nothing", 0)).position == Position(8, 3)


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ((), ""),
        (("spec", "devices", 0, "name"), "spec.devices[0].name"),
        (("metadata", "annotations", "example.com/a"), "metadata.annotations[example.com/a]"),
        (("metadata", "labels", ""), "metadata.labels[]"),
    ],
)
def test_steps_are_told_as_a_field_path(steps: tuple[str | int, ...], text: str) -> None:
    assert path_of(steps).written == text
