"""Claims with more tolerations than the API documents, in the shapes that cost most; tests and a benchmark use them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tests.builders import encoded, make_claim, make_context, make_request, make_review
from tests.unit.policy.documents import make_entry, policy_of
from webhook.admission.chain import mutate, validate
from webhook.admission.decision import encode_response
from webhook.admission.review import decode_review

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.admission.decision import Decision
    from webhook.admission.review import AdmissionRequest
    from webhook.policy.decide import Judge
    from webhook.policy.model import Policy

LARGEST: Final = 28_160
"""Tolerations of a claim of about 2 MB."""
RULES: Final = [
    make_entry(f"team-{number}", "allow", {"tolerations": {"keys": [f"maint{number}.example.com/*"]}})
    for number in range(999)
]
_REQUESTS, _ALTERNATIVES = 32, 8


def many_lists(tolerations: int) -> list[Any]:
    """Requests with 256 lists."""
    length = tolerations // (_REQUESTS * _ALTERNATIVES)
    return [
        {
            "name": f"q{at}",
            "firstAvailable": [
                {
                    "name": f"s{index}",
                    "deviceClassName": f"c{at}-{index}",
                    "tolerations": [_exists(f"d{at}x{index}x{number}.example.com/a") for number in range(length)],
                }
                for index in range(_ALTERNATIVES)
            ],
        }
        for at in range(_REQUESTS)
    ]


def one_list(tolerations: int) -> list[Any]:
    """One request with all of them."""
    return [make_request(tolerations=[_exists(f"d{number}.example.com/a") for number in range(tolerations)])]


def without_keys(tolerations: int) -> list[Any]:
    """Values that differ and no keys: each is an error, and any rule on keys may be about it."""
    length = tolerations // _REQUESTS
    return [
        make_request(f"q{at}", [{"operator": "Equal", "value": f"v{at}x{number}"} for number in range(length)])
        for at in range(_REQUESTS)
    ]


SHAPES: Final[Mapping[str, Callable[[int], list[Any]]]] = {
    "256 lists": many_lists,
    "one list": one_list,
    "values that differ and no keys": without_keys,
}


def _exists(key: str) -> dict[str, Any]:
    return {"key": key, "operator": "Exists", "effect": "NoSchedule"}


@cache
def policy(documented: str, rules: int = len(RULES)) -> Policy:
    """A policy that refuses what no rule allows; its rules, the first of RULES, are about none of these tolerations."""
    return policy_of(rules=RULES[:rules], documentedRules=documented, default="deny")


def reviewed(body: bytes, judge: Judge) -> list[Decision]:
    """What both passes decide, from the bytes that come to the bytes that go."""
    return decided(decode_review(body), judge)


def decided(request: AdmissionRequest, judge: Judge) -> list[Decision]:
    """The same for a review that is decoded, which costs more the larger it is."""
    context = make_context(judge=judge)
    decisions = [decide(request, context) for decide in (validate, mutate)]
    for decision in decisions:
        encode_response(request, decision)
    return decisions


def body_of(requests: list[Any]) -> bytes:
    """A review of a claim with these requests."""
    return encoded(make_review(make_claim(requests=requests), user="mallory"))
