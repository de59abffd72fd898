"""Whatever comes in, what goes out is an answer."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.builders import encoded, make_context, make_review
from tests.properties.strategies import any_json, mutated_bodies, nearly_right, reviews, uid_in
from webhook.admission.chain import mutate, validate
from webhook.admission.decision import encode_response
from webhook.admission.review import BadReview, decode_review
from webhook.api.decode import Reader
from webhook.validation.kinds import KINDS
from webhook.validation.releases import RELEASES

if TYPE_CHECKING:
    from webhook.api.field import FieldError

CONTEXTS = [
    make_context(release=release, bump_slice_time_added=release.minor % 2 == 1) for release in RELEASES.values()
]


def answers(body: bytes, number: int = 4) -> list[Any]:
    """What /validate and /mutate answer to a body; nothing where no uid can be found."""
    context = CONTEXTS[number % len(CONTEXTS)]
    try:
        request = decode_review(body)
    except BadReview:
        return []
    decisions = [validate(request, context), mutate(request, context)]
    assert decisions[1].allowed
    assert not decisions[0].patch
    return [json.loads(encode_response(request, decision)) for decision in decisions]


def check(body: bytes, number: int = 4) -> None:
    """An answer that has the uid and is whole; none only where there is no uid."""
    uid = uid_in(body)
    found = answers(body, number)
    if not found:
        assert uid is None
        return
    for answer in found:
        response = answer["response"]
        assert uid is None or response["uid"] == uid
        assert isinstance(response["allowed"], bool)
        assert response["allowed"] == ("status" not in response)
        if not response["allowed"]:
            assert response["status"]["code"] in {400, 403, 422}
            assert response["status"]["message"]
        assert all(len(warning) <= 256 for warning in response.get("warnings", ()))


# No shrinking: a smaller seed is no simpler body.
@settings(
    phases=[Phase.reuse, Phase.generate], suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(reviews, st.integers(0, 2**32))
def test_spoilt_reviews_get_a_verdict(review: Any, seed: int) -> None:
    """200 bodies an example: 100,000 of them with the profile of CI."""
    for number, body in enumerate(mutated_bodies(review, Random(seed))):
        check(body, number)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_get_a_verdict(body: bytes) -> None:
    check(body)


@given(any_json)
def test_arbitrary_json_gets_a_verdict(value: Any) -> None:
    check(encoded(value))
    check(encoded({"request": value}))
    check(
        encoded(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "object": value}}
        )
    )


@given(st.dictionaries(st.sampled_from(["uid", "operation", "resource", "kind", "userInfo", "object"]), any_json))
def test_arbitrary_requests_get_a_verdict(fields: dict[str, Any]) -> None:
    request = {"uid": "u"} | fields
    check(encoded({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}))


@given(nearly_right, nearly_right, st.sampled_from([None, "status"]), st.integers(0, 4))
def test_nearly_right_objects_get_a_verdict(new: Any, old: Any, sub_resource: str | None, number: int) -> None:
    check(encoded(make_review(new, sub_resource=sub_resource)), number)
    check(encoded(make_review(new, old, sub_resource=sub_resource)), number)


@given(any_json, any_json, st.sampled_from(list(KINDS)))
def test_arbitrary_json_as_an_object_gets_a_verdict(new: Any, old: Any, resource: Any) -> None:
    """Of the right kind by name, whatever else it holds."""
    row = KINDS[resource]
    new = (new if isinstance(new, dict) else {"spec": new, "metadata": old, "status": new}) | {
        "apiVersion": f"{resource.group}/{resource.version}",
        "kind": row.kind,
    }
    check(encoded(make_review(new, object=new, oldObject=old, operation="UPDATE")))


@given(st.one_of(any_json, nearly_right), st.sampled_from(list(KINDS.values())))
def test_decoding_never_raises(value: Any, row: Any) -> None:
    errors: list[FieldError] = []
    first = row.decode(Reader.of(value, errors))
    again: list[FieldError] = []
    assert row.decode(Reader.of(value, again)) == first
    assert [str(error) for error in again] == [str(error) for error in errors]
