"""No corner of JSON that an API server passes on lets an object escape judgement."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.builders import make_context
from webhook.admission.chain import validate
from webhook.admission.review import decode_review
from webhook.api.decode import _pruned, salvaged

# The documentation and earlier policies rely on these numbers, so they are written out.
DEPTH_MAX = 64

UID = "0a5b6c7d-0000-4000-8000-000000000001"
PLACE = '"PARAMETERS"'
KEYLESS = {"operator": "Equal", "value": "v", "effect": "NoSchedule"}


def review(parameters: bytes) -> bytes:
    """A claim that the documents forbid, with these parameters for its driver."""
    config = [{"opaque": {"driver": "gpu.example.com", "parameters": "PARAMETERS"}}]
    exactly = {"deviceClassName": "gpu.example.com", "tolerations": [KEYLESS]}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "training", "namespace": "ml"},
        "spec": {"devices": {"config": config, "requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    resource = {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"}
    request = {"uid": UID, "operation": "CREATE", "resource": resource, "object": claim}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(body).encode().replace(PLACE.encode(), parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param(b'{"a":1}', id="nothing odd"),
        pytest.param(b'{"a":"\\ud800"}', id="half of a surrogate pair"),
        pytest.param(b'{"\\udc00":"x"}', id="the other half, in a key"),
        pytest.param(b'{"a":"\xff"}', id="a byte that is no UTF-8"),
        pytest.param(b"[" * 5_000 + b"]" * 5_000, id="5,000 levels of lists"),
        pytest.param(b'{"a":' * 1_500 + b"1" + b"}" * 1_500, id="1,500 levels of objects"),
        pytest.param(b'{"a":"]}]}"}', id="brackets in a text"),
        pytest.param(b"[" * 2_000 + b'"]]\\"]]"' + b"]" * 2_000, id="brackets in a text far down"),
        pytest.param(b'{"a":1e999}', id="a number beyond all bounds"),
        pytest.param(b'{"a":' + b"9" * 5_000 + b"}", id="a whole number of 5,000 digits"),
        pytest.param(b'{"a":-' + b"9" * 9_000 + b"}", id="a negative number of 9,000 digits"),
        pytest.param(b'{"a":' + b"9" * 5_000 + b".5}", id="a fraction of 5,000 digits"),
        pytest.param(b'{"a":1e' + b"9" * 5_000 + b"}", id="an exponent of 5,000 digits"),
    ],
)
def test_claim_is_judged_whatever_its_parameters_are(parameters: bytes) -> None:
    request = decode_review(review(parameters))
    decision = validate(request, make_context())
    assert request.uid == UID
    assert [(error.field, error.type.value) for error in decision.errors] == [
        ("spec.devices.requests[0].exactly.tolerations[0].operator", "FieldValueInvalid")
    ]


def test_only_what_lies_too_deep_is_cut_out() -> None:
    depth = DEPTH_MAX + 2
    body = b'{"keep":[1,2],"deep":' + b"[" * depth + b"7" + b"]" * depth + b',"last":"\\ud800"}'
    value = json.loads(salvaged(body) or b"")
    assert value["keep"] == [1, 2]
    assert value["last"] == "?"
    assert json.dumps(value["deep"]) == "[" * (DEPTH_MAX - 1) + "null" + "]" * (DEPTH_MAX - 1)


def test_sixty_four_levels_are_kept() -> None:
    for levels in (63, 64):
        body = b"[" * levels + b"]" * levels
        assert json.loads(salvaged(body) or b"") == json.loads(body)
    assert json.loads(salvaged(b"[" * 65 + b"]" * 65) or b"") == json.loads(b"[" * 64 + b"null" + b"]" * 64)


def test_whole_numbers_of_up_to_a_thousand_digits_are_kept() -> None:
    longest = b"9" * 1_000
    assert json.loads(salvaged(b"[%s,%s9]" % (longest, longest)) or b"") == [int(longest), None]


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b'{"a":}', b"\xff", b"]" * 100])
def test_what_is_no_json_stays_none(body: bytes) -> None:
    assert salvaged(body) is None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"x":' + b'\\"' * 500_000, id="quotes that end no string"),
        pytest.param(b'{"x":"' + b"\\" * 999_999, id="backslashes to the end"),
        pytest.param(b'"' * 500_001, id="quotes"),
        pytest.param(b'["a\\"' * 200_000, id="strings in strings"),
    ],
)
def test_string_without_an_end_takes_no_longer_than_its_length(body: bytes) -> None:
    """F3: 240 KB took minutes; a megabyte takes a fraction of a second."""
    started = time.process_time()
    assert salvaged(body) is None
    assert time.process_time() - started < 10


_PLAINEST = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def plainly_pruned(body: bytes) -> bytes:
    """The same cut with a pattern that is plainly right, and slow."""
    kept, depth, start = b"", 0, 0
    for token in _PLAINEST.finditer(body):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth == DEPTH_MAX + 1:
                kept += body[start : token.start()] + b"null"
        elif token[0] in (b"]", b"}"):
            if depth == DEPTH_MAX + 1:
                start = token.end()
            depth -= 1
    return kept if depth > DEPTH_MAX else kept + body[start:]


@given(
    st.lists(
        st.sampled_from(
            [b'"', b"\\", b'\\"', b"[", b"]", b"{", b"}", b"a", b"\n", b"[" * DEPTH_MAX, b"]" * DEPTH_MAX, b'"]"']
        ),
        max_size=40,
    ).map(b"".join)
)
@example(b"[" * DEPTH_MAX)
def test_cut_is_where_the_plain_pattern_makes_it(body: bytes) -> None:
    assert _pruned(body) == plainly_pruned(body)
