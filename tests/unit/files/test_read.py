from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.api import field
from webhook.files import read as reading
from webhook.files.read import File, parse, read, with_text_read
from webhook.files.spots import NOWHERE, Position, Spot, find

# Bytes that have a meaning to some reader come up more often than by chance.
_MARKS = rb"""{ } [ ] " ' # {{ \ud800""".split()
_LINES = b"---\n", b"\n", b"kind: List\n", b"apiVersion: v1\n", b"items: ", b"\xef\xbb\xbf", b"\t"
_SPACED = b": ", b"- ", b"&a ", b"*a ", b"<<: ", b"!!str ", b"| ", b"? "
HOSTILE = st.lists(st.binary(max_size=8) | st.sampled_from([*_MARKS, *_LINES, *_SPACED]), max_size=40).map(b"".join)


def values(file: File) -> list[Any]:
    return [manifest.value for manifest in file.manifests]


def troubles(file: File) -> list[tuple[str, Position | None]]:
    return [(error.message, error.position) for error in file.unreadable]


@given(HOSTILE)
def test_any_bytes_are_read_or_told(data: bytes) -> None:
    file = parse("x", data)
    for manifest in file.manifests:
        assert manifest.spot.position >= (1, 1)
    for error in file.unreadable:
        assert error.message


# --- documents ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "read_values"),
    [
        pytest.param("a: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}], id="two documents"),
        pytest.param("---\na: 1\n--- # two\nb: 2\n---\n", [{"a": 1}, {"b": 2}], id="starts everywhere"),
        pytest.param("# nothing\n---\n\n---\na: 1\n", [{"a": 1}], id="empty ones between"),
        pytest.param("a: 1\r\n---\r\nb: 2\r\n", [{"a": 1}, {"b": 2}], id="Windows line ends"),
        pytest.param('{"a": 1}\n---\nb: 2\n---\n[3]\n', [{"a": 1}, {"b": 2}, [3]], id="JSON and YAML"),
        pytest.param("{a: 1, b: yes}", [{"a": 1, "b": True}], id="YAML that looks like JSON"),
        pytest.param('{"a": 1} # comment', [{"a": 1}], id="JSON with a comment is YAML"),
        pytest.param("a: '\n---x'\n", [{"a": " ---x"}], id="dashes that start no document"),
        pytest.param("a: 1\n...\n---\nb: 2", [{"a": 1}, {"b": 2}], id="end marks"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_documents_are_cut_as_kubectl_cuts_them(text: str, read_values: list[Any]) -> None:
    file = parse("x", text.encode())
    assert (values(file), file.unreadable) == (read_values, [])


def test_documents_are_numbered_with_the_broken_and_without_the_empty() -> None:
    file = parse("x", b"a: 1\n---\n---\n]\n---\nb: 2\n")
    assert [(manifest.document, manifest.value) for manifest in file.manifests] == [(1, {"a": 1}), (3, {"b": 2})]
    assert [position for _, position in troubles(file)] == [(4, 1)]


def test_a_broken_document_does_not_hide_the_next() -> None:
    file = parse("x", b'a: [\n---\n{"b": 1\n---\nc: 1\n')
    assert values(file) == [{"c": 1}]
    assert len(file.unreadable) == 2


def test_positions_count_from_the_start_of_the_file() -> None:
    file = parse("x", b'# one\n---\na: 1\n---\n\n{"b":\n 2}\n')
    assert [manifest.spot.position for manifest in file.manifests] == [(3, 1), (6, 1)]
    below = file.manifests[1].spot.child("b")
    assert below is not None
    assert below.position == (7, 2)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        pytest.param('{"a": 1 "b": 2}', "not JSON", id="quoted keys are JSON"),
        pytest.param('---\n[{"a": 1,}}', "not JSON", id="also further down"),
        pytest.param("{a: 1, b: [}", "not YAML", id="bare ones are YAML"),
    ],
)
def test_of_two_readings_the_likelier_is_told(text: str, start: str) -> None:
    ((message, _),) = troubles(parse("x", text.encode()))
    assert message.startswith(start)


@pytest.mark.parametrize(
    "text", ["{{ if .Values.a }}\na: 1\n{{ end }}\n", "a: {{ .Values.a }}\n", "a: b\n  {% x %}: c\n"]
)
def test_templates_are_told_to_be_rendered_first(text: str) -> None:
    ((message, position),) = troubles(parse("x", text.encode()))
    assert "render templates first: helm template ... | device-taint-webhook check -" in message
    assert position is not None


def test_c4_a_template_is_called_that_before_its_fault_is_told() -> None:
    ((message, _),) = troubles(parse("x", b"a: 1\nb: {{ .Values.b }}\n"))
    assert message.startswith('a template: line 2 has "{{"; render templates first: helm template ')
    assert "a key must be text" in message


@pytest.mark.parametrize(("text", "position"), [("a:\n\tb: 1\n", (2, 1)), ("a: 1\n---\nb:\n\t- c: 1\n", (4, 1))])
def test_c4_a_tab_is_called_a_tab(text: str, position: tuple[int, int]) -> None:
    (trouble,) = troubles(parse("x", text.encode()))
    assert trouble == ("not YAML: a tab stands where YAML allows only spaces; indent with spaces", position)


def test_c4_other_characters_that_start_nothing_are_not_called_tabs() -> None:
    ((message, _),) = troubles(parse("x", b"a: @b\n"))
    assert "tab" not in message


def test_c3_pipes_and_sockets_in_a_folder_are_told_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(tmp_path):
        server.bind("b.yaml")
    (tmp_path / "c.yaml").write_text("a: 1\n")
    (tmp_path / "d.yaml").symlink_to("c.yaml")
    (tmp_path / "e.yaml").symlink_to("gone")
    files = list(read([str(tmp_path)]))
    assert [len(file.manifests) for file in files] == [0, 0, 1, 1, 0]
    assert [error.message for file in files for error in file.unreadable] == [
        "cannot be read: not a regular file",
        "cannot be read: not a regular file",
        "cannot be read: No such file or directory",
    ]


def test_templates_in_quotes_are_text() -> None:
    assert values(parse("x", b"a: '{{ x }}'\n")) == [{"a": "{{ x }}"}]


# --- bytes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a: é\n", '{"a": "é"}'])
def test_a_byte_order_mark_is_no_part_of_the_text(text: str) -> None:
    file = parse("x", b"\xef\xbb\xbf" + text.encode())
    assert values(file) == [{"a": "é"}]
    assert file.manifests[0].spot.position == (1, 1)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("between", ["---\n", "---\n# c\n\n", "--- # c\n", "---\n\ufeff---\n", "---\n\ufeff# c\n---\n"])
def test_a_byte_order_mark_may_begin_each_document(between: str, end: str) -> None:
    text = f'\ufeffa: 1\n{between}\ufeff{{b: [2]}}\n---\n\ufeff{{"c": 3}}\n---\n\ufeff'
    file = parse("x", text.replace("\n", end).encode())
    assert (values(file), file.unreadable) == ([{"a": 1}, {"b": [2]}, {"c": 3}], [])
    assert [each.spot.position.column for each in file.manifests] == [1, 1, 1]


@pytest.mark.parametrize("text", ["a: 1\n\ufeffb: 2\n", "a: 1\n\ufeff---\nb: 2\n"])
def test_a_byte_order_mark_inside_a_document_is_named(text: str) -> None:
    ((message, _),) = troubles(parse("x", text.encode()))
    assert message.startswith("not YAML: a byte order mark stands inside a document; ")


@pytest.mark.parametrize(
    ("data", "message", "position"),
    [
        (b"a: \xff\n", "not UTF-8: byte 0xff at offset 3", (1, 4)),
        (b"\xef\xbb\xbfa: \xff\n", "not UTF-8: byte 0xff at offset 6", (1, 4)),
        ("é: x\n".encode() + b"b: \xc3(", "not UTF-8: byte 0xc3 at offset 9", (2, 4)),
        ("a: 1".encode("utf-16"), "is UTF-16; manifests must be UTF-8", None),
        ("a: 1".encode("utf-32"), "is UTF-32; manifests must be UTF-8", None),
    ],
)
def test_other_encodings_are_told_with_the_first_wrong_byte(data: bytes, message: str, position: Any) -> None:
    assert troubles(parse("x", data)) == [(message, position)]


def test_files_have_a_largest_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 2 * 1024 * 1024)
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (2 * 1024 * 1024 + 1))
    (file,) = read([str(path)])
    assert troubles(file) == [("is larger than 2 MiB; split it", None)]
    path.write_bytes(b"#" * (2 * 1024 * 1024))
    (file,) = read([str(path)])
    assert troubles(file) == []


# --- lists --------------------------------------------------------------------------------------


def test_lists_are_taken_apart() -> None:
    text = b"""\
apiVersion: v1
kind: List
items:
- {apiVersion: a/v1, kind: A}
- apiVersion: v1
  kind: List
  items: [{apiVersion: b/v1, kind: B}]
- 3
"""
    file = parse("x", text)
    assert [(manifest.document, manifest.steps, manifest.value) for manifest in file.manifests] == [
        (1, ("items", 0), {"apiVersion": "a/v1", "kind": "A"}),
        (1, ("items", 1, "items", 0), {"apiVersion": "b/v1", "kind": "B"}),
        (1, ("items", 2), 3),
    ]
    assert [manifest.spot.position for manifest in file.manifests] == [(4, 3), (7, 11), (8, 3)]


def test_items_of_a_typed_list_are_of_its_kind_unless_they_say_otherwise() -> None:
    text = b'{"apiVersion": "g/v1", "kind": "ThingList", "items": [{"x": 1}, {"kind": "Other"}, null]}'
    assert values(parse("x", text)) == [{"apiVersion": "g/v1", "kind": "Thing", "x": 1}, {"kind": "Other"}, None]


@pytest.mark.parametrize(
    ("text", "read_values"),
    [
        pytest.param("{apiVersion: v1, kind: List, items: }", [], id="no items"),
        pytest.param("{apiVersion: v1, kind: List}", [{"apiVersion": "v1", "kind": "List"}], id="not even the field"),
        pytest.param("{kind: List, items: [1]}", [{"kind": "List", "items": [1]}], id="no version"),
        pytest.param(
            "{apiVersion: v1, kind: AllowList, items: 3}",
            [{"apiVersion": "v1", "kind": "AllowList", "items": 3}],
            id="a kind that only ends like one",
        ),
    ],
)
def test_what_is_no_list_is_left_alone(text: str, read_values: list[Any]) -> None:
    assert values(parse("x", text.encode())) == read_values


def test_lists_in_lists_have_an_end() -> None:
    text = "{apiVersion: v1, kind: List, items: [" * 5 + "]}" * 5
    (manifest,) = parse("x", text.encode()).manifests
    assert manifest.steps == ("items", 0) * 3


def test_problems_go_with_the_item_they_are_in() -> None:
    text = b"{apiVersion: v1, kind: List, kind: List, items: [{a: 1, a: 2}, {b: 1}]}"
    first, second = parse("x", text).manifests
    assert [problem.steps for problem in first.problems] == [("items", 0, "a")]
    assert second.problems == ()


# --- places -------------------------------------------------------------------------------------


def test_folders_are_searched_in_order_and_hidden_ones_left_out(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.JSON", "d.txt", ".e.yaml", "sub/f.json", ".git/g.yaml", "a/h.yaml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"a": 1}')
    found = list(read([str(tmp_path)]))
    assert [os.path.relpath(file.name, tmp_path) for file in found] == [
        "a.yml",
        "b.yaml",
        "c.JSON",
        "a/h.yaml",
        "sub/f.json",
    ]
    assert not any(file.explicit for file in found)


def test_a_folder_without_manifests_is_told(tmp_path: Path) -> None:
    (file,) = read([str(tmp_path)])
    assert troubles(file) == [("contains no *.json, *.yaml, *.yml", None)]


def test_named_files_may_be_called_anything_and_come_in_the_order_given(tmp_path: Path) -> None:
    for name in ("b", "a.txt"):
        (tmp_path / name).write_text(f"name: {name}")
    names = [str(tmp_path / name) for name in ("b", "a.txt", "b")]
    found = list(read(names))
    assert [(file.name, values(file), file.explicit) for file in found] == [
        (name, [{"name": os.path.basename(name)}], True)  # noqa: PTH119 -- as they were given
        for name in names
    ]


def test_standard_input_is_read_for_a_dash() -> None:
    (file,) = read(["-"], io.BytesIO(b"a: 1"))
    assert (file.name, values(file), file.explicit) == ("<stdin>", [{"a": 1}], True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.yaml", "cannot be read: No such file or directory"),
        ("nul\0.yaml", "cannot be read: embedded null byte"),
    ],
)
def test_files_that_cannot_be_opened_are_told(name: str, message: str, tmp_path: Path) -> None:
    (file,) = read([str(tmp_path / name)])
    assert troubles(file) == [(message, None)]


@pytest.mark.parametrize(
    ("text", "manifests", "line"),
    [
        pytest.param("a: 1\n---\n" + "b: 2\n" * 200, 1, 2, id="a long document after another"),
        pytest.param("---\n" * 1000, 0, 15, id="nothing but separators"),
        pytest.param("#\n" * 1000, 0, 1, id="comments"),
        pytest.param("---\na: 1\n" * 100, 13, 27, id="many documents"),
        pytest.param("---\n[ x\n" * 100, 0, 27, id="what looks like JSON and is none"),
    ],
)
def test_f12_yaml_in_a_file_has_a_limit(text: str, manifests: int, line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "YAML_MAX_CHARACTERS", 1000)
    file = parse("x", text.encode())
    assert len(file.manifests) == manifests
    message, position = troubles(file)[-1]
    assert message == "has more than 32 MiB of YAML, or 524,288 documents; split it, or write it as JSON"
    assert position == (line, 1)


def test_f12_json_in_a_file_is_not_limited_as_yaml_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "YAML_MAX_CHARACTERS", 1000)
    for text in ('{"a": 1}\n' * 1000, '---\n{"a": 1}\n' * 1000, json.dumps({"a": ["b"] * 1000})):
        file = parse("x", text.encode())
        assert len(file.manifests) == text.count('"a"')
        assert troubles(file) == []


SLOW = {
    "faulty documents": r"parse('x', b'---\na: [\n' * 50_000)",
    "halves of surrogate pairs": r"""parse('x', b'---\n{"a":"\\ud800"}\n' * 50_000)""",
    "blanks in a table": "table([['a', ' ' * 500_000], ['b', 'c']], width=80)",
}


@pytest.mark.untraced
@pytest.mark.parametrize("program", SLOW.values(), ids=SLOW)
def test_f12_time_is_in_proportion_to_the_size(program: str) -> None:
    """By its square, each would take a quarter of an hour or more."""
    imports = "from webhook.files.read import parse; from webhook.files.report import table"
    subprocess.run([sys.executable, "-c", f"{imports}; {program}"], check=True, timeout=240)


def test_f12_pipes_can_be_read_where_files_are_named() -> None:
    """As `check <(kustomize build)` names them."""
    ours, theirs = os.pipe()
    os.write(theirs, b"a: 1")
    os.close(theirs)
    try:
        (file,) = read([f"/dev/fd/{ours}"])
    finally:
        os.close(ours)
    assert [manifest.value for manifest in file.manifests] == [{"a": 1}]


OUTER = "kind: ConfigMap\ndata:\n  other: 1\n  policy.yaml: {}\n"
POLICY = field.Path.root().child("data").key("policy.yaml")
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
    data = find(spot, field.Path.root().child("data"))[0]
    assert (spot.position, data.position) == (Position(1, 1), Position(3, 3))
    assert find(spot, field.Path.root().child("data", "other"))[0].position == Position(3, 10)
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
