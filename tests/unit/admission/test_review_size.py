"""How many values a review may have; they are counted by commas and brackets before any is read."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from webhook.admission.review import BadReview, TooManyValues, decode_review

TOO_MANY = "request: Too many: 400001: must have at most 400000 values; send a smaller object"
REVIEW: Final[dict[str, Any]] = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "u",
        "kind": {"group": "g", "version": "v1", "kind": "K"},
        "resource": {"group": "g", "version": "v1", "resource": "ks"},
        "operation": "CREATE",
        "userInfo": {"username": "jane"},
    },
}


@pytest.mark.parametrize(("values", "problems"), [(400_000, ()), (400_001, (TOO_MANY,))])
def test_review_of_400000_values_is_taken(values: int, problems: tuple[str, ...]) -> None:
    frame = json.dumps({**REVIEW, "request": {**REVIEW["request"], "object": {"items": []}}})
    own = frame.count(",") + frame.count("{") + 1  # none of its objects is empty, and the list will not be
    items = ",".join("1" * (values - own + 1))
    assert decode_review(frame.replace("[]", f"[{items}]").encode()).problems == problems


def framed(**objects: str) -> bytes:
    """A review with these objects, each given as JSON."""
    review = json.dumps(REVIEW)
    parts = "".join(f',"{name}":{text}' for name, text in objects.items())
    return f"{review[:-2]}{parts}}}}}".encode()


@pytest.mark.parametrize("empty", ["[]", "{}"])
def test_empty_list_or_object_counts_as_one_value(empty: str) -> None:
    assert decode_review(framed(object=f"[{','.join([empty] * 300_000)}]")).problems == ()


def test_parts_of_up_to_256_kib_are_read_of_a_review_with_too_many_values() -> None:
    many = f"[{','.join('1' * 400_001)}]"
    for size, read in ((256 * 1024, True), (256 * 1024 + 1, False)):
        request = decode_review(framed(object=many, oldObject=f'"{"x" * (size - 2)}"'))
        assert (request.uid, request.object, request.old_object is not None) == ("u", None, read)
        assert len(request.problems) == 1


@pytest.mark.parametrize(("values", "error"), [(400_000, BadReview), (400_001, TooManyValues)])
def test_what_is_no_json_is_refused_for_its_values_only_beyond_the_limit(values: int, error: type[BadReview]) -> None:
    with pytest.raises(BadReview) as raised:
        decode_review(b"[" + b"1," * (values - 1))
    assert type(raised.value) is error


def test_what_is_no_strict_json_is_looked_at_again_up_to_4_mib() -> None:
    """A second look is a few calls that nothing interrupts; beyond, the answer is for the uid in the body's head."""
    most, frame = 4 * 1024 * 1024, len(framed(object='""'))
    for size, error in ((most, None), (most + 1, TooManyValues)):
        body = framed(object='"' + "x" * (size - frame) + '"')[:-4] + b'\xff"}}'
        assert len(body) == size
        if error is None:
            assert decode_review(body).uid == "u"
        else:
            with pytest.raises(error):
                decode_review(body)
