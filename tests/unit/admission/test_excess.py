"""R3: what an object costs does not depend on how large it is, and what is not looked at is no way past a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import structs

from tests.builders import (
    KEY,
    make_admission_request,
    make_alternatives,
    make_claim,
    make_context,
    make_flat_request,
    make_meta,
    make_request,
    make_result,
    make_status,
    make_template,
    make_toleration,
)
from tests.costs import calls_of
from tests.tables import table
from tests.unit.admission.crowded import LARGEST, RULES, SHAPES, body_of, decided, policy, reviewed
from tests.unit.policy.documents import judge_of, make_entry
from webhook.admission.chain import mutate, validate
from webhook.admission.claim_view import REQUESTED_BY, annotation_of
from webhook.admission.context import Budget, OutOfTime
from webhook.admission.excess import excess_of
from webhook.admission.review import decode_review
from webhook.admission.rulings import NOT_JUDGED
from webhook.policy.decide import Judge
from webhook.policy.match import Requester
from webhook.policy.model import CLAIM_CONTROLLER

if TYPE_CHECKING:
    from webhook.admission.decision import Decision

# The documentation and earlier policies rely on these numbers, so they are written out.
LIST_MAX = 64
OBJECT_MAX = 1024
MAX_FINDINGS = 1000

NO_XID = make_entry("no-xid", "deny", {"tolerations": {"keys": [KEY]}})
FORBIDDEN = make_toleration()


def harmless(count: int, start: int = 0) -> list[Any]:
    return [make_toleration(key=f"x.io/k{number}") for number in range(start, start + count)]


def listed(count: int, *last: Any) -> Any:
    """A claim with one list of so many harmless tolerations, and after them others."""
    return make_claim([*harmless(count), *last])


def spread(requests: int, alternatives: int, tolerations: int, *last: Any) -> Any:
    """A claim with a list in each alternative; the very last list ends in others."""
    lists = [harmless(tolerations, 1000 * at) for at in range(requests * alternatives)]
    lists[-1] = [*lists[-1], *last]
    rows = [lists[at * alternatives : (at + 1) * alternatives] for at in range(requests)]
    return make_claim(requests=[make_alternatives(*row, name=f"r{at}") for at, row in enumerate(rows)])


def judged(manifest: Any, *rules: Any, old: Any = None, user: str = "jane", **fields: Any) -> Decision:
    context = make_context(judge=judge_of(*rules, **{"documentedRules": "off", **fields}))
    return validate(make_admission_request(manifest, old, user=user), context)


def words(decision: Decision) -> list[tuple[str, str | None]]:
    return [(finding.severity.value, finding.rule) for finding in decision.findings]


# --- limits come first --------------------------------------------------------------------------


@table(
    "manifest",
    {
        "seventeen in one list": listed(16, FORBIDDEN),
        "28,000 in one list": listed(28_000, FORBIDDEN),
        "a template": make_template([*harmless(100), FORBIDDEN]),
        "a flat request of v1beta1": make_claim([*harmless(100), FORBIDDEN], version="v1beta1"),
        "v1beta2": make_claim([*harmless(100), FORBIDDEN], version="v1beta2"),
        "an alternative": make_claim(requests=[make_alternatives([], harmless(100))]),
    },
)
def test_list_beyond_the_documented_limit_is_refused_for_that_alone(manifest: Any) -> None:
    decision = judged(manifest, NO_XID, documentedRules="enforce")
    assert decision.code == 422
    assert {error.type.value for error in decision.errors} == {"FieldValueTooMany"}
    assert "must have at most 16 items" in decision.errors[0].detail


def test_each_list_beyond_the_limit_is_named_with_its_true_length() -> None:
    claim = make_claim(
        requests=[make_alternatives(harmless(17), harmless(16), harmless(300)), make_request("x", harmless(900))]
    )
    decision = judged(claim, documentedRules="enforce")
    assert [(error.field, error.bad_value) for error in decision.errors] == [
        ("spec.devices.requests[0].firstAvailable[0].tolerations", 17),
        ("spec.devices.requests[0].firstAvailable[2].tolerations", 300),
        ("spec.devices.requests[1].exactly.tolerations", 900),
    ]


def test_list_of_a_flat_request_is_named_as_it_is_written() -> None:
    """Also where so much of it is cut off that its entries are not looked at."""
    for count in (17, 100):
        decision = judged(make_claim(harmless(count), version="v1beta1"), documentedRules="enforce")
        assert [error.field for error in decision.errors] == ["spec.devices.requests[0].tolerations"]


def test_limit_turned_down_to_a_warning_names_the_true_length_too() -> None:
    decision = judged(listed(300), documentedRules="warn")
    assert decision.allowed
    assert [finding.error.bad_value for finding in decision.findings if not finding.policy] == [300]


def test_object_within_the_documented_limits_is_judged_whole() -> None:
    claim = spread(32, 8, 15, FORBIDDEN)
    for mode in ("enforce", "warn", "off"):
        assert words(judged(claim, NO_XID, documentedRules=mode)) == [("deny", "no-xid")]
    assert judged(spread(32, 8, 16), NO_XID).allowed


# --- what is not judged -------------------------------------------------------------------------

HIDDEN = {
    "the 65th of a list": listed(LIST_MAX, FORBIDDEN),
    "the last of 28,000 in a list": listed(28_000, FORBIDDEN),
    "the last of 28,160 in 256 lists": spread(32, 8, 110, FORBIDDEN),
    "after 1,024 in lists of 32": spread(32, 1, 32, FORBIDDEN),
    "in a request behind very many": make_claim(
        requests=[*(make_request(f"r{at}") for at in range(OBJECT_MAX)), make_request("last", [FORBIDDEN])]
    ),
    "in an alternative behind very many": make_claim(
        requests=[make_alternatives(*[[] for _ in range(OBJECT_MAX)], [FORBIDDEN])]
    ),
    "in a flat request behind very many": make_claim(
        requests=[*(make_flat_request(f"r{at}") for at in range(OBJECT_MAX)), make_flat_request("last", [FORBIDDEN])]
    ),
    "in a template": make_template([*harmless(LIST_MAX), FORBIDDEN]),
    "in v1beta1": make_claim([*harmless(LIST_MAX), FORBIDDEN], version="v1beta1"),
    "in a template of v1beta2": make_template([*harmless(LIST_MAX), FORBIDDEN], version="v1beta2"),
}


@pytest.mark.parametrize("mode", ["warn", "off"])
@pytest.mark.parametrize("manifest", HIDDEN.values(), ids=HIDDEN.keys())
def test_what_is_forbidden_cannot_stand_behind_what_is_not_judged(manifest: Any, mode: str) -> None:
    """R3: with documented rules turned down."""
    decision = judged(manifest, NO_XID, documentedRules=mode)
    assert decision.code == 403
    assert [finding.rule for finding in decision.denials] == [NOT_JUDGED]


def test_request_that_asks_for_nothing_is_kept_behind_as_many_as_are_judged() -> None:
    """So the errors in it are still reported."""
    asking = [make_request(f"r{at}") for at in range(OBJECT_MAX - 1)]
    crowded, empty, last = make_request("crowded", harmless(LIST_MAX + 1)), {"name": "empty"}, make_request("last")
    for requests, kept in (
        ([crowded, *asking, empty], OBJECT_MAX + 1),
        ([crowded, *asking, empty, last], OBJECT_MAX + 1),
        ([crowded, *asking, last, empty], OBJECT_MAX),
    ):
        excess = excess_of(make_claim(requests=requests), of_template=False)
        assert excess is not None
        assert len(excess.kept["spec"]["devices"]["requests"]) == kept


def test_refusal_names_where_the_judging_ended_and_which_rule_may_refuse() -> None:
    [error] = judged(listed(100), NO_XID).errors
    assert str(error) == (
        "spec.devices.requests[0].exactly.tolerations[64]: Forbidden: not judged, like all that follows (36 of 100 "
        "tolerations): of lists longer than 16 at most 64 are, and 1024 in all; rule no-xid may refuse them; "
        "ask for fewer"
    )


def test_default_that_denies_refuses_what_is_not_judged() -> None:
    assert words(
        judged(listed(100), make_entry("all-k", "allow", {"tolerations": {"keys": ["x.io/k*"]}}), default="deny")
    ) == [("deny", NOT_JUDGED)]


@table(
    "rules, expected",
    {
        "no rule at all says nothing": ([], []),
        "no rule denies": ([make_entry("hm", "warn", {"deviceClasses": ["x"]})], [("warn", NOT_JUDGED)]),
        "the deny is for another namespace": (
            [make_entry("hm", "deny", {"namespaces": {"names": ["other"]}})],
            [("warn", NOT_JUDGED)],
        ),
        "an allow decides before any deny": (
            [make_entry("admin", "allow", {"requesters": {"users": ["jane"]}}), NO_XID],
            [("warn", NOT_JUDGED)],
        ),
        "an allow on tolerations does not": (
            [make_entry("keys", "allow", {"tolerations": {"keys": ["*"]}}), NO_XID],
            [("deny", NOT_JUDGED)],
        ),
    },
)
def test_what_is_not_judged_is_refused_where_a_rule_could_refuse_it(rules: Any, expected: Any) -> None:
    assert words(judged(listed(100), *rules)) == expected


def test_policy_about_authors_alone_says_nothing_of_what_is_not_judged() -> None:
    assert words(judged(listed(100), unknownAuthor="deny")) == []


def test_mode_of_the_policy_holds_for_what_is_not_judged() -> None:
    assert words(judged(listed(100), NO_XID, mode="warn")) == [("warn", NOT_JUDGED)]
    assert words(judged(listed(100), NO_XID, mode="off")) == []
    claim = listed(100)
    updated = judged(claim, NO_XID, old=claim)
    assert (words(updated), updated.turned_down) == ([("warn", NOT_JUDGED)], False)


def test_requests_that_are_not_judged_are_refused_where_a_rule_on_requests_could() -> None:
    no_admin = {**make_entry("no-admin", "deny", {"adminAccess": True}), "subject": "request"}
    claim = make_claim(
        requests=[*(make_request(f"r{at}") for at in range(OBJECT_MAX)), make_request("last", adminAccess=True)]
    )
    assert words(judged(claim, no_admin)) == [("deny", NOT_JUDGED)]


# --- authors ------------------------------------------------------------------------------------


def test_template_that_is_not_judged_whole_gets_no_author_and_no_defaults() -> None:
    entry = {"name": "added", "tolerations": [make_toleration()]}
    context = make_context(judge=judge_of(documentedRules="off", defaultTolerations=[entry]))
    assert mutate(make_admission_request(make_template(harmless(100))), context).patch == ()
    assert mutate(make_admission_request(make_template(harmless(LIST_MAX))), context).patch != ()


@pytest.mark.parametrize("word", ["allow", "warn", "deny"])
@pytest.mark.parametrize("author", [Requester("joe"), None], ids=["joe", "nobody"])
def test_claim_of_which_a_part_is_not_judged_is_refused_whoever_its_author_is(
    word: str, author: Requester | None
) -> None:
    """A template that was cut gets no author, and that is no way around rules on authors."""
    claim = listed(LIST_MAX, FORBIDDEN)
    if author is not None:
        annotations = {REQUESTED_BY: annotation_of(author)}
        claim["metadata"] = make_meta("made", namespace="ml", annotations=annotations)
    admins_may = make_entry("admins-may", "allow", {"requesters": {"users": ["admin"]}})
    decision = judged(claim, admins_may, NO_XID, user=CLAIM_CONTROLLER, generatedClaims="enforce", unknownAuthor=word)
    assert decision.code == 403
    assert ("deny", NOT_JUDGED) in words(decision)


# --- everything else ----------------------------------------------------------------------------


def test_changed_end_of_a_large_spec_is_a_change() -> None:
    decision = judged(listed(28_000, FORBIDDEN), old=listed(28_000, make_toleration(key="other")))
    assert [str(error) for error in decision.errors] == ['spec: Invalid value: "": field is immutable']
    assert judged(listed(28_000, FORBIDDEN), old=listed(28_000, FORBIDDEN)).allowed


def test_look_at_files_finds_the_error_behind_what_is_judged() -> None:
    request = make_admission_request(listed(100, make_toleration(key="no key")))
    context = make_context(judge=judge_of(documentedRules="off"))
    assert validate(request, context).allowed
    [error, *_] = validate(request, structs.replace(context, offline=True)).errors
    assert error.field == "spec.devices.requests[0].exactly.tolerations[100].key"


def test_allocation_sent_with_an_object_is_not_read_where_it_is_large() -> None:
    claim = make_claim([], status=make_status(make_result(harmless(20_000))))
    excess = excess_of(claim, of_template=False)
    assert excess is not None
    assert excess.kept == {name: entry for name, entry in claim.items() if name != "status"}
    assert judged(claim, NO_XID).allowed


@pytest.mark.parametrize(
    "manifest",
    [
        make_claim(harmless(16)),
        make_template(harmless(16)),
        make_claim([], status=make_status(make_result(harmless(16)))),
        make_claim(requests=[]),
        make_claim(requests=[None, 5, {"exactly": 5, "firstAvailable": "x"}]),
        {"spec": 5},
        {"spec": {"spec": None, "devices": []}},
        5,
    ],
)
@pytest.mark.parametrize("of_template", [True, False])
def test_object_within_the_limits_has_no_excess(manifest: Any, *, of_template: bool) -> None:
    assert excess_of(manifest, of_template=of_template) is None


@pytest.mark.parametrize(
    ("before", "tolerations"),
    [(None, 17), (5, 17), ({"exactly": 5}, 17), (make_request("fine", harmless(16)), 33)],
    ids=["null", "a number", "without content", "as long as documented"],
)
@pytest.mark.parametrize("of_template", [True, False])
def test_request_behind_one_within_the_limits_is_looked_at(before: Any, tolerations: int, *, of_template: bool) -> None:
    make = make_template if of_template else make_claim
    excess = excess_of(make(requests=[before, make_request("long", harmless(17))]), of_template=of_template)
    assert excess is not None
    assert [(each.position, each.length) for each in excess.crowded] == [(1, 17)]
    assert excess.tolerations == tolerations
    assert (excess.unjudged, excess.requests_unjudged, excess.first_unjudged, excess.cut) == (0, 0, None, False)


def test_status_that_is_cut_off_leaves_no_toleration_unjudged() -> None:
    excess = excess_of(make_claim([], status=make_status(make_result(harmless(17)))), of_template=False)
    assert excess is not None
    assert excess.cut
    assert "status" not in excess.kept
    assert (excess.tolerations, excess.unjudged, excess.requests_unjudged, excess.first_unjudged) == (0, 0, 0, None)


def test_judging_stops_where_time_runs_out_in_the_middle_of_a_list() -> None:
    ticks = iter(range(1_000_000))
    context = make_context(judge=judge_of(NO_XID), budget=Budget(500, lambda: next(ticks)))
    with pytest.raises(OutOfTime, match="policy"):
        validate(make_admission_request(spread(32, 8, 16)), context)


# --- cost ---------------------------------------------------------------------------------------

_CROWDED: Final = 5120
"""The fewest tolerations with which each list of each shape is longer than documented."""
counted: Final = pytest.mark.parametrize(
    "documented", ["warn", *[pytest.param(each, marks=pytest.mark.whole) for each in ("enforce", "off")]]
)
"""Counting calls takes long: `make test` does so in the mode that looks at most."""


def cost(shape: Any, tolerations: int, documented: str, rules: int = len(RULES)) -> int:
    """Calls of functions for both passes. A judge remembers what it has decided, so each time begins with a new one."""
    request, holds = decode_review(body_of(shape(tolerations))), policy(documented, rules)
    return calls_of(lambda judge: decided(request, judge), lambda: Judge(holds))


@pytest.mark.untraced
@counted
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_largest_claim_costs_no_more_than_one_a_fifth_as_large(shape: Any, documented: str) -> None:
    """R3: 28,000 tolerations took seconds. All beyond the first 1,024 are cut off and not looked at."""
    assert cost(shape, LARGEST, documented) <= 1.02 * cost(shape, _CROWDED, documented)


@pytest.mark.untraced
@counted
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_rule_costs_the_same_however_many_tolerations_it_is_not_about(shape: Any, documented: str) -> None:
    """R3: 1,000 rules and 1,024 tolerations would be a million comparisons, if each were made."""
    few, many = 99, 999
    assert cost(shape, LARGEST, documented, many) - cost(shape, LARGEST, documented, few) <= 20 * (many - few)


@pytest.mark.untraced
@pytest.mark.parametrize("documented", ["enforce", "warn", "off"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_largest_claim_gets_no_more_findings_than_are_looked_for(shape: Any, documented: str) -> None:
    for decision in reviewed(body_of(shape(LARGEST)), Judge(policy(documented))):
        assert len(decision.findings) <= 2 * MAX_FINDINGS


# --- which limit comes first --------------------------------------------------------------------


def crowded_with_a_bad_key() -> Any:
    """More tolerations than are looked at, the first of which has a field error."""
    return make_claim([make_toleration(key="not a key"), *harmless(100)])


def test_field_errors_of_a_crowded_list_are_not_looked_for() -> None:
    assert [error.type.value for error in judged(crowded_with_a_bad_key(), documentedRules="enforce").errors] == [
        "FieldValueTooMany"
    ]


def test_field_errors_are_looked_for_in_a_crowded_claim_that_a_controller_brings() -> None:
    claim = crowded_with_a_bad_key()
    decision = judged(claim, documentedRules="enforce", user=CLAIM_CONTROLLER)
    assert [error.type.value for error in decision.errors] == ["FieldValueInvalid"]
    assert judged(listed(100), documentedRules="enforce", user=CLAIM_CONTROLLER).allowed


def test_tolerations_of_a_request_behind_as_many_as_are_judged_all_count_as_not_judged() -> None:
    requests = [*(make_request(f"r{at}") for at in range(OBJECT_MAX)), make_request("last", harmless(3))]
    excess = excess_of(make_claim(requests=requests), of_template=False)
    assert excess is not None
    assert (excess.tolerations, excess.unjudged, excess.requests_unjudged) == (3, 3, 1)
    assert str(excess.first_unjudged) == f"spec.devices.requests[{OBJECT_MAX}].exactly.tolerations[0]"


def test_more_requests_than_the_reader_takes_are_not_looked_at() -> None:
    requests = [make_request(f"r{at}", harmless(17)) for at in range(4097)]
    looked_at = excess_of(make_claim(requests=requests[:4096]), of_template=False)
    assert looked_at is not None
    assert len(looked_at.crowded) == 4096
    claim = make_claim(requests=requests)
    refused = excess_of(claim, of_template=False)
    assert refused is not None
    assert (refused.kept, refused.crowded, refused.cut) == (claim, (), False)


@table(
    "within, beyond",
    {
        "requests": (
            make_claim(requests=[make_request(f"r{at}", harmless(16)) for at in range(32)]),
            make_claim(requests=[make_request(f"r{at}", harmless(16)) for at in range(33)]),
        ),
        "alternatives": (spread(1, 8, 16), spread(1, 9, 16)),
        "tolerations of an alternative": (spread(2, 2, 16), spread(2, 2, 16, FORBIDDEN)),
        "results": (
            make_claim(status=make_status(*[make_result()] * 32)),
            make_claim(status=make_status(*[make_result()] * 33)),
        ),
        "tolerations of a result": (
            make_claim(status=make_status(make_result(harmless(16)))),
            make_claim(status=make_status(make_result(), make_result(harmless(17)))),
        ),
    },
)
def test_excess_begins_beyond_the_documented_limits(within: Any, beyond: Any) -> None:
    assert excess_of(within, of_template=False) is None
    assert excess_of(beyond, of_template=False) is not None
