from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import Any, Final

import msgspec
import pytest

from tests.builders import UID, USER, encoded, make_admission_request, make_claim, make_patch, make_review, make_rule
from tests.tables import table
from webhook.admission.decision import ALLOWED, Decision, encode_failure, encode_response, encode_unchanged
from webhook.admission.review import MAX_VALUES, AdmissionRequest, BadReview, TooManyValues, decode_review
from webhook.api.field import Finding, Path, Severity, forbidden, invalid, required
from webhook.api.meta import GroupVersionKind, GroupVersionResource

TAINT = Path.root().child("spec", "taint")
FLAT = Path.root().child("spec").only_normalized("exactly").child("operator")


def test_request_is_read() -> None:
    rule, old = make_rule(), make_rule(taint=None)
    review = make_review(rule, old, sub_resource="status", groups=["a", "b"], dryRun=True)
    assert decode_review(encoded(review)) == AdmissionRequest(
        uid=UID,
        operation="UPDATE",
        resource=GroupVersionResource("resource.k8s.io", "v1", "devicetaintrules"),
        sub_resource="status",
        kind=GroupVersionKind("resource.k8s.io", "v1", "DeviceTaintRule"),
        name="unhealthy-gpu",
        username=USER,
        groups=("a", "b"),
        dry_run=True,
        object=rule,
        old_object=old,
    )


def test_request_with_no_more_than_a_uid_is_read() -> None:
    body = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u"}}'
    assert decode_review(body) == AdmissionRequest(
        "u", "", GroupVersionResource("", "", ""), problems=("request.operation: Required value",)
    )


def test_review_that_does_not_say_so_is_no_dry_run() -> None:
    for given, dry_run in (({"dryRun": True}, True), ({"dryRun": False}, False), ({}, False)):
        review = make_review(make_rule())
        del review["request"]["dryRun"]
        review["request"] |= given
        assert decode_review(encoded(review)).dry_run is dry_run
        review["request"]["name"] = 7  # then it is read in another way
        assert decode_review(encoded(review)).dry_run is dry_run


def test_core_group_and_missing_user_are_read() -> None:
    fields = {"kind": {"version": "v1", "kind": "ConfigMap"}, "userInfo": None}
    request = make_admission_request(make_claim(), **fields)
    assert request.kind == GroupVersionKind("", "v1", "ConfigMap")
    assert (request.username, request.groups) == ("system:anonymous", ())


@table(
    "manifest, fields, reference",
    {
        "a name in a namespace": (make_claim(), {}, "ml/training"),
        "a name": (make_rule(), {}, "unhealthy-gpu"),
        "a prefix": (make_rule(meta={"generateName": "gpu-"}), {}, "gpu-*"),
        "nothing": (make_rule(meta={}), {}, ""),
        "a prefix that is none": (make_rule(meta={"generateName": 7}), {}, ""),
        "no object": (make_rule(), {"object": None, "name": ""}, ""),
        "no metadata": (make_rule(), {"object": {"metadata": 1}, "name": ""}, ""),
    },
)
def test_request_is_referred_to_by_name(manifest: Any, fields: dict[str, Any], reference: str) -> None:
    assert make_admission_request(manifest, **fields).reference == reference


@table(
    "body, problem",
    {
        "empty": (b"", "body: Invalid value: not JSON: Input data was truncated"),
        "cut": (b"{", "body: Invalid value: not JSON: Input data was truncated"),
        "no UTF-8": (b"\xff", "body: Invalid value: not JSON: "),
        "two documents": (b"{}{}", "body: Invalid value: not JSON: "),
        "no number": (b"NaN", "body: Invalid value: not JSON: "),
        "deep": (b"[" * 100_000, "body: Invalid value: nested too deeply for an AdmissionReview"),
        **{
            name: (body, "request: Required value: the body must be an AdmissionReview of admission.k8s.io/v1")
            for name, body in {
                "null": b"null",
                "a list": b"[]",
                "a text": b'"x"',
                "a long number": b"1" * 5_000,
                "no UTF-8 in a text": b'"\xff"',
                "an empty object": b"{}",
                "a null request": b'{"request":null}',
                "a list for a request": b'{"request":[]}',
            }.items()
        },
        **{
            name: (body, "request.uid: Required value: must be the text that the answer has to repeat")
            for name, body in {
                "no uid": b'{"request":{}}',
                "an empty uid": b'{"request":{"uid":""}}',
                "a number as uid": b'{"request":{"uid":7}}',
            }.items()
        },
    },
)
def test_body_without_uid_cannot_be_answered(body: bytes, problem: str) -> None:
    with pytest.raises(BadReview) as caught:
        decode_review(body)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("changes", [{"apiVersion": "admission.k8s.io/v1beta1"}, {"kind": "Review"}], ids=str)
def test_envelope_of_another_kind_is_a_problem(changes: dict[str, Any]) -> None:
    problem = 'apiVersion, kind: Unsupported value: supported values: "admission.k8s.io/v1, AdmissionReview"'
    assert decode_review(encoded(make_review(make_rule()) | changes)).problems == (problem,)


@table(
    "changes, problem",
    {
        "no operation": ({"operation": ""}, "request.operation: Required value"),
        "resource": ({"resource": []}, "request.resource: Invalid value: must be an object"),
        "kind": ({"kind": "x"}, "request.kind: Invalid value: must be an object"),
        "user": ({"userInfo": 1}, "request.userInfo: Invalid value: must be an object"),
        "name": ({"userInfo": {"username": 1}}, "request.userInfo.username: Invalid value: must be a string"),
        "groups": ({"userInfo": {"groups": {}}}, "request.userInfo.groups: Invalid value: must be a list of strings"),
        "a number as group": (
            {"userInfo": {"groups": ["a", 1]}},
            "request.userInfo.groups: Invalid value: must be a list of strings",
        ),
        "subresource": ({"subResource": 1}, "request.subResource: Invalid value: must be a string"),
        "name of the object": ({"name": 1}, "request.name: Invalid value: must be a string"),
        "namespace": ({"namespace": 1}, "request.namespace: Invalid value: must be a string"),
        "group of the resource": (
            {"resource": {"group": 1, "version": "v1", "resource": "x"}},
            "request.resource.group: Invalid value: must be a string",
        ),
    },
)
def test_fault_of_a_request_is_a_problem_to_answer(changes: dict[str, Any], problem: str) -> None:
    request = make_admission_request(make_rule(), **changes)
    assert (request.uid, request.problems) == (UID, (problem,))


def test_request_of_too_many_values_is_a_problem() -> None:
    request = make_admission_request(make_claim([{"key": "k" * 50}] * MAX_VALUES))
    assert len(request.problems) == 1
    assert request.problems[0].endswith(f": must have at most {MAX_VALUES} values; send a smaller object")
    assert make_admission_request(make_claim([{"key": "k" * 500}] * 1_000)).problems == ()


EMPTY_LISTS = b'"notes":[' + b"[]," * 3_300_000 + b'[]],"metadata"'


@table(
    "filling",
    {
        "empty lists": b"[]," * 3_300_000,
        "lists in lists": (b"[" * 60 + b"]" * 60 + b",") * 80_000,
        "objects": b'{"a":{"b":0}},' * 700_000,
    },
)
def test_values_are_counted_before_they_take_memory(filling: bytes) -> None:
    """F4: ten megabytes of empty lists took half a gigabyte before they were refused."""
    read = f"""
import pathlib, sys
from webhook.admission.review import decode_review

def peak():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

head, _, tail = {encoded(make_review(make_claim()))!r}.partition(b'"metadata"')
body = head + b'"notes":[' + sys.stdin.buffer.read() + b'0],"metadata"' + tail
before = peak()
request = decode_review(body)
assert request.uid == {UID!r} and request.resource.resource == "resourceclaims", request
assert "must have at most" in request.problems[0], request.problems
print((peak() - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", read], input=filling, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) < 100, "mebibytes more than the body itself"


def test_review_of_too_many_values_in_which_something_is_odd_has_no_uid() -> None:
    body = encoded(make_review(make_claim())).replace(b'"metadata"', b'"odd":"\\ud800",%b' % EMPTY_LISTS, 1)
    with pytest.raises(TooManyValues, match=f"must have at most {MAX_VALUES} values"):
        decode_review(body)


def deny(error: Any, rule: str | None = None) -> Finding:
    return Finding(Severity.DENY, error, rule=rule)


ADVICE = Finding(Severity.WARN, invalid(TAINT, "x", "is odd"), "DT001")
REQUEST = make_admission_request(make_rule())
HEAD = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"%s",' % UID.encode()


@table(
    "decision, answer",
    {
        "allowed": (ALLOWED, b'"allowed":true}}'),
        "allowed with advice": (
            Decision((ADVICE,), annotations={"decision": "warned", "rules": "DT001"}),
            (
                b'"allowed":true,"warnings":["spec.taint: is odd [DT001]"],'
                b'"auditAnnotations":{"decision":"warned","rules":"DT001"}}}'
            ),
        ),
        "allowed with a patch, in base64": (
            Decision(patch=({"op": "add", "path": "/a", "value": "b"},)),
            b'"allowed":true,"patchType":"JSONPatch","patch":"%s"}}'
            % base64.b64encode(b'[{"op":"add","path":"/a","value":"b"}]'),
        ),
        "one field error, beside advice": (
            Decision((deny(required(TAINT.child("effect"))), ADVICE)),
            (
                b'"allowed":false,"status":{"metadata":{},"status":"Failure","reason":"Invalid","code":422,'
                b'"message":"DeviceTaintRule.resource.k8s.io \\"unhealthy-gpu\\" is invalid: '
                b'spec.taint.effect: Required value",'
                b'"details":{"name":"unhealthy-gpu","group":"resource.k8s.io","kind":"DeviceTaintRule","causes":'
                b'[{"reason":"FieldValueRequired","message":"Required value","field":"spec.taint.effect"}]}},'
                b'"warnings":["spec.taint: is odd [DT001]"]}}'
            ),
        ),
        "several field errors, one of them at the path as written": (
            Decision((deny(invalid(TAINT, "x", "must be y")), deny(required(FLAT, declarative=True)))),
            (
                b'"allowed":false,"status":{"metadata":{},"status":"Failure","reason":"Invalid","code":422,'
                b'"message":"DeviceTaintRule.resource.k8s.io \\"unhealthy-gpu\\" is invalid: '
                b'[spec.taint: Invalid value: \\"x\\": must be y, spec.operator: Required value]",'
                b'"details":{"name":"unhealthy-gpu","group":"resource.k8s.io","kind":"DeviceTaintRule","causes":'
                b'[{"reason":"FieldValueInvalid","message":"Invalid value: \\"x\\": must be y","field":"spec.taint"},'
                b'{"reason":"FieldValueRequired","message":"Required value","field":"spec.operator"}]}}}}'
            ),
        ),
        "a rule of the policy": (
            Decision((deny(forbidden(TAINT, "not yours"), rule="team-a"),)),
            (
                b'"allowed":false,"status":{"metadata":{},"status":"Failure","reason":"Forbidden","code":403,'
                b'"message":"DeviceTaintRule.resource.k8s.io \\"unhealthy-gpu\\" is forbidden: '
                b'spec.taint: Forbidden: not yours (rule team-a)",'
                b'"details":{"name":"unhealthy-gpu","group":"resource.k8s.io","kind":"DeviceTaintRule","causes":'
                b'[{"reason":"FieldValueForbidden","message":"Forbidden: not yours (rule team-a)",'
                b'"field":"spec.taint"}]}}}}'
            ),
        ),
        "a request that makes no sense": (
            Decision(problem="request.operation: Required value"),
            (
                b'"allowed":false,"status":{"metadata":{},"status":"Failure","reason":"BadRequest","code":400,'
                b'"message":"request.operation: Required value"}}}'
            ),
        ),
    },
)
def test_answer_is_one_review(decision: Decision, answer: bytes) -> None:
    assert encode_response(REQUEST, decision) == HEAD + answer


@table(
    "manifest, start",
    {
        "prefix": (make_rule(meta={"generateName": "gpu-"}), 'DeviceTaintRule.resource.k8s.io "gpu-*" is invalid: '),
        "a slash in the name": (make_rule(meta={"name": "a/b"}), 'DeviceTaintRule.resource.k8s.io "a/b" is invalid: '),
        "our own kind": (make_patch(), 'ResourceSlicePatch.devicetaint.io "firmware" is invalid: '),
    },
)
def test_refusal_names_the_object(manifest: Any, start: str) -> None:
    answer = encode_response(make_admission_request(manifest), Decision((deny(required(TAINT)),)))
    assert json.loads(answer)["response"]["status"]["message"].startswith(start)


def test_refusal_in_the_core_group_names_the_kind_alone() -> None:
    request = make_admission_request(make_rule(), kind={"version": "v1", "kind": "ConfigMap"}, name="policy")
    answer = encode_response(request, Decision((deny(required(TAINT)),)))
    assert json.loads(answer)["response"]["status"]["message"].startswith('ConfigMap "policy" is invalid: ')


@table(
    "code, reason",
    {
        "400": (400, "BadRequest"),
        "403": (403, "Forbidden"),
        "413": (413, "RequestEntityTooLarge"),
        "422": (422, "Invalid"),
        "429": (429, "TooManyRequests"),
        "500": (500, "InternalError"),
        "504": (504, "Timeout"),
    },
)
def test_failure_of_ours_refuses(code: int, reason: str) -> None:
    assert encode_failure('u"1', code, "spent 8 s before lint") == (
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u\\"1","allowed":false,'
        b'"status":{"status":"Failure","message":"spent 8 s before lint","reason":"%s","code":%d}}}'
        % (reason.encode(), code)
    )


@pytest.mark.parametrize("uid", ["u", "\u2028\u0000", "ü" * 1000, '"\\'])
def test_uid_is_repeated_whatever_it_is(uid: str) -> None:
    request = make_admission_request(make_rule(), uid=uid)
    assert msgspec.json.decode(encode_response(request, ALLOWED))["response"]["uid"] == uid


def test_mutation_that_failed_lets_the_object_pass_with_a_warning() -> None:
    assert encode_unchanged("u", "spent 8 s before defaulting") == (
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true,'
        b'"warnings":["spent 8 s before defaulting"]}}'
    )


# --- how many values a review may have ------------------------------------------------------------


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
