"""Claims and templates whose spec is known by its text are judged like those that are read whole."""

from __future__ import annotations

import copy
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import json, structs

from tests.builders import encoded, make_context, make_meta, make_review
from tests.properties.policies import FACTS, TIMES, manifest_of, policies, times, tolerations
from tests.properties.strategies import NEARLY_RIGHT, RIGHT, mutated_bodies
from webhook.admission import review
from webhook.admission.chain import mutate, validate
from webhook.admission.known_specs import KNOWN
from webhook.admission.review import BadReview, decode_review
from webhook.policy.decide import Judge
from webhook.policy.match import KnownNames
from webhook.validation.releases import RELEASES

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.admission.context import AdmissionContext
    from webhook.admission.review import AdmissionRequest
    from webhook.api.taints import DeviceToleration
    from webhook.policy.model import Policy

_USERS = ("jane", "system:serviceaccount:ci:runner", "system:serviceaccount:kube-system:resource-claim-controller")
_SHAPES = st.one_of(
    RIGHT["claim"],
    RIGHT["template"],
    *[made for name, made in NEARLY_RIGHT.items() if name.startswith("ResourceClaim")],
)
_NAMES = (
    KnownNames({name: facts.labels for name, facts in FACTS.items()}, {"gpu": frozenset({"gpu.example.com"})}),
    KnownNames({}, {"gpu": frozenset({"nic.example.com"}), "nic": None}),
)


def read_whole(body: bytes) -> AdmissionRequest:
    with patch.object(review, "_decode_claim_review", lambda _body: None):
        return decode_review(body)


def check(body: bytes, *contexts: AdmissionContext) -> None:
    """The same objects and decisions, each context in turn and again, so that what is kept of one meets the other."""
    try:
        whole = read_whole(body)
    except BadReview:
        return
    assert whole.known is None
    request = decode_review(body)
    assert structs.replace(request, known=None, old_known=None) == whole
    expected = [(validate(whole, context), mutate(whole, context)) for context in contexts]
    for _ in range(3):
        again = decode_review(body)
        assert [(validate(again, context), mutate(again, context)) for context in contexts] == expected
    assert decode_review(body).object == whole.object, "what is shared was changed"


@st.composite
def _changes(draw: st.DrawFn) -> tuple[Any, Any]:
    """A new object, and the one that it replaces, or None."""
    new, old = draw(_SHAPES), draw(st.one_of(st.none(), _SHAPES))
    if old is None or old["kind"] != new["kind"]:
        return new, draw(st.sampled_from([None, new]))
    return new, old | {"apiVersion": new["apiVersion"]}


@given(_changes(), st.sampled_from(_USERS), st.sampled_from([None, "status"]))
def test_review_whose_spec_is_known_is_judged_like_one_that_is_read_whole_in_every_release(
    change: tuple[Any, Any], user: str, sub_resource: str | None
) -> None:
    body = encoded(make_review(*change, user=user, sub_resource=sub_resource))
    releases = [make_context(release=each) for each in RELEASES.values()]
    check(body, *releases, make_context(authors_unproved="the policy is gone"))


@given(
    st.lists(policies, min_size=2, max_size=3),
    st.lists(tolerations, max_size=4),
    RIGHT["claim"],
    times,
    st.sampled_from(_USERS),
)
def test_policies_say_about_a_known_spec_what_they_say_about_one_that_is_read_whole(
    given_policies: list[Policy], listed: list[DeviceToleration], manifest: Any, now: datetime, user: str
) -> None:
    manifest = copy.deepcopy(manifest) | {"metadata": make_meta("training", namespace="train-a")}
    request = manifest["spec"]["devices"]["requests"][0]
    asked = request.get("exactly") or (request.get("firstAvailable") or [request])[0]
    asked["tolerations"] = [manifest_of(each) for each in listed]
    judges = [Judge(each) for each in given_policies]
    contexts = [
        make_context(judge=judge, candidate=candidate, names=names, now=moment)
        for judge in judges
        for candidate, names, moment in (
            (None, _NAMES[0], now),
            (None, _NAMES[1], now),
            (None, _NAMES[0], TIMES[-1]),
            (judges[0], _NAMES[0], now),
        )
    ]
    check(encoded(make_review(manifest, user=user, groups=["ops"])), *contexts)


# No shrinking: a smaller seed is no simpler body.
@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.one_of(RIGHT["claim"], RIGHT["template"]), st.booleans(), st.integers(0, 2**32))
def test_spoilt_review_is_judged_like_one_that_is_read_whole(manifest: Any, updated: bool, seed: int) -> None:  # noqa: FBT001 -- drawn
    reviewed = make_review(manifest, manifest) if updated else make_review(manifest)
    for body in mutated_bodies(reviewed, Random(seed))[:20]:
        check(body, make_context())


# A number that no server can write, text that is no UTF-8, and what is read with more memory than others.
_SPOILT = st.sampled_from(
    (b"1e999", b"9" * 5000, b'"\xff"', b'"\\ud800"', b"[" * 500 + b"]" * 500, b"[]", b"{}", b"null", b"1", b'"x"')
)
_PLACES = st.sampled_from(("metadata", "spec", "status", "devices", "requests", "tolerations", "parameters", "other"))


@given(st.one_of(RIGHT["claim"], RIGHT["template"]), _SPOILT, _PLACES)
def test_claim_with_a_strange_value_is_judged_like_one_that_is_read_whole(
    manifest: Any, strange: bytes, place: str
) -> None:
    text = json.encode(_with(manifest, place)).replace(b'"?strange?"', strange)
    body = encoded(make_review(manifest)).replace(json.encode(manifest), text)
    check(body, make_context())


def _with(manifest: Any, place: str) -> Any:
    changed = copy.deepcopy(manifest)
    if place in ("metadata", "spec", "status", "other"):
        return changed | {place: "?strange?"}
    spec = changed["spec"].get("spec", changed["spec"])
    if place == "devices":
        spec["devices"] = "?strange?"
    elif place == "tolerations":
        request = spec["devices"]["requests"][0]
        (request.get("exactly") or (request.get("firstAvailable") or [request])[0])["tolerations"] = ["?strange?"]
    else:
        spec["devices"][place] = "?strange?"
    return changed


@given(st.one_of(RIGHT["claim"], RIGHT["template"]))
def test_right_spec_is_known(manifest: Any) -> None:
    """Or the laws above would compare nothing."""
    text = json.encode(manifest["spec"])
    assert (decode_review(encoded(make_review(manifest))).known is None) is (len(text) > 4096)
    assert set(KNOWN) == {"resourceclaims", "resourceclaimtemplates"}
