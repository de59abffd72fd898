"""The annotation that names the author of a template; the policy that compares it is tested with policy/vap."""

from __future__ import annotations

import json
from typing import Any

import pytest

from webhook.admission.claim_view import GROUPS_MAX_BYTES, annotation_of, author_of, texts_of
from webhook.policy.match import Requester

JANE = Requester("jane@example.com", ("ml", "system:authenticated"))
WRITTEN = '{"username":"jane@example.com","groups":["ml","system:authenticated"]}'
CUT = '{"username":"jane@example.com","groupsTruncated":true}'


def test_annotation_names_user_and_groups() -> None:
    assert annotation_of(JANE) == WRITTEN
    assert author_of(WRITTEN) == JANE
    assert annotation_of(Requester("jane")) == '{"username":"jane"}'
    assert annotation_of(Requester("")) == '{"username":""}'


@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param(None, id="there is none"),
        pytest.param("", id="it is empty"),
        pytest.param("jane@example.com", id="it is no JSON"),
        pytest.param("[]", id="it is no object"),
        pytest.param("{}", id="it names nobody"),
        pytest.param('{"username":1}', id="the name is no text"),
        pytest.param("[" * 100_000, id="it is nested very deeply"),
        pytest.param('{"username":"jane","x":' + "[" * 30_000 + "]" * 30_000 + "}", id="an unknown field is, too"),
        pytest.param(f" {WRITTEN}", id="a space is added"),
        pytest.param(WRITTEN.replace(":[", ": ["), id="a space is in it"),
        pytest.param(WRITTEN.replace("}", ',"comment":"trust me"}'), id="a field is added"),
        pytest.param(WRITTEN.replace("}", ',"nonce":"1","mac":"1"}'), id="an older version signed it"),
        pytest.param(WRITTEN.replace('"username":', '"username":"root","username":'), id="a field is there twice"),
        pytest.param(json.dumps(dict(reversed(json.loads(WRITTEN).items()))), id="fields stand in another order"),
        pytest.param(WRITTEN.replace("jane", r"jan\u0065"), id="a letter is escaped"),
        pytest.param('{"username":"jane","groups":[]}', id="no groups are written"),
        pytest.param('{"username":"jane","groupsTruncated":false}', id="nothing was cut is written"),
        pytest.param('{"username":"jane","groups":["ml"],"groupsTruncated":true}', id="some groups are left"),
        pytest.param(r'{"username":"ja\nne"}', id="the name has a line break"),
    ],
)
def test_text_that_names_nobody(annotation: str | None) -> None:
    assert author_of(annotation) is None


@pytest.mark.parametrize(
    ("name", "written"),
    [
        (r"CORP\mila", r"CORP\\mila"),
        ('a"b', r"a\"b"),
        (r"\"", r"\\\""),
        ("a'b,c]}", "a'b,c]}"),
        ("J\u00fcrgen \U0001f600", "J\u00fcrgen \U0001f600"),
        ("a\x7fb\u2028\x85", "a\x7fb\u2028\x85"),
        (" / <&>", " / <&>"),
    ],
)
def test_names_are_written_with_backslashes_and_quotes_escaped(name: str, written: str) -> None:
    requester = Requester(name, (name, "g"))
    annotation = annotation_of(requester)
    assert annotation == '{"username":"' + written + '","groups":["' + written + '","g"]}'
    assert author_of(annotation) == requester


@pytest.mark.parametrize("name", ["a\nb", "a\x00", "\x1f"])
def test_names_with_control_characters_are_not_written(name: str) -> None:
    for requester in (Requester(name, ("g",)), Requester("jane", ("g", name))):
        assert annotation_of(requester) is None
        assert texts_of(requester) == ()


def test_two_texts_are_those_of_a_requester() -> None:
    assert texts_of(JANE) == (WRITTEN, CUT)
    assert author_of(CUT) == Requester("jane@example.com", (), groups_known=False)


@pytest.mark.parametrize(("last", "cut"), [(192, False), (193, True)])
def test_groups_of_more_than_8192_bytes_are_left_out(last: int, cut: Any) -> None:
    groups = ("\u00fc" * 4000, "h" * last)
    annotation = annotation_of(Requester("jane", groups))
    assert annotation is not None
    assert ("groupsTruncated" in annotation) is cut
    assert author_of(annotation) == Requester("jane", () if cut else groups, groups_known=not cut)
    assert GROUPS_MAX_BYTES == 8192


def test_annotation_of_64_kib_is_read_and_a_longer_one_is_not() -> None:
    longest = '{"username":"%s"}' % ("j" * (64 * 1024 - 15))
    assert len(longest) == 65_536
    assert author_of(longest) is not None
    assert author_of(longest.replace("j", "jj", 1)) is None
