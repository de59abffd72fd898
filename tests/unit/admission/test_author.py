"""Who wrote a template; laws are in tests/properties/test_policy_reviews.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import (
    decoded,
    make_alternatives,
    make_claim,
    make_flat_request,
    make_request,
    make_template,
    make_toleration,
)
from webhook.admission.author import (
    GROUPS_MAX_BYTES,
    author_of,
    can_be_named,
    claimed_author,
    digest,
    same_author,
    signed,
)
from webhook.policy.ports import Requester

KEY = b"k" * 32
JANE = Requester("jane@example.com", ("ml", "system:authenticated"))
ASKED = digest(decoded(make_template([make_toleration()]))[0])
SIGNED = signed(JANE, "train", "nonce", ASKED, KEY)


def proven(annotation: str | None, *, namespace: str = "train", asked: bytes = ASKED) -> Requester | None:
    return author_of(annotation, namespace, asked, KEY)


def with_fields(**fields: Any) -> str:
    """The signed annotation with fields replaced, written as we write it."""
    return json.dumps({**json.loads(SIGNED), **fields}, separators=(",", ":"))


def test_annotation_names_the_author_for_people() -> None:
    fields = json.loads(SIGNED)
    assert {name: fields[name] for name in ("username", "groups", "nonce")} == {
        "username": "jane@example.com",
        "groups": ["ml", "system:authenticated"],
        "nonce": "nonce",
    }
    assert len(fields["mac"]) == 64
    assert proven(SIGNED) == JANE


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
        pytest.param('{"username":"' + "j" * 70_000 + '"}', id="it is very long"),
        pytest.param(with_fields(mac="\u00e9" * 64), id="its MAC is no ASCII"),
        pytest.param(with_fields(mac=""), id="its MAC is empty"),
        pytest.param(with_fields(mac=json.loads(SIGNED)["mac"].upper()), id="its MAC is in capitals"),
        pytest.param(with_fields(username="root"), id="the name is another"),
        pytest.param(with_fields(groups=["ml", "system:masters"]), id="a group is another"),
        pytest.param(with_fields(groups=["system:authenticated", "ml"]), id="groups stand in another order"),
        pytest.param(with_fields(groupsTruncated=True), id="groups are said to be cut"),
        pytest.param(with_fields(nonce="other"), id="the nonce is another"),
        pytest.param(with_fields(comment="trust me"), id="a field is added"),
        pytest.param(f" {SIGNED}", id="a space is added"),
        pytest.param(SIGNED.replace('"username":', '"username":"root","username":'), id="a field is there twice"),
        pytest.param(json.dumps(dict(reversed(json.loads(SIGNED).items()))), id="fields stand in another order"),
    ],
)
def test_annotation_that_proves_nothing(annotation: str | None) -> None:
    assert proven(annotation) is None


def test_annotation_is_for_one_namespace_one_request_and_one_key() -> None:
    assert proven(SIGNED, namespace="other") is None
    assert proven(SIGNED, asked=digest(decoded(make_template())[0])) is None
    assert author_of(SIGNED, "train", ASKED, b"another key") is None
    assert author_of(SIGNED, "train", ASKED, None) is None


def test_groups_that_are_too_many_are_cut_and_count_as_unknown() -> None:
    groups = tuple(f"{number:04d}" for number in range(GROUPS_MAX_BYTES // 4 + 1))
    author = proven(signed(Requester("jane", groups), "train", "n", ASKED, KEY))
    assert author == Requester("jane", groups[:-1], groups_known=False)
    fits = proven(signed(Requester("jane", groups[:-1]), "train", "n", ASKED, KEY))
    assert fits == Requester("jane", groups[:-1])


def test_groups_that_are_not_known_stay_so() -> None:
    cut = Requester("jane", ("ml",), groups_known=False)
    assert proven(signed(cut, "train", "n", ASKED, KEY)) == cut


def test_name_that_an_annotation_gives_is_read_without_proof() -> None:
    assert claimed_author(with_fields(mac="")) == JANE
    assert claimed_author("{}") is None
    assert claimed_author(None) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param(JANE, Requester(JANE.username, JANE.groups[::-1]), True, id="groups in another order"),
        pytest.param(JANE, Requester("joe", JANE.groups), False, id="another name"),
        pytest.param(JANE, Requester(JANE.username, ("ml",)), False, id="other groups"),
        pytest.param(JANE, Requester(JANE.username, ("ml",), groups_known=False), True, id="groups that were cut"),
        pytest.param(JANE, Requester(JANE.username, ("x",), groups_known=False), False, id="others that were cut"),
    ],
)
def test_same_author(one: Requester, other: Requester, same: bool) -> None:  # noqa: FBT001 -- a table's
    assert same_author(one, other) is same_author(other, one) is same


# --- what is signed for -------------------------------------------------------------------------


def asked_by(requests: list[Any], *, version: str = "v1") -> bytes:
    return digest(decoded(make_claim(requests=requests, version=version))[0])


def test_digest_depends_on_neither_version_nor_shape_nor_spelling() -> None:
    """What is left out is what an API server writes there between `/mutate` and the store."""
    toleration = make_toleration(operator="Equal", value="v")
    defaults: dict[str, Any] = {
        "count": 1,
        "allocationMode": "ExactCount",
        "adminAccess": False,
        "selectors": [],
        "capacity": None,
    }
    spelt_out = make_request(tolerations=[toleration], **defaults)
    short = {name: value for name, value in toleration.items() if name != "operator"}
    flat = make_flat_request(tolerations=[{**short, "tolerationSeconds": None}])
    assert asked_by([spelt_out]) == asked_by([flat], version="v1beta1")


BASE = [make_request(tolerations=[make_toleration()])]


def with_more(**fields: Any) -> Any:
    return make_request(tolerations=[make_toleration()], **fields)


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([make_request(tolerations=[make_toleration(key="other")])], id="another key"),
        pytest.param([make_request(tolerations=[make_toleration(operator="Equal")])], id="another operator"),
        pytest.param([make_request(tolerations=[make_toleration(effect="NoExecute")])], id="another effect"),
        pytest.param([make_request(tolerations=[make_toleration(seconds=0)])], id="seconds"),
        pytest.param(
            [make_request(tolerations=[make_toleration(), make_toleration(key="b")])], id="one more toleration"
        ),
        pytest.param([make_request(tolerations=[])], id="no toleration"),
        pytest.param([make_request(tolerations=[make_toleration()], deviceClassName="x")], id="another class"),
        pytest.param([make_request(tolerations=[make_toleration()], adminAccess=True)], id="admin access"),
        pytest.param([*BASE, make_request("more")], id="one more request"),
        pytest.param([make_alternatives([make_toleration()])], id="alternatives"),
        pytest.param([with_more(count=1000)], id="a count"),
        pytest.param([with_more(allocationMode="All")], id="all devices"),
        pytest.param([with_more(selectors=[{"cel": {"expression": "true"}}])], id="selectors"),
        pytest.param([with_more(capacity={"requests": {"memory": "40Gi"}})], id="capacity"),
        pytest.param([with_more(fieldOfTomorrow="x")], id="what a later release has"),
        pytest.param([{**BASE[0], "fieldOfTomorrow": "x"}], id="what a later release has beside it"),
    ],
)
def test_digest_depends_on_what_is_asked_for(requests: list[Any]) -> None:
    assert asked_by(requests) != asked_by(BASE)


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a\x00", "\x1f"])
def test_names_that_json_escapes_cannot_be_written_down(name: str) -> None:
    assert not can_be_named(Requester(name, ("g",)))
    assert not can_be_named(Requester("jane", ("g", name)))


@pytest.mark.parametrize(
    "name", ["jane@example.com", "a'b,c]}", "J\u00fcrgen \U0001f600", "a\x7fb\u2028\x85", "", " / "]
)
def test_names_that_can_be_written_down_stand_in_the_annotation_as_they_are(name: str) -> None:
    """What compares the annotation as text relies on it (R2)."""
    requester = Requester(name, (name, "g"))
    assert can_be_named(requester)
    head = '{"username":"' + name + '","groups":["' + name + '","g"],"nonce":"n","mac":"'
    assert signed(requester, "ns", "n", ASKED, KEY).startswith(head)


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param({"constraints": [{"matchAttribute": "example.com/numa"}]}, id="constraints"),
        pytest.param(
            {"config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"sharing": "MPS"}}}]},
            id="configuration",
        ),
        pytest.param(
            {"config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"huge": 10**30}}}]},
            id="a number that no 64 bits hold",
        ),
    ],
)
def test_digest_depends_on_what_stands_beside_the_requests(devices: Any) -> None:
    """R11: of claims and templates alike, since one becomes the other."""
    plain, more = make_template([make_toleration()]), make_template([make_toleration()])
    more["spec"]["spec"]["devices"] |= devices
    claim = make_claim([make_toleration()])
    claim["spec"]["devices"] |= devices
    assert digest(decoded(more)[0]) == digest(decoded(claim)[0])
    assert digest(decoded(more)[0]) != digest(decoded(plain)[0])
    more["spec"]["spec"]["devices"] |= dict.fromkeys(devices)
    assert digest(decoded(more)[0]) == digest(decoded(plain)[0])


@pytest.mark.parametrize(
    "more", [{"count": 2}, {"selectors": [{"cel": {"expression": "true"}}]}, {"allocationMode": "All"}], ids=str
)
def test_digest_of_alternatives_depends_on_what_each_asks_for(more: Any) -> None:
    """R11."""

    def of(*alternatives: Any, version: str = "v1") -> bytes:
        return asked_by([{"name": "gpu", "firstAvailable": list(alternatives)}], version=version)

    one, other = ({"name": name, "deviceClassName": "gpu"} for name in ("a", "b"))
    assert of(one, other) == of({**one, "count": 1}, other, version="v1beta1")
    assert len({of(one, other), of({**one, **more}, other), of(one, {**other, **more})}) == 3


@pytest.mark.parametrize(
    "spec", [None, [], {"devices": 5}, {"devices": {"requests": {}}}, {"devices": {"requests": [7]}}]
)
def test_digest_of_what_has_wrong_types_is_one(spec: Any) -> None:
    claim, _ = decoded({**make_claim(), "spec": spec})
    assert len(digest(claim)) == 32


# --- bounds -------------------------------------------------------------------------------------


def test_annotation_of_64_kib_is_read_and_a_longer_one_is_not() -> None:
    longest = '{"username":"%s"}' % ("j" * (64 * 1024 - 15))
    assert len(longest) == 65_536
    assert claimed_author(longest) is not None
    assert claimed_author(f"{longest} ") is None


def test_groups_of_8192_bytes_are_written_down_and_one_byte_more_is_not() -> None:
    fits, beyond = ("g" * 8000, "h" * 192), ("g" * 8000, "h" * 193)
    assert claimed_author(signed(Requester("jane", fits), "ns", "n", ASKED, KEY)) == Requester("jane", fits)
    assert claimed_author(signed(Requester("jane", beyond), "ns", "n", ASKED, KEY)) == Requester(
        "jane", beyond[:1], groups_known=False
    )


def test_digest_is_the_same_in_every_process_and_release() -> None:
    """A template is signed once, and its claims are judged for years."""
    assert ASKED.hex() == "6d421d47fc956e9103099cb1fbc3d9a71b528592fec375780950e409325d8a08"
    assert (
        asked_by([make_request(allocationMode="All")]).hex()
        == "0e0649b94fd83a10655f2d96bd46cf6b691dcbdb15b5d57336f501d3e7c05a29"
    )


def test_order_of_fields_does_not_matter_to_the_digest() -> None:
    for value in (1, 2**70, "\ud800"):
        one, other = {"a": value, "b": 1}, {"b": 1, "a": value}
        assert asked_by([with_more(fieldOfTomorrow=one)]) == asked_by([with_more(fieldOfTomorrow=other)])


@pytest.mark.parametrize("value", ["\ud800", 2**70])
def test_digest_is_taken_of_what_only_json_can_spell(value: Any) -> None:
    assert asked_by([with_more(fieldOfTomorrow=value)]) == asked_by([with_more(fieldOfTomorrow=value)])
    assert asked_by([with_more(fieldOfTomorrow=value)]) != asked_by([with_more(fieldOfTomorrow=value + value)])
