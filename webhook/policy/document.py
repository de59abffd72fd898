"""The policy document: JSON in, a policy out, or every mistake at its path.

Neither files nor ConfigMaps: callers parse the text first (webhook/files/manifests.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from webhook.api.field import JSON, FieldError, Finding, Path, forbidden, outline, type_invalid
from webhook.api.names import OWN_NAMESPACE
from webhook.expressions.values import ListType, MapType, ObjectType, Scalar, VariableType
from webhook.policy.checks import policy_errors
from webhook.policy.lint import warnings
from webhook.policy.lockout import lockouts
from webhook.policy.model import DEFAULT_RULE, Action, InTreeEvictor, Policy, PolicyMode, Rule, Subject, UnknownAuthor
from webhook.policy.parts import MAX_EXPRESSIONS, Builder
from webhook.policy.schema import MAX_ERRORS, PHASE, schema_errors

Check = Callable[[str], None]
Variables = Mapping[str, VariableType]

# The variables that `when` may use; `admission` fills in the values. A fact that is not known is left out, and so is a
# field that is not set: `toleration.tolerationSeconds` (for ever), `taint.timeAdded`, `rule.driver`, `rule.pool`,
# `rule.device`.
_STRINGS: Final = ListType(Scalar.STRING)
_TEXTS: Final = MapType(Scalar.STRING)

_REQUESTER: Final = ObjectType({"username": Scalar.STRING, "groups": _STRINGS, "serviceAccount": Scalar.STRING})

REQUEST_VARIABLES: Final[Variables] = MappingProxyType(
    {
        "request": ObjectType(
            {
                "name": Scalar.STRING,
                "deviceClassName": Scalar.STRING,
                "count": Scalar.INT,
                "allocationMode": Scalar.STRING,
                "adminAccess": Scalar.BOOL,
                "alternative": Scalar.BOOL,
            }
        ),
        "claim": ObjectType(
            {
                "name": Scalar.STRING,
                "generateName": Scalar.STRING,
                "namespace": Scalar.STRING,
                "labels": _TEXTS,
                "annotations": _TEXTS,
                "template": Scalar.BOOL,
                "generated": Scalar.BOOL,
            }
        ),
        "namespace": ObjectType({"name": Scalar.STRING, "labels": _TEXTS}),
        "requester": _REQUESTER,
        "drivers": _STRINGS,
    }
)
"""For rules whose subject is the request."""

TOLERATION_VARIABLES: Final[Variables] = MappingProxyType(
    {
        "toleration": ObjectType(
            {
                "key": Scalar.STRING,
                "operator": Scalar.STRING,
                "value": Scalar.STRING,
                "effect": Scalar.STRING,
                "tolerationSeconds": Scalar.INT,
            }
        ),
        **REQUEST_VARIABLES,
    }
)
"""For rules whose subject is a toleration, and for exceptions to them."""

TAINT_VARIABLES: Final[Variables] = MappingProxyType(
    {
        "taint": ObjectType(
            {"key": Scalar.STRING, "value": Scalar.STRING, "effect": Scalar.STRING, "timeAdded": Scalar.STRING}
        ),
        "rule": ObjectType(
            {
                "name": Scalar.STRING,
                "driver": Scalar.STRING,
                "pool": Scalar.STRING,
                "device": Scalar.STRING,
                "annotations": _TEXTS,
                "evict": Scalar.BOOL,
            }
        ),
        "requester": _REQUESTER,
    }
)
"""For `taintRules`."""

_HASH_LENGTH: Final = 12
_SWITCHES: Final = ("mode", "documentedRules")
"""Fields that may be off."""
_TABLES: Final = MappingProxyType({Subject.TOLERATION: TOLERATION_VARIABLES, Subject.REQUEST: REQUEST_VARIABLES})


class Loaded(NamedTuple):
    """A policy, or why there is none. Warnings are there as soon as the schema has passed."""

    policy: Policy | None
    errors: tuple[FieldError, ...]
    warnings: tuple[Finding, ...] = ()


def load(document: JSON, at: Path, check: Check = lambda _: None, namespace: str = OWN_NAMESPACE) -> Loaded:
    """The policy in a document, or at most a hundred errors; never raises by itself.

    `at` is where the document stands, such as `data[policy.yaml]`. `check` is called with the phase's name between
    entries, and may raise to stop. `namespace` is the one with our own service accounts. Warnings that depend on the
    time are given by `lint.expiring`.
    """
    if not isinstance(document, dict):
        return Loaded(None, (type_invalid(at, outline(document), "an object"),))
    # YAML 1.1 reads `off` without quotes as false. The document means the same either way, so it has the same hash.
    document = document | {name: str(PolicyMode.OFF) for name in _SWITCHES if document.get(name) is False}
    errors = schema_errors(document, at, check)
    if errors:
        return Loaded(None, tuple(errors))
    builder = Builder()
    policy = _policy(document, at, builder, check)
    errors = builder.errors
    if builder.expressions > MAX_EXPRESSIONS:
        errors.append(
            forbidden(at, f"must have at most {MAX_EXPRESSIONS} fields `when`, and has {builder.expressions}")
        )
    errors += islice(policy_errors(policy, at, check), MAX_ERRORS)
    if not errors:
        errors += islice(lockouts(policy, at, check, namespace), MAX_ERRORS)
    if errors:
        return Loaded(None, tuple(errors[:MAX_ERRORS]))
    return Loaded(policy, (), tuple(warnings(policy, at, check, namespace)))


def _policy(document: dict[str, JSON], at: Path, builder: Builder, check: Check) -> Policy:
    rules = []
    for path, raw in _entries(document, at, "rules", check):
        variables = _TABLES[Subject(raw.get("subject", Subject.TOLERATION))]
        rules.append(builder.rule(raw, path, _trusted(variables) if raw["action"] == Action.ALLOW else variables))
    taint_rules = [
        builder.rule(raw, path, TAINT_VARIABLES) for path, raw in _entries(document, at, "taintRules", check)
    ]
    tables = _tables(rules, taint_rules)
    exceptions = [
        builder.exception(raw, path, _table_of_all(raw["rules"], tables))
        for path, raw in _entries(document, at, "exceptions", check)
    ]
    default_tolerations = [
        builder.default_tolerations(raw, path, REQUEST_VARIABLES)
        for path, raw in _entries(document, at, "defaultTolerations", check)
    ]
    built_in = Policy()
    profiles = [builder.eviction_profile(raw, path) for path, raw in _entries(document, at, "eviction", check)]
    return Policy(
        _hash(document),
        PolicyMode(document.get("mode", built_in.mode)),
        PolicyMode(document.get("documentedRules", built_in.documented_rules)),
        document.get("bumpSliceTimeAdded", built_in.bump_slice_time_added),
        InTreeEvictor(document.get("inTreeEvictor", built_in.in_tree_evictor)),
        PolicyMode(document.get("generatedClaims", built_in.generated_claims)),
        UnknownAuthor(document.get("unknownAuthor", built_in.unknown_author)),
        tuple(document.get("trustedNamespaceLabels", built_in.trusted_namespace_labels)),
        tuple(document.get("trustedControllers", built_in.trusted_controllers)),
        Action(document.get("default", built_in.default)),
        tuple(rules),
        tuple(taint_rules),
        document.get("taintRulesOnSlices", built_in.taint_rules_on_slices),
        tuple(exceptions),
        tuple(default_tolerations),
        builder.impact(document.get("impact", {}), at.child("impact")),
        tuple(profiles) or built_in.eviction,
        builder.breaker(document.get("breaker", {}), at.child("breaker")),
        builder.pause(document.get("pause"), at.child("pause")),
        tuple([builder.reaction(raw, path) for path, raw in _entries(document, at, "reactions", check)]),
    )


def _entries(document: dict[str, JSON], at: Path, name: str, check: Check) -> Iterator[tuple[Path, dict[str, JSON]]]:
    path = at.child(name)
    for position, raw in enumerate(document.get(name) or ()):
        check(PHASE)
        yield path.index(position), raw


def _hash(document: dict[str, JSON]) -> str:
    """The document's identity, whatever order and form it was written in."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(canonical).hexdigest()[:_HASH_LENGTH]


# --- variables of `when` ------------------------------------------------------------------------


def _trusted(variables: Variables) -> Variables:
    """Without the labels of the namespace: anyone who can edit those could otherwise grant themselves an allow."""
    namespace = variables.get("namespace")
    if not isinstance(namespace, ObjectType):
        return variables
    fields = {name: field for name, field in namespace.fields.items() if name != "labels"}
    return {**variables, "namespace": ObjectType(fields)}


def _tables(rules: list[Rule], taint_rules: list[Rule]) -> dict[str, Variables]:
    """The variables of each rule's `when`, by the rule's name."""
    tables: dict[str, Variables] = {rule.name: _TABLES[rule.subject] for rule in rules}
    return tables | {rule.name: TAINT_VARIABLES for rule in taint_rules} | {DEFAULT_RULE: TOLERATION_VARIABLES}


def _table_of_all(names: list[str], tables: Mapping[str, Variables]) -> Variables:
    """The variables that all these rules share. Unknown names are reported by `checks`."""
    first, *others = [tables[name] for name in names if name in tables] or [TOLERATION_VARIABLES]
    return _trusted({name: held for name, held in first.items() if all(other.get(name) == held for other in others)})
