"""Policy documents as people might write them: nearly all load, and every field turns up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.unit.policy.documents import make_document

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    Json = dict[str, Any]


def _given(**fields: SearchStrategy[Any]) -> SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=fields)


def _lists(*values: Any) -> SearchStrategy[list[Any]]:
    return st.sampled_from([[], *([value] for value in values), list(values)])


expressions = st.sampled_from(
    [
        "request.count <= 4",
        "request.count / (request.count - 1) == 2",
        "request.allocationMode == 'All' || request.adminAccess || request.alternative",
        "claim.labels['app'] == 'bert'",
        "claim.annotations.exists(key, key.startsWith('devicetaint.io/'))",
        "has(claim.labels.app) && claim.labels.app.matches('^a+$')",
        "claim.template || claim.generated || claim.generateName != ''",
        "namespace.name == claim.namespace",
        "requester.groups.exists(group, group == 'ops')",
        "requester.serviceAccount != '' && requester.username.contains(':')",
        "drivers.all(driver, driver.endsWith('.example.com'))",
        "request.count / size(request.name) == 1",
        "true",
    ]
)
toleration_expressions = st.one_of(
    expressions,
    st.sampled_from(
        ["toleration.tolerationSeconds > 60", "toleration.key == '' || toleration.operator == 'Exists'"],
    ),
)
taint_expressions = st.sampled_from(
    [
        "rule.driver == 'gpu.example.com'",
        "rule.annotations['devicetaint.io/owner'] == requester.username",
        "taint.timeAdded.startsWith('2026') && rule.evict",
        "has(rule.device) && rule.device != rule.pool",
    ]
)
keys = _lists("*", "a", "gpu.example.com/*")
effects = _lists("None", "NoSchedule", "NoExecute")
values = _lists("", "v", "*")
requesters = _given(
    users=_lists("jane@*", "system:*"), groups=_lists("ops", "system:*"), serviceAccounts=_lists("ci/*", "*/*")
)
common: dict[str, SearchStrategy[Any]] = {"requesters": requesters, "drivers": _lists("gpu.example.com", "n*")}
requested = {
    **common,
    "namespaces": _given(names=_lists("ml", "m?"), **{"except": _lists("prod-*")}),
    "deviceClasses": _lists("gpu*", "nic"),
    "adminAccess": st.booleans(),
}


@st.composite
def _rules(draw: st.DrawFn) -> Json:
    action = draw(st.sampled_from(["allow", "deny", "warn", "audit"]))
    subject = draw(st.sampled_from(["toleration", "toleration", "request"]))
    match = draw(_given(**requested, when=expressions if subject == "request" else toleration_expressions))
    if subject == "toleration":
        match |= draw(_given(tolerations=_given(keys=keys, values=values, effects=effects)))
        limit = draw(st.sampled_from([None, {"atMost": 60} if action == "allow" else {"above": 60}]))
        if limit:
            match["tolerations"] = {"keys": ["*"], "seconds": limit}
    rule = {"action": action, "subject": subject, "match": match}
    return rule | draw(_given(message=st.sampled_from(["no", "ask {the} %s admins"])))


taint_rules = st.fixed_dictionaries(
    {"action": st.sampled_from(["allow", "deny", "warn", "audit"])},
    optional={
        "match": _given(
            **common,
            pools=_lists("node-*", "node-0"),
            taints=_given(keys=keys, values=values, effects=effects),
            evict=st.booleans(),
            when=taint_expressions,
        )
    },
)
default_tolerations = st.fixed_dictionaries(
    {
        "tolerations": _lists(
            {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "gpu.example.com/xid", "value": "v"},
            {"operator": "Exists", "effect": "NoSchedule"},
            {"key": "b", "operator": "Exists"},
        ).filter(bool)
    },
    optional={"match": _given(**requested, when=expressions)},
)


def _named(entries: list[Json], sort: str) -> list[Json]:
    return [{"name": f"{sort}-{position}", **entry} for position, entry in enumerate(entries)]


@st.composite
def _documents(draw: st.DrawFn) -> Json:
    rules = _named(draw(st.lists(_rules(), max_size=4)), "rule")
    on_taints = _named(draw(st.lists(taint_rules, max_size=2)), "taint-rule")
    names = ["default", *(rule["name"] for rule in rules + on_taints if rule["action"] != "allow")]
    excused = draw(st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True), max_size=2))
    ends = draw(st.sampled_from(["2026-06-01T12:00:00Z", "2026-06-03T00:00:00Z", "2027-01-01T00:00:00Z"]))
    exceptions = [{"rules": rules_of, "expiresAt": ends} for rules_of in excused]
    fields = draw(
        _given(
            mode=st.sampled_from(["enforce", "warn", "off"]),
            documentedRules=st.sampled_from(["enforce", "warn", "off"]),
            generatedClaims=st.sampled_from(["enforce", "warn"]),
            unknownAuthor=st.sampled_from(["allow", "warn", "deny"]),
            default=st.sampled_from(["allow", "deny"]),
            taintRulesOnSlices=st.booleans(),
            bumpSliceTimeAdded=st.booleans(),
        )
    )
    return make_document(
        **fields,
        rules=rules,
        taintRules=on_taints,
        exceptions=_named(exceptions, "exception"),
        defaultTolerations=_named(draw(st.lists(default_tolerations, max_size=3)), "added"),
    )


documents: SearchStrategy[Json] = _documents()
