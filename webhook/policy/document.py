"""The policy document: JSON in, a policy out, or every mistake at its path.

Neither files nor ConfigMaps: callers parse the text first (webhook/files/manifests.py). `Builder` reads what has passed
the schema; how the parts fit together is checked in `checks`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from msgspec import structs

from webhook.api.field import JSON, FieldError, Finding, Path, forbidden, invalid, outline, type_invalid
from webhook.api.meta import LabelRequirement, parse_time
from webhook.api.names import OWN_NAMESPACE
from webhook.api.taints import EQUAL, DeviceToleration
from webhook.expressions.engine import BadExpression, Expression, compile_expression
from webhook.expressions.values import ListType, MapType, ObjectType, Scalar, VariableType
from webhook.policy.checks import policy_errors
from webhook.policy.lint import warnings
from webhook.policy.lockout import lockouts
from webhook.policy.model import (
    ANYTHING,
    DEFAULT_LIMITS,
    DEFAULT_RULE,
    UTC_ZONE,
    Action,
    BreakerSettings,
    DefaultTolerations,
    EvictionProfile,
    EvictionWindow,
    ImpactLimits,
    ImpactSettings,
    InTreeEvictor,
    LabelMatch,
    Match,
    NamespaceMatch,
    Pause,
    Policy,
    PolicyException,
    PolicyMode,
    Reaction,
    RequesterMatch,
    Rule,
    Share,
    Softening,
    Subject,
    TaintMatch,
    TolerationMatch,
    UnknownAuthor,
)
from webhook.policy.schema import MAX_ERRORS, PHASE, schema_errors

Raw = Mapping[str, JSON]
M = TypeVar("M", NamespaceMatch, LabelMatch, RequesterMatch, TaintMatch, TolerationMatch)
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
                **dict.fromkeys(("name", "generateName", "namespace"), Scalar.STRING),
                **dict.fromkeys(("labels", "annotations"), _TEXTS),
                **dict.fromkeys(("template", "generated"), Scalar.BOOL),
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
            {**dict.fromkeys(("key", "operator", "value", "effect"), Scalar.STRING), "tolerationSeconds": Scalar.INT}
        ),
        **REQUEST_VARIABLES,
    }
)
"""For rules whose subject is a toleration, and for exceptions to them."""

TAINT_VARIABLES: Final[Variables] = MappingProxyType(
    {
        "taint": ObjectType(dict.fromkeys(("key", "value", "effect", "timeAdded"), Scalar.STRING)),
        "rule": ObjectType(
            {
                **dict.fromkeys(("name", "driver", "pool", "device"), Scalar.STRING),
                "annotations": _TEXTS,
                "evict": Scalar.BOOL,
            }
        ),
        "requester": _REQUESTER,
    }
)
"""For `taintRules`."""

_TABLES: Final = MappingProxyType({Subject.TOLERATION: TOLERATION_VARIABLES, Subject.REQUEST: REQUEST_VARIABLES})

NO_NAMESPACE: Final = NamespaceMatch(except_names=("*",))
"""No namespace at all: an empty match would be every one."""
MAX_EXPRESSIONS: Final = 100
MAX_DURATION_SECONDS: Final = 366 * 24 * 3600.0
MIN_WINDOW_SECONDS: Final = 60.0
MAX_WINDOW_SECONDS: Final = 7 * 24 * 3600.0
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
"""Replaces a time that could not be parsed. The policy is then rejected."""
_LABELS_HINT: Final = " (rules that allow may only use trusted labels: use match.namespaces.labels)"
_UNITS: Final = MappingProxyType({"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001})
_LIMITED: Final = {
    **{name: name for name in ("pods", "claims", "devices", "namespaces")},
    "pendingPods": "pending_pods",
}
_SOFTEN: Final = "soften"
_DURATION_PART: Final = re.compile(r"([0-9.]+)(h|ms|m|s)")
_HASH_LENGTH: Final = 12
_SWITCHES: Final = ("mode", "documentedRules")
"""Fields that may be off."""


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
        builder.default_tolerations(raw, path) for path, raw in _entries(document, at, "defaultTolerations", check)
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


# --- parts --------------------------------------------------------------------------------------


class Builder:
    """Converts JSON to parts and collects the errors: expressions, times, durations."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self.expressions = 0

    def rule(self, raw: Raw, at: Path, variables: Variables) -> Rule:
        """A rule or taint rule; `variables` are those of its `when`."""
        return Rule(
            raw["name"],
            Action(raw["action"]),
            self.match(raw, at, variables),
            Subject(raw.get("subject", Subject.TOLERATION)),
            raw.get("message", ""),
        )

    def exception(self, raw: Raw, at: Path, variables: Variables) -> PolicyException:
        """Rules that are lifted, and for what."""
        return PolicyException(
            raw["name"],
            tuple(raw["rules"]),
            self._time(raw, at, "expiresAt") or _NEVER,
            self.match(raw, at, variables),
            raw.get("owner", ""),
            raw.get("reason", ""),
            raw.get("ticket", ""),
            self._time(raw, at, "notBefore"),
        )

    def default_tolerations(self, raw: Raw, at: Path) -> DefaultTolerations:
        """Tolerations to add, and to what."""
        texts = (("key", ""), ("operator", EQUAL), ("value", ""), ("effect", ""), ("tolerationSeconds", None))
        tolerations = [DeviceToleration(*[each.get(*text) for text in texts]) for each in raw["tolerations"]]
        return DefaultTolerations(raw["name"], tuple(tolerations), self.match(raw, at, REQUEST_VARIABLES))

    def match(self, raw: Raw, at: Path, variables: Variables) -> Match:
        """The `match` of an entry of any sort. What is given but empty is left out."""
        fields = raw.get("match")
        if not fields:
            return ANYTHING
        return Match(
            namespaces(fields.get("namespaces")),
            requesters(fields.get("requesters")),
            _texts(fields, "deviceClasses"),
            _texts(fields, "drivers"),
            _toleration_match(fields.get("tolerations")),
            fields.get("adminAccess"),
            _texts(fields, "pools"),
            taints(fields.get("taints")),
            fields.get("evict"),
            self._expression(fields, at.child("match", "when"), variables),
        )

    def _expression(self, fields: Raw, at: Path, variables: Variables) -> Expression | None:
        source = fields.get("when")
        if source is None:
            return None
        self.expressions += 1
        if self.expressions > MAX_EXPRESSIONS:
            return None  # reported once, for the whole document
        try:
            return compile_expression(source, variables)
        except BadExpression as error:
            hint = _LABELS_HINT if "namespace.labels" in error.detail else ""
            self.errors.append(invalid(at, source, f"{error.detail}{hint}"))
            return None

    def _time(self, raw: Raw, at: Path, name: str) -> datetime | None:
        text = raw.get(name)
        if text is None:
            return None
        time = parse_time(text)
        if time is None:
            self.errors.append(invalid(at.child(name), text, 'must be a time like "2026-01-31T12:00:00Z" (RFC 3339)'))
        return time

    def impact(self, raw: Raw, at: Path) -> ImpactSettings:
        """The guard's settings; what is left out keeps its default."""
        given: dict[str, JSON] = {}
        if "limits" in raw:
            given["limits"] = tuple(self._limits(entry, at, number) for number, entry in enumerate(raw["limits"]))
        if "protectedNamespaces" in raw:
            given["protected_namespaces"] = namespaces(raw["protectedNamespaces"]) or NO_NAMESPACE
        if "window" in raw:
            given["window_seconds"] = self._seconds(raw, at, "window")
        given["confirmers"] = requesters(raw.get("confirmers"))
        if "tolerance" in raw:
            given["tolerance_percent"] = share(raw["tolerance"]).percent
        if "breakGlassGroups" in raw:
            given["break_glass_groups"] = _texts(raw, "breakGlassGroups")
        if "unknownImpact" in raw:
            given["unknown_impact"] = Action(raw["unknownImpact"])
        given |= _renamed(raw, {"twoStep": "two_step"})
        return structs.replace(ImpactSettings(), **given)

    def _limits(self, raw: Raw, at: Path, number: int) -> ImpactLimits:
        """An entry of limits; a limit that is left out keeps its default, and null is no limit."""
        given: dict[str, JSON] = {field: _limit(raw[name]) for name, field in _LIMITED.items() if name in raw}
        given["confirmable"] = raw.get("confirmable", True)
        softens = raw.get("action") == _SOFTEN
        if softens:
            given["soften"] = Softening(raw.get("soften", Softening.OVER))
        elif "soften" in raw:
            where = at.child("limits").index(number).child("soften")
            self.errors.append(forbidden(where, "is only for entries with action: soften"))
        return structs.replace(
            DEFAULT_LIMITS, requesters=requesters(raw.get("requesters")), taints=taints(raw.get("taints")), **given
        )

    def eviction_profile(self, raw: Raw, at: Path) -> EvictionProfile:
        """A profile; what is left out keeps its default, and null is no limit."""
        given = _renamed(raw, _PROFILE_FIELDS)
        given["namespaces"] = namespaces(raw.get("namespaces"))
        given["device_classes"] = _texts(raw, "deviceClasses")
        given["pod_labels"] = _given(LabelMatch(*_labels(raw.get("podLabels"))))
        given["gang_labels"] = _texts(raw, "gangLabels")
        given["gang_by_owner"] = raw.get("gang") == "owner"
        if "priority" in raw:
            given["priority_at_most"] = raw["priority"]["atMost"]
        if "perOwnerUnavailable" in raw:
            given["per_owner_unavailable"] = self._limit_above_zero(
                raw["perOwnerUnavailable"], at.child("perOwnerUnavailable")
            )
        for name, field in _PROFILE_DURATIONS.items():
            if name in raw:
                given[field] = self._seconds(raw, at, name)
        given["skips"] = raw.get("action") == "skip"
        windows = at.child("windows")
        given["windows"] = tuple(
            [self._window(entry, windows.index(position)) for position, entry in enumerate(raw.get("windows", ()))]
        )
        if "afterDeadline" in raw:
            given["delete_after_deadline"] = raw["afterDeadline"] == "delete"
        if "daemonSets" in raw:
            given["evict_daemon_sets"] = raw["daemonSets"] == "evict"
        return structs.replace(EvictionProfile(), **given)

    def _window(self, raw: Raw, at: Path) -> EvictionWindow:
        seconds = duration_seconds(raw["duration"])
        if not MIN_WINDOW_SECONDS <= seconds <= MAX_WINDOW_SECONDS:
            self.errors.append(invalid(at.child("duration"), raw["duration"], "must be at least 1m and at most 168h"))
        return EvictionWindow(raw["schedule"], seconds, raw.get("zone", UTC_ZONE))

    def breaker(self, raw: Raw, at: Path) -> BreakerSettings:
        """The breaker's settings; what is left out keeps its default."""
        given: dict[str, JSON] = {}
        if "devices" in raw:
            given["devices"] = self._limit_above_zero(raw["devices"], at.child("devices"))
        if "window" in raw:
            given["window_seconds"] = self._seconds(raw, at, "window", zero=False)
        if "calm" in raw:
            given["calm_seconds"] = self._seconds(raw, at, "calm")
        given["acknowledged"] = tuple(
            [
                (entry["driver"], self._time(entry, at.child("acknowledged").index(position), "until") or _NEVER)
                for position, entry in enumerate(raw.get("acknowledged", ()))
            ]
        )
        return structs.replace(BreakerSettings(), **given)

    def pause(self, raw: Raw | None, at: Path) -> Pause | None:
        """The pause of evictions; None without one."""
        return None if raw is None else Pause(self._time(raw, at, "until") or _NEVER, raw.get("why", ""))

    def reaction(self, raw: Raw, at: Path) -> Reaction:
        """A reaction; one without a name has that of the taints it looks for."""
        when, then = raw["when"], raw.get("then", {})
        value = when.get("value")
        given = _renamed(then, {"effect": "effect", "evict": "evict"})
        given |= _renamed(when, {"effect": "signal_effect"})
        if "for" in when:
            given["for_seconds"] = self._seconds(when, at.child("when"), "for")
        if "maxDevices" in raw:
            given["max_devices"] = self._limit_above_zero(raw["maxDevices"], at.child("maxDevices"))
        name = raw.get("name", when["key"] if value is None else f"{when['key']}={value}")
        return Reaction(name, when["driver"], when["key"], value, **given)

    def _limit_above_zero(self, value: int | str | None, at: Path) -> int | Share | None:
        limit = _limit(value)
        if isinstance(limit, Share) and not limit.percent:
            self.errors.append(invalid(at, value, "must be greater than 0%"))
        return limit

    def _seconds(self, raw: Raw, at: Path, name: str, *, zero: bool = True) -> float:
        seconds = duration_seconds(raw[name])
        if seconds > MAX_DURATION_SECONDS:
            self.errors.append(invalid(at.child(name), raw[name], "must be at most 8784h (366 days)"))
        if not zero and not seconds:
            self.errors.append(invalid(at.child(name), raw[name], "must be greater than 0s"))
        return seconds


_PROFILE_FIELDS: Final = {
    "rate": "rate",
    "burst": "burst",
    "maxPerMinute": "max_per_minute",
    "perNamespace": "per_namespace",
    "overall": "overall",
    "gracePeriodSeconds": "grace_period_seconds",
}
_PROFILE_DURATIONS: Final = {
    "deadline": "deadline_seconds",
    "grace": "grace_seconds",
    "maxHold": "max_hold_seconds",
    "stuckAfter": "stuck_after_seconds",
    "gangWindow": "gang_window_seconds",
    "waitForCompletion": "wait_for_completion_seconds",
}


def duration_seconds(text: str) -> float:
    """Seconds in a duration as the schema passes them: `1h30m`."""
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text))


def share(text: str) -> Share:
    """A percentage as the schema passes them: `5%`."""
    return Share(float(text.removesuffix("%")))


def namespaces(raw: Raw | None) -> NamespaceMatch | None:
    """Namespaces; None where nothing is given."""
    return _given(NamespaceMatch(_texts(raw, "names"), _texts(raw, "except"), *_labels(raw)))


def _labels(raw: Raw | None) -> tuple[tuple[tuple[str, str], ...], tuple[LabelRequirement, ...]]:
    """`labels` and `matchExpressions`."""
    raw = raw or {}
    expressions = [
        LabelRequirement(entry["key"], entry["operator"], _texts(entry, "values"))
        for entry in raw.get("matchExpressions", ())
    ]
    return tuple(raw.get("labels", {}).items()), tuple(expressions)


def requesters(raw: Raw | None) -> RequesterMatch | None:
    """Who asks; None where nothing is given."""
    return _given(RequesterMatch(_texts(raw, "users"), _texts(raw, "groups"), _texts(raw, "serviceAccounts")))


def taints(raw: Raw | None) -> TaintMatch | None:
    """Taints; None where nothing is given."""
    return _given(TaintMatch(_texts(raw, "keys"), _texts(raw, "values"), _texts(raw, "effects")))


def _toleration_match(raw: Raw | None) -> TolerationMatch | None:
    if not raw:
        return None
    seconds = raw.get("seconds", {})
    keys, values, effects = (_texts(raw, name) for name in ("keys", "values", "effects"))
    return _given(TolerationMatch(keys, values, effects, seconds.get("above"), seconds.get("atMost")))


def _given(match: M) -> M | None:
    """The match; None for one that has nothing in it."""
    return None if match == type(match)() else match


def _limit(value: int | str | None) -> int | Share | None:
    return share(value) if isinstance(value, str) else value


def _texts(raw: Raw | None, name: str) -> tuple[str, ...]:
    return tuple((raw or {}).get(name, ()))


def _renamed(raw: Raw, names: Mapping[str, str]) -> dict[str, JSON]:
    """The fields that are given, by the names that the model has for them."""
    return {field: raw[name] for name, field in names.items() if name in raw}


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
