"""Which specs are known by their text, and what is kept of them."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import pytest
from msgspec import json, structs

from tests.builders import (
    decoded,
    encoded,
    make_admission_request,
    make_alternatives,
    make_claim,
    make_context,
    make_meta,
    make_request,
    make_review,
    make_template,
    make_toleration,
)
from tests.costs import calls_of
from tests.tables import table
from tests.unit.policy.documents import judge_of, make_defaults, make_entry
from webhook.admission.chain import mutate, validate
from webhook.admission.decision import apply_patch
from webhook.admission.known_specs import KnownSpec, KnownSpecs
from webhook.admission.review import decode_review
from webhook.api.field import Severity
from webhook.commands.shared.manifest_review import verdict_on
from webhook.policy.match import KnownNames, Requester, Scope
from webhook.policy.model import Action
from webhook.validation.releases import RELEASES

GPU = {"gpu.example.com": frozenset({"gpu.example.com"})}
NIC = {"gpu.example.com": frozenset({"nic.example.com"})}
ALLOWED = (("default", Action.ALLOW),)


def known(spec: Any, *, of_template: bool = False) -> KnownSpec | None:
    return KnownSpecs(of_template=of_template).get(json.encode(spec))


def spec_of(manifest: Any) -> Any:
    return manifest["spec"]


PLAIN = spec_of(make_claim([make_toleration()]))


# --- what is known ------------------------------------------------------------------------------


def test_spec_is_known_by_its_text() -> None:
    specs = KnownSpecs(of_template=False)
    first = specs.get(json.encode(PLAIN))
    assert first is not None
    assert first.spec == PLAIN
    assert specs.get(json.encode(PLAIN)) is first
    assert specs.get(json.format(json.encode(PLAIN))) is not first


@pytest.mark.parametrize(("length", "is_known"), [(4096, True), (4097, False)])
def test_spec_of_4096_bytes_is_known(length: int, *, is_known: bool) -> None:
    text = b'{"x":"%s"}'
    text %= b"x" * (length - len(text) + 2)
    assert len(text) == length
    assert (KnownSpecs(of_template=False).get(text) is not None) is is_known


def test_the_256_specs_that_were_used_last_are_kept() -> None:
    specs = KnownSpecs(of_template=False)
    texts = [b'{"x":%d}' % number for number in range(257)]
    found = [specs.get(text) for text in texts[:256]]
    assert [specs.get(text) for text in texts[:256]] == found
    specs.get(texts[0])
    specs.get(texts[256])
    assert specs.get(texts[0]) is found[0]
    assert specs.get(texts[1]) is not found[1]


@pytest.mark.parametrize("text", [b'{"x":[%s]}', b'{"x":[%s],"y":"[{"}'])
@pytest.mark.parametrize(("count", "is_known"), [(128, True), (129, False)])
def test_spec_of_128_objects_and_lists_is_known(text: bytes, count: int, *, is_known: bool) -> None:
    """Empty ones would take hundreds of kilobytes; what looks like one in a string counts as well."""
    entries = [b"{}", b"[]"] * 64
    text %= b",".join(entries[: count - text.count(b"[") - text.count(b"{")])
    assert (KnownSpecs(of_template=False).get(text) is not None) is is_known


def test_specs_of_templates_are_read_as_such() -> None:
    template = make_template([make_toleration()])
    template["spec"]["metadata"] = {"annotations": {"a": "b"}}
    found = known(spec_of(template), of_template=True)
    assert found is not None
    assert found.within(template, []) == decoded(template)[0]
    assert known(spec_of(template)).classes == ()  # type: ignore[union-attr]  # as a claim's spec it asks for nothing


def test_classes_are_those_of_requests_and_alternatives_in_order() -> None:
    requests = [
        make_request("a", deviceClassName="first"),
        make_alternatives([], [], name="b"),
        make_request("c", deviceClassName="last"),
    ]
    for at, alternative in enumerate(requests[1]["firstAvailable"]):
        alternative["deviceClassName"] = f"choice-{at}"
    found = known(spec_of(make_claim(requests=requests)))
    assert found is not None
    assert found.classes == ("first", "choice-0", "choice-1", "last")


@table(
    "toleration, quiet",
    {
        "right": (make_toleration(), True),
        "a field error": (make_toleration(operator="Like"), False),
        "against the documents": (make_toleration(key="", operator="Equal"), False),
        "advice": (make_toleration(effect=None), False),
    },
)
@pytest.mark.parametrize("of_template", [False, True])
def test_spec_is_quiet_if_no_check_has_anything_to_say(toleration: Any, *, of_template: bool, quiet: bool) -> None:
    make = make_template if of_template else make_claim
    found = known(spec_of(make([toleration])), of_template=of_template)
    assert found is not None
    assert found.quiet is quiet


@pytest.mark.parametrize("of_template", [False, True])
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "None"])
def test_review_costs_the_same_in_each_release_that_judges_tolerations_alike(effect: str, *, of_template: bool) -> None:
    """A server whose version becomes known, or that is newer, makes no claim dearer."""
    make = make_template if of_template else make_claim
    body = encoded(make_review(make([make_toleration(effect=effect)])))
    contexts = {minor: make_context(release=release) for minor, release in RELEASES.items()}
    costs = {
        minor: calls_of(partial(validate, context=context), lambda: decode_review(body))
        for minor, context in contexts.items()
    }
    assert {cost for minor, cost in costs.items() if minor >= 35} == {costs[37]}
    refused = [minor for minor, context in contexts.items() if not validate(decode_review(body), context).allowed]
    assert refused == ([33, 34] if effect == "None" else [])


# --- in reviews ---------------------------------------------------------------------------------


@table(
    "changes, is_known",
    {
        "a claim": ({}, True),
        "with a status": ({"status": {}}, False),
        "with no status but its name": ({"status": None}, False),
        "with a field that no release has": ({"other": 1}, False),
        "with an empty spec": ({"spec": None}, True),
    },
)
def test_spec_of_a_claim_is_known_unless_the_object_has_more(changes: dict[str, Any], *, is_known: bool) -> None:
    manifest = make_claim([make_toleration()]) | changes
    request = decode_review(encoded(make_review(manifest, make_claim())))
    assert (request.known is not None) is is_known
    assert (request.old_known is not None) is ("other" not in changes)
    assert request.object == manifest


def test_resource_that_comes_late_in_the_review_is_read_whole() -> None:
    review = make_review(make_claim())
    late = encoded({"other": "x" * 512} | review)
    assert decode_review(late).known is None
    assert decode_review(late).object == review["request"]["object"]


def test_of_a_review_of_another_resource_nothing_is_known() -> None:
    """Whatever its beginning looks like."""
    review = make_review(make_claim())
    review["request"] = {"other": "resourceclaims"} | review["request"]
    assert decode_review(encoded(review)).known is not None
    review["request"]["resource"]["resource"] = "resourceslices"
    assert decode_review(encoded(review)).known is None


def test_another_spec_in_the_place_of_the_known_one_is_read() -> None:
    """As where `check` applies what /mutate proposes."""
    request = make_admission_request(make_claim([make_toleration()]))
    assert request.known is not None
    added = make_claim([make_toleration(operator="Like")])
    changed = structs.replace(request, object=added)
    assert not validate(changed, make_context()).allowed
    assert not request.known.is_of(added)
    assert request.known.is_of(request.object)
    assert not request.known.is_of(None)


def test_of_a_request_without_objects_nothing_is_known() -> None:
    request = decode_review(encoded(make_review(make_claim(), make_claim()))).without_objects()
    assert (request.known, request.old_known) == (None, None)


@pytest.mark.parametrize("updated", [False, True])
def test_verdict_is_on_the_object_that_mutate_leaves(*, updated: bool) -> None:
    """`check` of a file with a review: the tolerations that are added have findings, and the author was put back."""
    added = make_defaults("added", key="no-effect.example.com/x", operator="Exists")
    context = make_context(judge=judge_of(defaultTolerations=[added]), names=KnownNames({}, GPU))
    template = make_template([make_toleration()])
    stored = apply_patch(template, mutate(make_admission_request(template), context).patch) if updated else None
    verdict = verdict_on(make_admission_request(template, stored), context)
    whole = structs.replace(make_admission_request(template, stored), known=None, old_known=None)
    expected = verdict_on(whole, context)
    assert (verdict.findings, verdict.decision, verdict.patch) == (expected.findings, expected.decision, expected.patch)
    assert verdict.patch
    assert [finding.code for finding in verdict.findings if finding.code] == ([] if updated else ["DT001"])
    assert all(finding.severity is not Severity.DENY for finding in verdict.findings)


# --- what the policy says -----------------------------------------------------------------------


def scoped(*entries: Any) -> Any:
    return judge_of(*entries).scoped(Scope(Requester("jane", ()), "ml", None), make_context().now)


def test_ruling_counts_for_the_same_judge_and_drivers() -> None:
    spec, judge = known(PLAIN), scoped()
    assert spec is not None
    spec.settle(judge, (frozenset({"a"}),), ALLOWED)
    assert spec.settled(judge, (frozenset({"a"}),)) == ALLOWED
    assert spec.settled(judge, (frozenset({"b"}),)) is None
    assert spec.settled(judge, (None,)) is None
    assert spec.settled(scoped(), (frozenset({"a"}),)) is None


def test_judge_is_not_kept_and_another_one_in_its_place_is_not_taken_for_it() -> None:
    spec, judge = known(PLAIN), scoped()
    assert spec is not None
    spec.settle(judge, (), ALLOWED)
    (found,) = spec._settled.values()
    place = id(judge)
    del judge
    gc.collect()
    assert found.judge() is None
    other = scoped()
    spec._settled = {id(other): spec._settled[place]}
    assert spec.settled(other, ()) is None


def test_what_8_judges_say_is_kept() -> None:
    spec = known(PLAIN)
    assert spec is not None
    judges = [scoped() for _ in range(9)]
    for judge in judges[:8]:
        spec.settle(judge, (), ALLOWED)
    assert [spec.settled(judge, ()) for judge in judges] == [ALLOWED] * 8 + [None]
    spec.settle(judges[8], (), ALLOWED)
    assert [spec.settled(judge, ()) for judge in judges] == [None] * 8 + [ALLOWED]


def settled(judge: Any, names: Any = GPU, **options: Any) -> bool:
    """Whether the policy's ruling on a claim is kept, after it was asked for four times."""
    manifest = make_claim([make_toleration(key="settling")], meta=make_meta("c", namespace="ml"))
    context = make_context(judge=judge, names=KnownNames({}, names), **options)
    request = make_admission_request(manifest)
    first = validate(request, context)
    for _ in range(3):
        assert validate(request, context) == first
    scope = Scope(Requester(request.username, request.groups), "ml", None)
    assert request.known is not None
    drivers = tuple(map(context.names.drivers, request.known.classes))
    return request.known.settled(judge.scoped(scope, context.now), drivers) is not None


@table(
    "entry",
    {
        "a refusal": make_entry("refused", "deny"),
        "a note": make_entry("noted", "audit"),
        "an expression": make_entry("asks", "deny", {"when": "claim.name == 'other'"}),
        "an expression about requests": make_entry(
            "asks", "deny", {"when": "claim.name == 'other'"}, subject="request"
        ),
        "a note about requests": make_entry("noted", "audit", subject="request"),
    },
)
def test_ruling_that_says_something_or_asks_an_expression_is_not_kept(entry: Any) -> None:
    assert not settled(judge_of(entry))


def test_other_drivers_behind_a_class_are_judged_anew() -> None:
    judge = judge_of(make_entry("no-nics", "deny", {"drivers": ["nic.example.com"]}))
    assert settled(judge)
    assert not settled(judge, NIC)
    assert settled(judge)


class Flipping(KnownNames):
    """A class that selects other drivers after it was asked for once, as a cache that is followed may say."""

    asked = 0

    def drivers(self, device_class: str) -> frozenset[str] | None:
        self.asked += 1
        return (GPU if self.asked == 1 else NIC)[device_class]


def test_ruling_is_kept_for_the_drivers_that_were_judged() -> None:
    judge = judge_of(make_entry("no-gpus", "deny", {"drivers": ["gpu.example.com"]}))
    request = make_admission_request(make_claim([make_toleration(key="flipping")]))
    behind_nic, behind_gpu = (make_context(judge=judge, names=KnownNames({}, names)) for names in (NIC, GPU))
    for _ in range(2):
        assert validate(request, behind_nic).allowed
    request.known._settled.clear()  # type: ignore[union-attr]  # or the first look would be enough
    assert validate(request, make_context(judge=judge, names=Flipping())).allowed
    assert not validate(request, behind_gpu).allowed


@pytest.mark.parametrize("make", [make_claim, make_template])
def test_name_of_an_object_is_judged_though_its_spec_is_known(make: Any) -> None:
    for name, allowed in (("good", True), ("Bad_Name", False), ("good", True)):
        manifest = make([make_toleration()], meta=make_meta(name, namespace="ml"))
        assert validate(make_admission_request(manifest), make_context()).allowed is allowed
