"""B3: what is said of a walk is what decides, and the field that is named is the one that matters."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.builders import NOW, make_admission_request, make_claim, make_meta
from tests.properties.documents import documents
from tests.properties.policies import (
    EFFECTS,
    FACTS,
    manifest_of,
    matches,
    namespace_matches,
    policies,
    requester_matches,
    requesters,
    scopes,
    targets,
    times,
    tolerations,
)
from tests.properties.strategies import right
from tests.properties.test_policy_reviews import context_of, lists_of_tolerations, policy_in, users
from tests.unit.policy.documents import on_request
from webhook.admission.chain import explain, validate
from webhook.api.meta import LabelRequirement
from webhook.api.taints import DeviceTaint, DeviceToleration
from webhook.expressions.engine import compile_expression
from webhook.policy.decide import Judge
from webhook.policy.document import TAINT_VARIABLES, TOLERATION_VARIABLES
from webhook.policy.explain import ClaimQuestion, TaintQuestion, considered
from webhook.policy.match import Placement, Scope, Target
from webhook.policy.model import (
    CLAIM_CONTROLLER,
    Action,
    Match,
    NamespaceMatch,
    Policy,
    PolicyException,
    PolicyMode,
    Rule,
    Subject,
    TaintMatch,
    UnknownAuthor,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from hypothesis.strategies import SearchStrategy

    from webhook.admission.context import AdmissionContext
    from webhook.policy.evaluation import RuleHit
    from webhook.policy.explain import Question

claim_questions: SearchStrategy[ClaimQuestion] = st.builds(
    ClaimQuestion, scopes, targets, st.one_of(st.none(), tolerations)
)
taint_questions = st.builds(
    TaintQuestion,
    requesters,
    st.builds(
        Placement,
        st.sampled_from([None, "gpu.example.com", "nic.example.com"]),
        st.sampled_from([None, "node-1", "node-2"]),
        evict=st.booleans(),
    ),
    st.sampled_from([DeviceTaint(*parts) for parts in product(("a/x", "b/x"), ("", "v"), EFFECTS)]),
)
CLAIM_EXPRESSIONS: Final = [
    compile_expression(source, TOLERATION_VARIABLES) for source in ("request.count <= 4", "request.count > 4")
]
TAINT_EXPRESSIONS: Final = [
    compile_expression(source, TAINT_VARIABLES) for source in ("rule.name == 'r'", "rule.driver.startsWith('gpu')")
]
KNOWN: Final[list[Mapping[str, Any]]] = [{}, {"request": {"count": 1}}, {"request": {"count": 8}}]
RULES: Final[list[Mapping[str, Any]]] = [{}, {"rule": {"name": "r"}}, {"rule": {"name": "s", "driver": "gpu.x"}}]
label_requirements = st.builds(
    LabelRequirement, st.just("team"), st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]), st.just(("ml",))
)


@st.composite
def _claim_matches(draw: st.DrawFn, *, allowing: bool, subject: Subject) -> Match:
    """Everything that a match may have."""
    match = draw(matches(allowing=allowing, subject=subject))
    namespaces = draw(st.one_of(st.none(), namespace_matches))
    if namespaces is not None:
        expressions = tuple(draw(st.lists(label_requirements, max_size=1)))
        namespaces = structs.replace(namespaces, expressions=expressions)
    return structs.replace(
        match, namespaces=namespaces, when=draw(st.one_of(st.none(), st.sampled_from(CLAIM_EXPRESSIONS)))
    )


@st.composite
def _taint_rule_matches(draw: st.DrawFn) -> Match:
    return Match(
        requesters=draw(st.one_of(st.none(), requester_matches)),
        drivers=draw(st.sampled_from([(), ("gpu.*",), ("nic.example.com",)])),
        pools=draw(st.sampled_from([(), ("node-1",), ("node-?",)])),
        evict=draw(st.sampled_from([None, True, False])),
        taints=draw(
            st.one_of(
                st.none(),
                st.builds(
                    TaintMatch,
                    st.sampled_from([(), ("a/*",), ("b/x",)]),
                    st.sampled_from([(), ("v",)]),
                    st.sampled_from([(), ("None",), ("NoSchedule",), ("NoExecute", "NoSchedule")]),
                ),
            )
        ),
        when=draw(st.one_of(st.none(), st.sampled_from(TAINT_EXPRESSIONS))),
    )


@st.composite
def _claim_rules(draw: st.DrawFn) -> Rule:
    action, subject = draw(st.sampled_from(Action)), draw(st.sampled_from(Subject))
    match = draw(_claim_matches(allowing=action is Action.ALLOW, subject=subject))
    return Rule("asked-about", action, match, subject)


taint_rules = st.builds(Rule, st.just("asked-about"), st.sampled_from(Action), _taint_rule_matches())


@st.composite
def _taint_policies(draw: st.DrawFn) -> Policy:
    rules = [structs.replace(rule, name=f"r{at}") for at, rule in enumerate(draw(st.lists(taint_rules, max_size=5)))]
    exceptions = []
    if rules:
        names = tuple(draw(st.lists(st.sampled_from([rule.name for rule in rules]), max_size=2, unique=True)))
        exceptions.append(PolicyException("lab", names, draw(times), draw(_taint_rule_matches())))
    return Policy(taint_rules=tuple(rules), exceptions=tuple(exceptions))


def decided(judge: Judge, question: Question, now: datetime, known: Mapping[str, Any]) -> tuple[RuleHit, ...]:
    """What the code that answers reviews comes to."""
    if isinstance(question, TaintQuestion):
        return judge.on_taint(question.requester, question.place, question.taint, now, lambda: known)
    scope, target, toleration = question
    if toleration is None:
        return on_request(judge, scope, target, now, lambda: known)
    return judge.on_toleration(scope, target, toleration, now, lambda: known)


def explained(judge: Judge, question: Question, now: datetime, known: Mapping[str, Any]) -> tuple[RuleHit, ...]:
    told = considered(judge, question, now, lambda: known)
    return tuple(each.hit for each in told if each.hit is not None)


def without(match: Match, fields: Iterable[str]) -> Match:
    """The match less some of its fields, by the names that explanations use."""
    for field in fields:
        group, _, name = field.partition(".")
        name, _, key = name.partition("[")
        match (group, name):
            case ("namespaces", "labels") if match.namespaces is not None:
                labels = tuple(label for label in match.namespaces.labels if label[0] != key.removesuffix("]"))
                match = structs.replace(match, namespaces=structs.replace(match.namespaces, labels=labels))
            case ("namespaces", "matchExpressions") if match.namespaces is not None:
                match = structs.replace(match, namespaces=structs.replace(match.namespaces, expressions=()))
            case ("namespaces", _) if match.namespaces is not None:
                attribute = {"names": "names", "except": "except_names"}[name]
                match = structs.replace(match, namespaces=structs.replace(match.namespaces, **{attribute: ()}))
            case ("tolerations", "seconds") if match.tolerations is not None:
                match = structs.replace(match, tolerations=structs.replace(match.tolerations, above=None, at_most=None))
            case ("tolerations" | "taints", _):
                part: Any = getattr(match, group)
                match = structs.replace(match, **{group: structs.replace(part, **{name: ()})})
            case _:
                empty: Any = {"deviceClasses": ("device_classes", ()), "adminAccess": ("admin_access", None)}
                attribute, nothing = empty.get(group, (group, () if group in {"drivers", "pools"} else None))
                match = structs.replace(match, **{attribute: nothing})
    return match


def holds(rule: Rule, question: Question, known: Mapping[str, Any]) -> bool:
    """Whether a rule that stands alone matches, as the code says that answers reviews."""
    on_taint = isinstance(question, TaintQuestion)
    policy = Policy(taint_rules=(rule,)) if on_taint else Policy(rules=(rule,))
    return any(hit.rule.name == rule.name for hit in decided(Judge(policy), question, NOW, known))


@given(policies, claim_questions, times)
def test_explanation_of_a_claim_has_the_rules_that_decide(
    policy: Policy, question: ClaimQuestion, now: datetime
) -> None:
    judge = Judge(policy)
    assert explained(judge, question, now, {}) == decided(judge, question, now, {})


@given(_taint_policies(), taint_questions, times, st.sampled_from(RULES))
def test_explanation_of_a_taint_has_the_rules_that_decide(
    policy: Policy, question: TaintQuestion, now: datetime, known: Mapping[str, Any]
) -> None:
    judge = Judge(policy)
    assert explained(judge, question, now, known) == decided(judge, question, now, known)


@given(policies, claim_questions, times)
def test_each_rule_is_named_and_those_behind_the_one_that_decides_are_not_reached(
    policy: Policy, question: ClaimQuestion, now: datetime
) -> None:
    told = considered(Judge(policy), question, now, dict)
    subject = Subject.REQUEST if question.toleration is None else Subject.TOLERATION
    names = [rule.name for rule in policy.rules if rule.subject is subject]
    assert [each.rule.name for each in told] == names + (["default"] if subject is Subject.TOLERATION else [])
    deciding = next((at for at, each in enumerate(told) if each.decides), len(told))
    assert [each.reached for each in told] == [at <= deciding for at in range(len(told))]
    for each in told:
        if each.reached:
            assert (each.hit is None) is bool(each.unmet)


def assert_named_fields_matter(rule: Rule, question: Question, known: Mapping[str, Any]) -> None:
    """Without all fields that are named the rule matches; while one of them stands it does not."""
    on_taint = isinstance(question, TaintQuestion)
    judge = Judge(Policy(taint_rules=(rule,)) if on_taint else Policy(rules=(rule,)))
    told = next((each for each in considered(judge, question, NOW, lambda: known) if each.rule.name == rule.name), None)
    if told is None:  # a rule on whole requests is not asked about tolerations, and the other way round
        return
    named = {unmet.field for unmet in told.unmet}
    assert all(unmet.asked and unmet.wanted for unmet in told.unmet)
    assert holds(structs.replace(rule, match=without(rule.match, named)), question, known)
    for field in named:
        left = structs.replace(rule, match=without(rule.match, named - {field}))
        assert not holds(left, question, known), field


@given(_claim_rules(), claim_questions, st.sampled_from(KNOWN))
def test_fields_that_are_named_are_those_that_keep_a_rule_from_matching(
    rule: Rule, question: ClaimQuestion, known: Mapping[str, Any]
) -> None:
    assert_named_fields_matter(rule, question, known)


@given(taint_rules, taint_questions, st.sampled_from(RULES))
def test_fields_that_are_named_are_those_that_keep_a_taint_rule_from_matching(
    rule: Rule, question: TaintQuestion, known: Mapping[str, Any]
) -> None:
    assert_named_fields_matter(rule, question, known)


@given(policies, claim_questions, times)
def test_exception_that_is_passed_over_says_why(policy: Policy, question: ClaimQuestion, now: datetime) -> None:
    for each in considered(Judge(policy), question, now, dict):
        for over in each.passed_over:
            assert over.unmet
            assert each.rule.name in over.exception.rules
            fields = {unmet.field for unmet in over.unmet}
            assert ("expiresAt" in fields or "notBefore" in fields) is not over.exception.active(now)


def test_facts_that_are_not_known_are_named_as_such() -> None:
    rule = Rule("ml", Action.ALLOW, Match(namespaces=NamespaceMatch(labels=(("team", "ml"),))))
    for facts, asked in ((None, "not known"), (FACTS["infer"], "missing")):
        scope = Scope(None, "infer", facts)
        question = ClaimQuestion(
            scope, Target("gpu", None, admin_access=False), DeviceToleration("a/x", "Exists", "", "NoExecute", 30)
        )
        told = considered(Judge(Policy(rules=(rule,))), question, NOW, dict)
        assert str(told[0].unmet[0]) == f'namespaces.labels[team]: {asked}, wanted "ml"'


# --- reviews ------------------------------------------------------------------------------------


def told_of(request: Any, context: AdmissionContext) -> list[tuple[str, Action]]:
    hits = [hit for walk in explain(request, context).walks for hit in walk.hits]
    return [(hit.rule.name if hit.exception is None else hit.exception.name, hit.action) for hit in hits]


@given(documents, right, st.one_of(st.none(), right), users)
def test_explanation_of_a_review_has_the_rules_that_the_decision_has(
    document: Any, new: Any, old: Any, user: tuple[str, list[str]]
) -> None:
    """B3: of every kind, created and updated, by any requester."""
    request = make_admission_request(new, old, user=user[0], groups=user[1])
    context = context_of(policy_in(document))
    assert told_of(request, context) == list(validate(request, context).hits)


@given(
    policies,
    lists_of_tolerations,
    st.sampled_from(UnknownAuthor),
    st.tuples(st.sampled_from(PolicyMode), st.sampled_from([PolicyMode.ENFORCE, PolicyMode.WARN])),
    users,
    times,
)
def test_explanation_of_a_claim_has_the_rules_that_the_decision_has_in_every_mode(
    policy: Policy,
    listed: list[DeviceToleration],
    unknown_author: UnknownAuthor,
    modes: tuple[PolicyMode, PolicyMode],
    user: tuple[str, list[str]],
    now: datetime,
) -> None:
    policy = structs.replace(policy, mode=modes[0], generated_claims=modes[1], unknown_author=unknown_author)
    claim = make_claim([manifest_of(each) for each in listed], meta=make_meta("training", namespace="train-a"))
    request = make_admission_request(claim, user=user[0], groups=user[1])
    context = context_of(policy, now=now)
    decision = validate(request, context)
    assert told_of(request, context) == list(decision.hits)
    refused = any(walk.action is Action.DENY for walk in explain(request, context).walks)
    effective = Judge(policy).claim_mode(generated=user[0] == CLAIM_CONTROLLER, updating=False)
    named = {finding.rule for finding in decision.denials if finding.policy} - {"unknownAuthor", "notJudged"}
    assert bool(named) is (refused and effective is PolicyMode.ENFORCE)
