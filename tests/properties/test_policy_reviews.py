"""Laws of the policy at work: what reviews are answered under it."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.builders import (
    make_admission_request,
    make_alternatives,
    make_claim,
    make_context,
    make_flat_request,
    make_meta,
    make_request,
    make_template,
)
from tests.properties.documents import documents
from tests.properties.policies import FACTS, manifest_of, policies, taint_policies, times, tolerations
from tests.properties.strategies import RIGHT, mutated_bodies, nearly_right, reviews, right
from tests.unit.policy.documents import AT
from webhook.admission import excess
from webhook.admission.chain import mutate, validate
from webhook.admission.claim_view import REQUESTED_BY, annotation_of, author_of, texts_of
from webhook.admission.decision import apply_patch, encode_response
from webhook.admission.review import BadReview, decode_review
from webhook.api.claims import decode_claim, decode_template
from webhook.api.decode import Reader
from webhook.api.taints import EQUAL
from webhook.policy.decide import Judge
from webhook.policy.document import load
from webhook.policy.match import KnownNames, Requester
from webhook.policy.model import CLAIM_CONTROLLER, DEFAULT_RULE, Action, PolicyException, PolicyMode, UnknownAuthor

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.admission.context import AdmissionContext
    from webhook.admission.decision import Decision
    from webhook.api.taints import DeviceToleration
    from webhook.policy.model import Policy

NAMES: Final = KnownNames(
    {name: facts.labels for name, facts in FACTS.items()} | {"ml": {"team": "ml"}},
    {"gpu": frozenset({"gpu.example.com"}), "nic": None},
)
lists_of_tolerations = st.lists(tolerations, max_size=4)
users = st.sampled_from(
    [
        ("jane", ["ops"]),
        (CLAIM_CONTROLLER, ["system:authenticated"]),
        ("system:kube-scheduler", []),
        ("j\u00e9\n\"'{}\u202e", [f"group-{number}" for number in range(100)]),
    ]
)


def policy_in(document: Any) -> Policy:
    policy = load(document, AT).policy
    assume(policy is not None)
    assert policy is not None
    return policy


def context_of(policy: Policy, **options: Any) -> AdmissionContext:
    return make_context(**{"judge": Judge(policy), "names": NAMES, **options})


def told(decision: Decision) -> list[tuple[str, str | None, str]]:
    """What rules had to say, without where it stands."""
    return [
        (finding.severity.value, finding.rule, finding.error.detail) for finding in decision.findings if finding.policy
    ]


def metadata() -> Any:
    return make_meta("training", namespace="train-a")


# --- shapes and versions ------------------------------------------------------------------------


requested = st.fixed_dictionaries(
    {"deviceClassName": st.sampled_from(["gpu", "nic", "unheard-of"]), "adminAccess": st.sampled_from([True, False])}
)


@given(policies, lists_of_tolerations, requested, times)
def test_verdict_depends_on_neither_shape_nor_version(
    policy: Policy, listed: list[DeviceToleration], fields: dict[str, Any], now: datetime
) -> None:
    context = context_of(policy, now=now, offline=True)
    fields = {**fields, "tolerations": [manifest_of(each) for each in listed]}
    exact, flat = [make_request(**fields)], [make_flat_request(**fields)]
    alternative = [{"name": "gpu", "firstAvailable": [{"name": "only", **fields}]}]
    manifests = [
        make_claim(requests=requests, version=version, meta=metadata())
        for requests, version in (
            (exact, "v1"),
            (exact, "v1beta2"),
            (flat, "v1beta1"),
            (alternative, "v1"),
            (alternative, "v1beta1"),
        )
    ]
    manifests += [
        make_template(requests=requests, version=version, meta=metadata())
        for requests, version in ((exact, "v1"), (flat, "v1beta1"), (alternative, "v1beta2"))
    ]
    verdicts = [validate(make_admission_request(manifest), context) for manifest in manifests]
    assert [told(verdict) for verdict in verdicts] == [told(verdicts[0])] * len(manifests)
    assert [verdict.hits for verdict in verdicts] == [verdicts[0].hits] * len(manifests)


@given(policies, st.lists(lists_of_tolerations, min_size=1, max_size=3), times)
def test_alternatives_are_judged_like_requests_of_their_own(
    policy: Policy, lists: list[list[DeviceToleration]], now: datetime
) -> None:
    context = context_of(policy, now=now)
    manifests = [[manifest_of(each) for each in listed] for listed in lists]
    together = make_claim(requests=[make_alternatives(*manifests)], meta=metadata())
    apart = make_claim(requests=[make_request(f"r-{at}", each) for at, each in enumerate(manifests)], meta=metadata())
    verdicts = [validate(make_admission_request(manifest), context) for manifest in (together, apart)]
    assert told(verdicts[0]) == told(verdicts[1])


# --- whatever comes -----------------------------------------------------------------------------


def answer(body: bytes, context: AdmissionContext) -> None:
    """Whatever the body holds, both paths give an answer that can be encoded."""
    try:
        request = decode_review(body)
    except BadReview:
        return
    for decide in (validate, mutate):
        decision = decide(request, context)
        response = json.loads(encode_response(request, decision))["response"]
        assert response["allowed"] is decision.allowed
    assert decision.allowed, "/mutate refuses nothing"


# No shrinking: a smaller seed is no simpler body.
@settings(
    phases=[Phase.reuse, Phase.generate], suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(documents, documents, reviews, users, st.integers(0, 2**32))
def test_policy_that_loads_judges_whatever_comes(
    document: Any, candidate: Any, review: Any, user: tuple[str, list[str]], seed: int
) -> None:
    context = context_of(policy_in(document), candidate=Judge(policy_in(candidate)))
    review["request"]["userInfo"] = {"username": user[0], "groups": user[1]}
    for body in mutated_bodies(review, Random(seed))[:20]:
        answer(body, context)


@given(documents, nearly_right, st.one_of(st.none(), nearly_right), users)
def test_policy_that_loads_judges_nearly_right_objects(
    document: Any, new: Any, old: Any, user: tuple[str, list[str]]
) -> None:
    request = make_admission_request(new, old, user=user[0], groups=user[1])
    for decide in (validate, mutate):
        encode_response(request, decide(request, context_of(policy_in(document))))


@given(documents, nearly_right)
def test_exceptions_lift_neither_field_errors_nor_documented_rules(document: Any, manifest: Any) -> None:
    policy = policy_in(document)
    names = (DEFAULT_RULE, *(rule.name for rule in (*policy.rules, *policy.taint_rules)))
    excused = PolicyException("everything", names, make_context().now.replace(year=2030))
    for exceptions in ((), (excused,)):
        verdict = validate(make_admission_request(manifest), context_of(structs.replace(policy, exceptions=exceptions)))
        found = [(finding.severity, str(finding.error)) for finding in verdict.findings if not finding.policy]
        if not exceptions:
            expected = found
    assert found == expected
    if verdict.code == 403:
        assert {finding.rule for finding in verdict.denials} <= {"requestedBy", "unknownAuthor"}


@given(documents, right, users)
def test_neither_warn_nor_off_refuses_and_off_tells_nothing(
    document: Any, manifest: Any, user: tuple[str, list[str]]
) -> None:
    policy = policy_in(document)
    request = make_admission_request(manifest, user=user[0], groups=user[1])
    warned = validate(request, context_of(structs.replace(policy, mode=PolicyMode.WARN)))
    off = validate(request, context_of(structs.replace(policy, mode=PolicyMode.OFF)))
    assert warned.allowed
    assert (off.allowed, told(off), off.hits) == (True, [], ())


@given(documents, RIGHT["claim"])
def test_update_of_a_claim_is_refused_by_no_rule(document: Any, manifest: Any) -> None:
    """What is stored cannot be changed, and whoever takes a finalizer away must not be stopped."""
    for user in ("jane", CLAIM_CONTROLLER):
        assert validate(make_admission_request(manifest, manifest, user=user), context_of(policy_in(document))).allowed


# --- objects that are too large to be judged whole ----------------------------------------------


@st.composite
def _crowded(draw: st.DrawFn) -> tuple[list[Any], str]:
    """Requests with longer lists than the law's limits, and their version."""
    lists = draw(st.lists(st.lists(tolerations, min_size=1, max_size=4), min_size=1, max_size=3))
    version = draw(st.sampled_from(["v1", "v1beta1"]))
    entries: list[dict[str, Any]] = [
        {**draw(requested), "tolerations": [manifest_of(each) for each in entry]} for entry in lists
    ]
    if draw(st.booleans()):
        return [
            {"name": "gpu", "firstAvailable": [{"name": f"a{at}", **entry} for at, entry in enumerate(entries)]}
        ], version
    make = make_flat_request if version == "v1beta1" else make_request
    return [make(f"r{at}", **entry) for at, entry in enumerate(entries)], version


@given(
    st.one_of(policies, taint_policies),
    _crowded(),
    times,
    st.sampled_from(UnknownAuthor),
    st.sampled_from(["jane", CLAIM_CONTROLLER]),
)
def test_verdict_on_a_part_is_never_more_permissive_than_the_verdict_on_the_whole(
    policy: Policy, crowded: tuple[list[Any], str], now: datetime, unknown_author: UnknownAuthor, user: str
) -> None:
    """R3: what is not looked at must not be a place to hide in. The limits are made small enough to be met."""
    policy = structs.replace(
        policy, documented_rules=PolicyMode.OFF, generated_claims=PolicyMode.ENFORCE, unknown_author=unknown_author
    )
    requests, version = crowded
    claim = make_claim(requests=requests, version=version)
    annotations = {REQUESTED_BY: annotation_of(Requester("jane"))}
    claim["metadata"] = make_meta("training", namespace="train-a", annotations=annotations)
    for manifest in (claim, make_template(requests=requests, version=version, meta=metadata())):
        request = make_admission_request(manifest, user=user)
        whole = validate(request, context_of(policy, now=now))
        with patch.multiple(excess, TOLERATIONS_MAX=1, LIST_MAX=2, OBJECT_MAX=3, _ALTERNATIVES_MAX=2):
            part = validate(request, context_of(policy, now=now))
        assert whole.allowed or not part.allowed


# --- default tolerations ------------------------------------------------------------------------


@given(documents, st.one_of(RIGHT["claim"], RIGHT["template"]), users)
def test_what_is_added_is_added_once_and_is_never_refused(
    document: Any, manifest: Any, user: tuple[str, list[str]]
) -> None:
    context = context_of(policy_in(document))

    def request_for(value: Any) -> Any:
        return make_admission_request(value, user=user[0], groups=user[1])

    before = validate(request_for(manifest), context)
    patched = apply_patch(manifest, mutate(request_for(manifest), context).patch)
    assert mutate(request_for(patched), context).patch == ()
    after = validate(request_for(patched), context)
    own = {finding.rule for finding in before.denials}
    assert {finding.rule for finding in after.denials} <= own
    for stored, given_ in zip(tolerations_in(patched), tolerations_in(manifest), strict=True):
        assert stored[: len(given_)] == given_, "what the author wrote stays where it was"
        assert len(stored) <= max(16, len(given_))


@given(documents, st.one_of(RIGHT["claim"], RIGHT["template"]))
def test_authors_manifest_sent_again_changes_nothing(document: Any, manifest: Any) -> None:
    """A specification is immutable: what was added must be put back, or `kubectl apply` fails the second time."""
    context = context_of(policy_in(document))
    stored = apply_patch(manifest, mutate(make_admission_request(manifest), context).patch)
    again = apply_patch(manifest, mutate(make_admission_request(manifest, stored), context).patch)
    assert again["spec"] == stored["spec"]
    assert again["metadata"] == stored["metadata"]
    assert validate(make_admission_request(again, stored), context).errors == ()


def tolerations_in(manifest: Any) -> list[list[Any]]:
    """Of each request and alternative, with the operator that an API server fills in."""
    value, _ = _decoded(manifest)
    exacts = [each for request in value.requests for each in (request.exactly, *request.first_available)]
    return [
        [structs.replace(each, operator=each.operator or EQUAL) for each in exact.tolerations]
        for exact in exacts
        if exact is not None
    ]


def _decoded(manifest: Any) -> tuple[Any, list[Any]]:
    errors: list[Any] = []
    decode = decode_claim if manifest["kind"] == "ResourceClaim" else decode_template
    return decode(Reader.of(manifest, errors)), errors


# --- authors ------------------------------------------------------------------------------------

authors = st.builds(Requester, st.text(max_size=12), st.lists(st.text(max_size=12), max_size=4).map(tuple))


@given(authors, st.integers(0, 500), st.characters())
def test_no_other_text_names_an_author_as_an_annotation_does(author: Requester, at: int, character: str) -> None:
    annotation = annotation_of(author)
    if annotation is None:
        return
    at %= len(annotation)
    for changed in (
        f"{annotation[:at]}{character}{annotation[at:]}",
        f"{annotation[:at]}{character}{annotation[at + 1 :]}",
        annotation[:at],
    ):
        named = author_of(changed)
        assert changed == annotation or named != author
        assert named is None or changed in texts_of(named)


@given(st.text(max_size=60))
def test_arbitrary_text_names_nobody(text: str) -> None:
    assert author_of(text) is None


@given(
    policies,
    lists_of_tolerations,
    st.sampled_from(["v1", "v1beta1"]),
    st.sampled_from(["v1", "v1beta1"]),
    users.filter(lambda user: bool(texts_of(Requester(user[0], tuple(user[1]))))),
)
def test_claim_from_a_template_is_judged_as_its_author_in_any_version(
    policy: Policy, listed: list[DeviceToleration], written: str, generated: str, user: tuple[str, list[str]]
) -> None:
    policy = structs.replace(policy, generated_claims=PolicyMode.ENFORCE, unknown_author=UnknownAuthor.DENY)
    context = context_of(policy)
    given_ = [manifest_of(each) for each in listed]
    template = make_template(given_, version=written, meta=metadata())
    created = make_admission_request(template, user=user[0], groups=user[1])
    stored = apply_patch(template, mutate(created, context).patch)
    annotations = stored["spec"]["metadata"]["annotations"]
    assert list(annotations) == [REQUESTED_BY]
    meta = make_meta("training-x7z", namespace="train-a", annotations=annotations)
    claim = make_claim(given_, version=generated, meta=meta)
    of_claim = validate(make_admission_request(claim, user=CLAIM_CONTROLLER), context)
    of_template = validate(created, context)
    assert told(of_claim) == [entry for entry in told(of_template) if entry[1] != "requestedBy"]
    assert of_claim.hits == of_template.hits
    assert not any(action is Action.DENY for _, action in of_claim.hits) or not of_claim.allowed
