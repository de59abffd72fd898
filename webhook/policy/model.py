"""The policy as values: what `document.load` makes of a DeviceTaintPolicy, defaults filled in.

Patterns are kept as written; `match` compiles them. An empty list or map in a match counts as missing.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from webhook.api.meta import LabelRequirement
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, NONE, DeviceToleration
from webhook.expressions.engine import Expression

API_VERSION: Final = "policy.devicetaint.io/v1alpha1"
KIND: Final = "DeviceTaintPolicy"
DEFAULT_RULE: Final = "default"
"""The name of the policy's default among the rules. Exceptions may list it."""
CLAIM_CONTROLLER: Final = "system:serviceaccount:kube-system:resource-claim-controller"
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
TOLERATIONS_MAX: Final = 16
"""Entries in a list of tolerations (L-8), by the documents; validation/documented.py, next door, has it too."""
UTC_ZONE: Final = "UTC"
"""The zone of windows that name none."""


class PolicyMode(StrEnum):
    """How violations are handled: refused, warned about, or ignored."""

    ENFORCE = "enforce"
    WARN = "warn"
    OFF = "off"

    def at_most(self, other: PolicyMode) -> PolicyMode:
        """The milder of the two."""
        return max(self, other, key=list(PolicyMode).index)


class Action(StrEnum):
    """What a rule does. The first allow or deny that matches decides; warn and audit do not end it."""

    ALLOW = "allow"
    DENY = "deny"
    WARN = "warn"
    AUDIT = "audit"


DECIDING: Final = frozenset({Action.ALLOW, Action.DENY})


class UnknownAuthor(StrEnum):
    """What happens to a generated claim whose template has no known author."""

    ALLOW = "allow"
    WARN = "warn"
    DENY = "deny"


class Subject(StrEnum):
    """What a rule is evaluated on: each toleration of each request, or each request once."""

    TOLERATION = "toleration"
    REQUEST = "request"


class InTreeEvictor(StrEnum):
    """Whether Kubernetes' own controller carries out NoExecute."""

    ACTIVE = "active"
    ABSENT = "absent"


class NamespaceMatch(msgspec.Struct, frozen=True):
    """Namespaces by name (globs), without exceptions (globs), and by labels (values are globs)."""

    names: tuple[str, ...] = ()
    except_names: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    expressions: tuple[LabelRequirement, ...] = ()


class LabelMatch(msgspec.Struct, frozen=True):
    """Objects by their labels (values are globs), as in `NamespaceMatch`."""

    labels: tuple[tuple[str, str], ...] = ()
    expressions: tuple[LabelRequirement, ...] = ()


class RequesterMatch(msgspec.Struct, frozen=True):
    """A user, a member of a group, or a service account written `namespace/name`; all globs."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    service_accounts: tuple[str, ...] = ()


class TolerationMatch(msgspec.Struct, frozen=True):
    """A set of taints. `above` is for rules that refuse, `at_most` for rules that allow; both in seconds."""

    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    above: int | None = None
    at_most: int | None = None


class TaintMatch(msgspec.Struct, frozen=True):
    """Taints that a request sets. A taint is a single value, so patterns simply match."""

    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()


class Match(msgspec.Struct, frozen=True):
    """What a rule matches. Every given field must hold; None and empty fields hold for everything.

    `tolerations` is for rules on tolerations and exceptions to them; `taints`, `pools` and `evict` for taint rules.
    """

    namespaces: NamespaceMatch | None = None
    requesters: RequesterMatch | None = None
    device_classes: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    tolerations: TolerationMatch | None = None
    admin_access: bool | None = None
    pools: tuple[str, ...] = ()
    taints: TaintMatch | None = None
    evict: bool | None = None
    when: Expression | None = None


ANYTHING: Final = Match()


class Rule(msgspec.Struct, frozen=True):
    """A rule on tolerations (or whole requests), or one of `taintRules`, whose subject means nothing."""

    name: str
    action: Action
    match: Match = ANYTHING
    subject: Subject = Subject.TOLERATION
    message: str = ""


class PolicyException(msgspec.Struct, frozen=True):
    """Suspends the listed rules for what it matches, from `not_before` until before `expires_at`."""

    name: str
    rules: tuple[str, ...]
    expires_at: datetime
    match: Match = ANYTHING
    owner: str = ""
    reason: str = ""
    ticket: str = ""
    not_before: datetime | None = None

    def active(self, now: datetime) -> bool:
        """Whether it is in force at that time."""
        return not self.outside(now)

    def outside(self, now: datetime) -> str:
        """Return the field that keeps it from being in force, as the document names it; empty if it is."""
        if self.not_before is not None and now < self.not_before:
            return "notBefore"
        return "expiresAt" if now >= self.expires_at else ""


class DefaultTolerations(msgspec.Struct, frozen=True):
    """Tolerations to add to matching requests (`match` has no `tolerations`)."""

    name: str
    tolerations: tuple[DeviceToleration, ...]
    match: Match = ANYTHING


class Share(msgspec.Struct, frozen=True):
    """A limit as a share of all there are, in percent; of devices: of those of each driver that the rule reaches."""

    percent: float


class Softening(StrEnum):
    """Which NoExecute rules of an entry of limits become NoSchedule with `/evict`, instead of being refused."""

    NEVER = "never"
    OVER = "over"
    """Those over the limit."""
    ALWAYS = "always"
    """All that the entry matches."""


class ImpactLimits(msgspec.Struct, frozen=True):
    """What a taint may hit without being confirmed: numbers or shares; None is no limit."""

    requesters: RequesterMatch | None = None
    taints: TaintMatch | None = None
    pods: int | Share | None = None
    claims: int | Share | None = None
    devices: int | Share | None = None
    namespaces: int | Share | None = None
    pending_pods: int | Share | None = None
    """Pods that find no other device."""
    soften: Softening = Softening.NEVER
    confirmable: bool = True

    @property
    def softens(self) -> bool:
        """Whether any NoExecute rule is softened instead of refused."""
        return self.soften is not Softening.NEVER


DEFAULT_LIMITS: Final = ImpactLimits(pods=50, namespaces=10)
"""The limits of an entry that does not set its own."""


class ImpactSettings(msgspec.Struct, frozen=True):
    """The guard's settings. Times in seconds; `tolerance_percent` is how much an impact may grow once confirmed."""

    limits: tuple[ImpactLimits, ...] = (DEFAULT_LIMITS,)
    protected_namespaces: NamespaceMatch = NamespaceMatch(names=("kube-system",))
    window_seconds: float = 600.0
    tolerance_percent: float = 10.0
    confirmers: RequesterMatch | None = None
    """Who may confirm; None: anyone who may write the rule."""
    break_glass_groups: tuple[str, ...] = ()
    two_step: bool = False
    unknown_impact: Action = Action.DENY

    @property
    def softens(self) -> bool:
        """Whether any entry softens rules."""
        return any(entry.softens for entry in self.limits)


class EvictionWindow(msgspec.Struct, frozen=True):
    """When pods may be evicted: after each start of the schedule, a cron expression in the zone's time. In seconds."""

    schedule: str
    duration_seconds: float
    zone: str = UTC_ZONE


class EvictionProfile(msgspec.Struct, frozen=True):
    """How gently devices are emptied. Times in seconds, rates per second; None is no limit or the pod's own."""

    namespaces: NamespaceMatch | None = None
    priority_at_most: int | None = None
    device_classes: tuple[str, ...] = ()
    rate: float = 10.0
    burst: int = 10
    max_per_minute: int | None = None
    per_namespace: int | None = None
    per_owner_unavailable: int | Share | None = 1
    overall: int | None = None
    deadline_seconds: float = 600.0
    delete_after_deadline: bool = False
    grace_period_seconds: int | None = None
    grace_seconds: float = 0.0
    max_hold_seconds: float = 24 * 3600.0
    evict_daemon_sets: bool = False
    stuck_after_seconds: float = 300.0
    pod_labels: LabelMatch | None = None
    gang_labels: tuple[str, ...] = ()
    gang_by_owner: bool = False
    gang_window_seconds: float = 60.0
    skips: bool = False
    """Whether its pods are left alone."""
    windows: tuple[EvictionWindow, ...] = ()
    """Pods may be evicted while one of them is open; without any, always."""
    wait_for_completion_seconds: float = 0.0
    """How long after they are due pods that will complete are left to it."""


class BreakerSettings(msgspec.Struct, frozen=True):
    """When taints in slices stop evicting pods. `devices` is for each driver; None is no limit. Times in seconds."""

    devices: int | Share | None = Share(20)
    window_seconds: float = 300.0
    calm_seconds: float = 600.0
    acknowledged: tuple[tuple[str, datetime], ...] = ()
    """Drivers, with the time up to which what they have tainted is acknowledged."""

    def acknowledged_of(self, driver: str) -> datetime | None:
        """Return the last such time, or None."""
        return max([until for name, until in self.acknowledged if name == driver], default=None)


class Pause(msgspec.Struct, frozen=True):
    """No pod is evicted until this time; `why` is for people."""

    until: datetime
    why: str = ""


class Reaction(msgspec.Struct, frozen=True):
    """What follows if a taint lasts on a device in the slices of a driver: a rule for that device.

    `key` and `value` are patterns; without a value any will do. `max_devices` bounds the driver's devices that have
    rules of any reaction; None is no limit.
    """

    name: str
    driver: str
    key: str
    value: str | None = None
    signal_effect: str = NONE
    for_seconds: float = 300.0
    effect: str = NO_SCHEDULE
    evict: bool = False
    max_devices: int | Share | None = None

    @property
    def evicts(self) -> bool:
        """Whether pods on the device are evicted."""
        return self.evict or self.effect == NO_EXECUTE


class Policy(msgspec.Struct, frozen=True):
    """A whole policy. `hash` identifies the document that it was made from: the first 12 hex digits of SHA-256."""

    hash: str = "builtin"
    mode: PolicyMode = PolicyMode.ENFORCE
    documented_rules: PolicyMode = PolicyMode.ENFORCE
    bump_slice_time_added: bool = False
    in_tree_evictor: InTreeEvictor = InTreeEvictor.ACTIVE
    generated_claims: PolicyMode = PolicyMode.WARN
    unknown_author: UnknownAuthor = UnknownAuthor.WARN
    trusted_namespace_labels: tuple[str, ...] = (NAMESPACE_NAME_LABEL,)
    trusted_controllers: tuple[str, ...] = (CLAIM_CONTROLLER,)
    default: Action = Action.ALLOW
    rules: tuple[Rule, ...] = ()
    taint_rules: tuple[Rule, ...] = ()
    taint_rules_on_slices: bool = False
    exceptions: tuple[PolicyException, ...] = ()
    default_tolerations: tuple[DefaultTolerations, ...] = ()
    impact: ImpactSettings = ImpactSettings()
    eviction: tuple[EvictionProfile, ...] = (EvictionProfile(),)
    breaker: BreakerSettings = BreakerSettings()
    pause: Pause | None = None
    reactions: tuple[Reaction, ...] = ()


BUILTIN: Final = Policy()
"""The policy without a document: everything is allowed, and the guard has its default limits."""
