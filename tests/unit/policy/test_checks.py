from __future__ import annotations

from typing import Any

import pytest

from tests.tables import table
from tests.unit.policy.documents import errors_in, make_defaults, make_entry, make_exception, make_window, policy_of

# The documentation and earlier policies rely on these numbers, so they are written out.
MAX_EXPRESSIONS = 100

LABEL = {"namespaces": {"labels": {"tier": "x"}}}
TRUST = (
    "may only rely on labels that namespace admins cannot set; if that holds for this one, "
    'add "tier" to trustedNamespaceLabels'
)
NO_EXECUTE_ONLY = "only NoExecute is tolerated for a time, and effects leaves it out"
NO_LABELS = (
    "compilation failed: unknown field namespace.labels; known are name "
    "(rules that allow may only use trusted labels: use match.namespaces.labels)"
)
NEEDS_VALUES = "Required value: must have an entry for operator In"
ALLOWS = "the rule allows; exceptions are to rules that deny, warn or audit"
NO_TIME = 'must be a time like "2026-01-31T12:00:00Z" (RFC 3339)'
EXISTS = 'must be "Exists" when key is empty'
FIELDS = "namespaces, priority, podLabels and deviceClasses"
WHOM = "requesters and taints"
RULES = [make_entry("a"), make_entry("b", "allow"), make_entry("whole", subject="request")]
TAINT_RULES = [make_entry("t", match={"evict": True})]


@table(
    "fields, errors",
    {
        "rules and taint rules share their names": (
            {"rules": [make_entry("a"), make_entry("a")], "taintRules": [make_entry("a", "allow")]},
            ['rules[1].name: Duplicate value: "a"', 'taintRules[0].name: Duplicate value: "a"'],
        ),
        "the default's name is taken": (
            {"rules": [make_entry("default")]},
            ['rules[0].name: Invalid value: "default": is taken: it stands for the document\'s default'],
        ),
        "exceptions of one name": (
            {"default": "deny", "exceptions": [make_exception(), make_exception()]},
            ['exceptions[1].name: Duplicate value: "excused"'],
        ),
        "default tolerations of one name": (
            {"defaultTolerations": [make_defaults(), make_defaults()]},
            ['defaultTolerations[1].name: Duplicate value: "added"'],
        ),
        "above in a rule that allows": (
            {"rules": [make_entry(action="allow", match={"tolerations": {"seconds": {"above": 1}}})]},
            ["rules[0].match.tolerations.seconds.above: Forbidden: a rule with action allow takes atMost"],
        ),
        "atMost in a rule that does not": (
            {"rules": [make_entry(action="warn", match={"tolerations": {"seconds": {"atMost": 0}}})]},
            ["rules[0].match.tolerations.seconds.atMost: Forbidden: a rule with action warn takes above"],
        ),
        "seconds of another effect": (
            {"rules": [make_entry(match={"tolerations": {"effects": ["NoSchedule"], "seconds": {"above": 1}}})]},
            [f"rules[0].match.tolerations.seconds: Forbidden: {NO_EXECUTE_ONLY}"],
        ),
        "tolerations of a request rule": (
            {"rules": [make_entry(subject="request", match={"tolerations": {"keys": ["k"]}})]},
            ['rules[0].match.tolerations: Forbidden: a rule with subject "request" is not evaluated on tolerations'],
        ),
        "a label that namespace admins can set": (
            {"rules": [make_entry(action="allow", match=LABEL)]},
            [f"rules[0].match.namespaces.labels[tier]: Forbidden: a rule with action allow {TRUST}"],
        ),
        "likewise in an exception": (
            {
                "default": "deny",
                "exceptions": [
                    make_exception(match={"namespaces": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}})
                ],
            },
            [f"exceptions[0].match.namespaces.matchExpressions[0].key: Forbidden: an exception {TRUST}"],
        ),
        "likewise in an expression": (
            {"rules": [make_entry(action="allow", match={"when": 'namespace.labels.tier == "x"'})]},
            [f'rules[0].match.when: Invalid value: "namespace.labels.tier == \\"x\\"": {NO_LABELS}'],
        ),
        "rules that refuse may look at any label": ({"rules": [make_entry(match=LABEL)]}, []),
        "a label that is trusted": (
            {"trustedNamespaceLabels": ["tier"], "rules": [make_entry(action="allow", match=LABEL)]},
            [],
        ),
        "values that the operator does not take": (
            {
                "rules": [
                    make_entry(
                        match={
                            "namespaces": {
                                "matchExpressions": [
                                    {"key": "a", "operator": "In"},
                                    {"key": "a", "operator": "Exists", "values": ["x"]},
                                ]
                            }
                        }
                    )
                ]
            },
            [
                f"rules[0].match.namespaces.matchExpressions[0].values: {NEEDS_VALUES}",
                "rules[0].match.namespaces.matchExpressions[1].values: Forbidden: must be empty for operator Exists",
            ],
        ),
        "rules that cannot be lifted": (
            {"rules": RULES, "exceptions": [make_exception(rules=["a", "whol", "b"])]},
            [
                'exceptions[0].rules[1]: Invalid value: "whol": there is no such rule, did you mean "whole"?',
                f'exceptions[0].rules[2]: Invalid value: "b": {ALLOWS}',
            ],
        ),
        "fields that one of the rules is not asked about": (
            {
                "rules": RULES,
                "taintRules": TAINT_RULES,
                "exceptions": [
                    make_exception("one", ["a"], match={"pools": ["p"]}),
                    make_exception("two", ["whole"], match={"tolerations": {"keys": ["k"]}}),
                    make_exception("three", ["a", "t"], match={"namespaces": {"names": ["n"]}, "evict": True}),
                    make_exception("four", ["a", "whole"], match={"adminAccess": True, "drivers": ["d"]}),
                ],
            },
            [
                'exceptions[0].match.pools: Forbidden: does not fit rule "a", which looks at tolerations',
                'exceptions[1].match.tolerations: Forbidden: does not fit rule "whole", which looks at requests',
                'exceptions[2].match.namespaces: Forbidden: does not fit rule "t", which looks at taints',
                'exceptions[2].match.evict: Forbidden: does not fit rule "a", which looks at tolerations',
            ],
        ),
        "a rule that is not there may look at anything": (
            {
                "exceptions": [
                    make_exception(
                        rules=["nope"],
                        match={
                            "namespaces": {"names": ["n"]},
                            "deviceClasses": ["c"],
                            "adminAccess": True,
                            "tolerations": {"keys": ["k"]},
                            "pools": ["p"],
                            "taints": {"keys": ["k"]},
                            "evict": True,
                        },
                    )
                ]
            },
            ['exceptions[0].rules[0]: Invalid value: "nope": there is no such rule'],
        ),
        "an exception that ends before it begins": (
            {"default": "deny", "exceptions": [make_exception(notBefore="2026-09-01T00:00:00Z")]},
            ['exceptions[0].notBefore: Invalid value: "2026-09-01T00:00:00Z": must be before expiresAt'],
        ),
        "a time that is none": (
            {"default": "deny", "exceptions": [make_exception(expiresAt="tomorrow")]},
            [f'exceptions[0].expiresAt: Invalid value: "tomorrow": {NO_TIME}'],
        ),
        "tolerations that a server would refuse": (
            {
                "defaultTolerations": [
                    make_defaults(operator="Exists", value="v"),
                    make_defaults("b", effect="NoExecute"),
                ]
            },
            [
                'defaultTolerations[0].tolerations[0].value: Invalid value: "v": must be empty for operator `Exists`',
                f'defaultTolerations[1].tolerations[0].operator: Invalid value: "Equal": {EXISTS}',
            ],
        ),
        "impact": (
            {"impact": {"limits": [{"pods": 1}, {"taints": {"keys": ["k"]}}], "window": "9999h"}},
            [
                'impact.window: Invalid value: "9999h": must be at most 8784h (366 days)',
                f"impact.limits[0]: Forbidden: only the last entry may be without {WHOM}: it matches everything",
                f"impact.limits[1]: Forbidden: the last entry must be without {WHOM}: it is for all others",
            ],
        ),
        "eviction": (
            {"eviction": [{"priority": {"atMost": 0}, "perOwnerUnavailable": "0%"}]},
            [
                'eviction[0].perOwnerUnavailable: Invalid value: "0%": must be greater than 0%',
                f"eviction[0]: Forbidden: the last entry must be without {FIELDS}: it is for all others",
            ],
        ),
        "labels of pods": (
            {"eviction": [{"podLabels": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, {}]},
            [f"eviction[0].podLabels.matchExpressions[0].values: {NEEDS_VALUES}"],
        ),
        "windows of no hour and no zone": (
            {
                "eviction": [
                    {"priority": {"atMost": 0}, "windows": [make_window()]},
                    {"windows": [make_window(), make_window(schedule="0 25 * * *", zone="Europe/Bonn")]},
                ]
            },
            [
                'eviction[1].windows[1].schedule: Invalid value: "0 25 * * *": bad hour',
                'eviction[1].windows[1].zone: Invalid value: "Europe/Bonn": is not in the time zone database',
            ],
        ),
        "a window that never opens": (
            {"eviction": [{"windows": [make_window(schedule="0 0 30 2 *")]}]},
            ['eviction[0].windows[0].schedule: Invalid value: "0 0 30 2 *": never fires'],
        ),
        "windows too short and too long": (
            {"eviction": [{"windows": [make_window(duration=each) for each in ("59s", "1m", "168h", "168h1s")]}]},
            [
                f'eviction[0].windows[{number}].duration: Invalid value: "{text}": must be at least 1m and at most 168h'
                for number, text in ((0, "59s"), (3, "168h1s"))
            ],
        ),
        "gangs match nothing, labels do": (
            {"eviction": [{"gangLabels": ["a"], "gang": "owner"}, {"podLabels": {"labels": {"a": "b"}}}]},
            [
                f"eviction[0]: Forbidden: only the last entry may be without {FIELDS}: it matches everything",
                f"eviction[1]: Forbidden: the last entry must be without {FIELDS}: it is for all others",
            ],
        ),
    },
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], errors: list[str]) -> None:
    assert errors_in(**fields) == errors


def test_longest_duration_is_that_of_a_leap_year() -> None:
    assert errors_in(impact={"limits": [{"pods": 1}], "window": "8784h"}) == []
    users = {"requesters": {"users": ["u"]}}
    for entry in ({"soften": "over"}, {"soften": "always", "action": "deny"}):
        assert errors_in(impact={"limits": [{**users, "action": "soften", "soften": "always"}, entry]}) == [
            "impact.limits[1].soften: Forbidden: is only for entries with action: soften"
        ]
    assert errors_in(impact={"limits": [{"pods": 1}], "window": "8784h1s"}) == [
        'impact.window: Invalid value: "8784h1s": must be at most 8784h (366 days)'
    ]


@table(
    "place, source, faults",
    {
        "a toleration": ("rules", "toleration.key == 'x'", 0),
        "a toleration, of a request": ("request", "toleration.key == 'x'", 1),
        "a request": ("request", "request.count > 1", 0),
        "a taint": ("taintRules", "taint.key == 'x'", 0),
        "a request, of a taint": ("taintRules", "request.count > 1", 1),
        "a toleration, before there is one": ("defaultTolerations", "toleration.key == 'x'", 1),
        "a toleration, of an exception": ("exceptions", "toleration.key == 'x'", 0),
        "a toleration, of an exception to request rules too": ("mixed", "toleration.key == 'x'", 1),
        "a request, of an exception to rules of both sorts": ("mixed", "request.count > 1", 0),
    },
)
def test_expressions_have_the_variables_of_their_walk(place: str, source: str, faults: int) -> None:
    match = {"when": source}
    fields: dict[str, Any] = {
        "rules": {"rules": [make_entry(match=match)]},
        "request": {"rules": [make_entry(match=match, subject="request")]},
        "taintRules": {"taintRules": [make_entry(match=match)]},
        "defaultTolerations": {"defaultTolerations": [make_defaults() | {"match": match}]},
        "exceptions": {"rules": RULES, "exceptions": [make_exception(rules=["a"], match=match)]},
        "mixed": {"rules": RULES, "exceptions": [make_exception(rules=["a", "whole"], match=match)]},
    }[place]
    errors = errors_in(**fields)
    assert len(errors) == faults
    assert all(".match.when: Invalid value" in error for error in errors)


def test_expressions_are_counted() -> None:
    rules = [make_entry(f"r{number}", match={"when": "request.count > 1"}) for number in range(MAX_EXPRESSIONS + 1)]
    assert errors_in(rules=rules) == ["Forbidden: must have at most 100 fields `when`, and has 101"]
    assert all(rule.match.when is not None for rule in policy_of(rules=rules[:-1]).rules)


@table(
    "name, suggested",
    {
        "three letters fewer": ("wait-for-maintena", True),
        "four letters fewer": ("wait-for-mainten", False),
        "three letters more": ("wait-for-maintenance-12", True),
        "four letters more": ("wait-for-maintenance-123", False),
        "another first letter": ("mait-for-maintenance", False),
        "a name of about the same length": ("wild-fox-wandering", False),
    },
)
def test_rule_of_a_similar_name_is_suggested(name: str, *, suggested: bool) -> None:
    (error,) = errors_in(rules=[make_entry("wait-for-maintenance")], exceptions=[make_exception(rules=[name])])
    assert error == (
        f'exceptions[0].rules[0]: Invalid value: "{name}": there is no such rule'
        + (', did you mean "wait-for-maintenance"?' if suggested else "")
    )


@pytest.mark.parametrize(("before", "suggested"), [(99, True), (100, False)])
def test_suggestion_is_looked_for_among_100_rules(before: int, *, suggested: bool) -> None:
    rules = [make_entry(f"x{number:013}") for number in range(before)] + [make_entry("xylophone-rule")]
    (error,) = errors_in(rules=rules, exceptions=[make_exception(rules=["xylophone-rulf"])])
    assert error.endswith('did you mean "xylophone-rule"?') is suggested
