"""The author of a template (policy/vap tests the policy that compares it), and what expressions see of a claim."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import (
    decoded,
    make_admission_request,
    make_claim,
    make_context,
    make_meta,
    make_request,
    make_toleration,
)
from tests.tables import table
from webhook.admission.claim_view import (
    GROUPS_MAX_BYTES,
    ClaimView,
    annotation_of,
    author_of,
    requester_variable,
    texts_of,
    toleration_variable,
)
from webhook.api.taints import DeviceToleration
from webhook.policy.match import NamespaceFacts, Requester, Scope

JANE = Requester("jane@example.com", ("ml", "system:authenticated"))
WRITTEN = '{"username":"jane@example.com","groups":["ml","system:authenticated"]}'
CUT = '{"username":"jane@example.com","groupsTruncated":true}'


def test_annotation_names_user_and_groups() -> None:
    assert annotation_of(JANE) == WRITTEN
    assert author_of(WRITTEN) == JANE
    assert annotation_of(Requester("jane")) == '{"username":"jane"}'
    assert annotation_of(Requester("")) == '{"username":""}'


@table(
    "annotation",
    {
        "there is none": None,
        "it is empty": "",
        "it is no JSON": "jane@example.com",
        "it is no object": "[]",
        "it names no one": "{}",
        "the name is no text": '{"username":1}',
        "it is nested very deeply": "[" * 100_000,
        "an unknown field is, too": '{"username":"jane","x":' + "[" * 30_000 + "]" * 30_000 + "}",
        "a space is added": f" {WRITTEN}",
        "a space is in it": WRITTEN.replace(":[", ": ["),
        "a field is added": WRITTEN.replace("}", ',"comment":"trust me"}'),
        "an older version signed it": WRITTEN.replace("}", ',"nonce":"1","mac":"1"}'),
        "a field is there twice": WRITTEN.replace('"username":', '"username":"root","username":'),
        "fields stand in another order": json.dumps(dict(reversed(json.loads(WRITTEN).items()))),
        "a letter is escaped": WRITTEN.replace("jane", r"jan\u0065"),
        "no groups are written": '{"username":"jane","groups":[]}',
        "nothing was cut is written": '{"username":"jane","groupsTruncated":false}',
        "some groups are left": '{"username":"jane","groups":["ml"],"groupsTruncated":true}',
        "the name has a line break": r'{"username":"ja\nne"}',
    },
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


# --- what expressions see of a claim ------------------------------------------------------------------


def test_toleration_without_a_time_limit_has_no_seconds() -> None:
    known = {"key": "a", "operator": "Equal", "value": "v", "effect": "NoExecute"}
    assert toleration_variable(DeviceToleration("a", "", "v", "NoExecute")) == known
    assert toleration_variable(DeviceToleration("a", "", "v", "NoExecute", 0)) == {**known, "tolerationSeconds": 0}
    assert toleration_variable(DeviceToleration("a", "", "v", "NoExecute", 60)) == {**known, "tolerationSeconds": 60}


def test_requester_has_a_service_account_or_none_and_groups_if_they_are_known() -> None:
    name = "system:serviceaccount:health:operator"
    assert requester_variable(Requester(name, ("a",))) == {
        "username": name,
        "serviceAccount": "health/operator",
        "groups": ["a"],
    }
    assert requester_variable(Requester("jane", ("a",), False)) == {"username": "jane", "serviceAccount": ""}  # noqa: FBT003


def test_facts_are_those_of_the_scope_that_is_asked_about() -> None:
    claim = make_claim(
        requests=[make_request("a", [make_toleration()], deviceClassName="a"), make_request("b", deviceClassName="b")]
    )
    view = ClaimView(decoded(claim)[0], make_admission_request(claim), make_context())
    scopes = [
        Scope(Requester(name), "ml", NamespaceFacts("ml", {"team": name}) if name == "jane" else None)
        for name in ("jane", "bob", "jane")
    ]
    seen = [
        (found["request"]["deviceClassName"], found["requester"]["username"], "namespace" in found)
        for scope in scopes
        for asked, target in view.asks()
        for found in (dict[str, Any](view.variables(asked, target, scope, None)),)
    ]
    assert seen == [
        ("a", "jane", True),
        ("b", "jane", True),
        ("a", "bob", False),
        ("b", "bob", False),
        ("a", "jane", True),
        ("b", "jane", True),
    ]


def test_namespace_is_that_of_the_request_and_else_of_the_object() -> None:
    """An object in a file may have none, and neither may a request of a client's own making."""
    for named, asked_for, expected in (("ml", "web", "web"), ("ml", "", "ml"), (None, "web", "web"), (None, "", "")):
        claim = make_claim(meta=make_meta("c", namespace=named))
        view = ClaimView(decoded(claim)[0], make_admission_request(claim, namespace=asked_for), make_context())
        assert view.namespace == expected
