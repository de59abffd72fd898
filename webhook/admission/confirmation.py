"""The text that confirms an impact: `v1 devices=412 claims=96 pods=96 namespaces=7 of=k7f3q2m4x4tjw5ra`.

Figures for people to read and review, which are also the ceiling for evictions, and a digest of what is confirmed.
Nothing is secret: anyone may write such a text, as anyone may say "yes, these 96 pods". It is an acknowledgement, not
an authorization; docs/impact.md has the canonical form and test vectors. `CarriedText` says whether a rule or patch may
carry it, and whether it holds for what is hit now.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec import structs

from webhook.admission.context import AdmissionContext
from webhook.admission.lint import CLOCK_SKEW
from webhook.admission.review import AdmissionRequest
from webhook.api.field import JSON, Finding, Path, Severity, forbidden
from webhook.api.meta import ObjectMeta, changed_at, format_time
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import CONFIRM_IMPACT, EVICT, NEVER, SCOPE, DeviceSelector, DeviceTaintRule
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE
from webhook.inventory.rule_delta import EFFECT_RANK
from webhook.patches.patch_reach import nominal_rules
from webhook.policy.limits import limits_for, may_confirm
from webhook.policy.match import ANONYMOUS, Requester
from webhook.policy.model import ImpactSettings

_VERSION: Final = "v1"
_TEXT_MOST: Final = 131_072
_FIGURE: Final = re.compile(r"[0-9]{1,9}")
_DIGEST: Final = re.compile(r"[a-z2-7]{16}")
_DIGEST_BYTES: Final = 10
_GENERATED: Final = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}")
"""What an API server adds to a `generateName` (apimachinery, pkg/util/rand)."""
_PREFIX_MOST: Final = 58
"""Characters of a `generateName` that it keeps (apiserver, pkg/storage/names)."""
_SOME_MORE: Final = 50


class Numbers(NamedTuple):
    """The figures of a confirming text `v1`: with one more, no text that is stored could be read."""

    devices: int
    claims: int
    pods: int
    namespaces: int

    def grown(self, percent: float) -> Numbers:
        """Return the largest figures allowed when they may grow by `percent`, rounded up."""
        return Numbers(*[_grown(number, percent) for number in self])


def _grown(number: int, percent: float) -> int:
    # Rounded first: a product may come out a hair above the whole number that it is.
    return number + math.ceil(round(number * percent / 100, 6))


class ImpactToConfirm(NamedTuple):
    """What a rule or patch hits: the figures, the protected namespaces, and how much could not be counted.

    `unknown`: PodGroups of unknown size, and pools that are published in part. `done`: pods that were evicted for it.
    """

    numbers: Numbers
    protected: frozenset[str] = frozenset()
    unknown: int = 0
    done: int = 0

    @property
    def figures(self) -> dict[str, int]:
        """Return all figures by name."""
        return {**self.numbers._asdict(), "unknown": self.unknown, "done": self.done}


class Confirmation(NamedTuple):
    """A text, read: the impact, and the digest of what is confirmed."""

    hit: ImpactToConfirm
    of: str


NOTHING: Final = ImpactToConfirm(Numbers(0, 0, 0, 0))


def text_of(hit: ImpactToConfirm, of: str) -> str:
    """Return the text that confirms an impact; `of` is a digest."""
    parts = [f"{name}={number}" for name, number in hit.numbers._asdict().items()]
    if hit.protected:
        parts.append(f"protected={','.join(sorted(hit.protected))}")
    parts += [f"{name}={number}" for name, number in (("unknown", hit.unknown), ("done", hit.done)) if number]
    return " ".join([_VERSION, *parts, f"of={of}"])


def read_text(text: str) -> Confirmation | None:
    """Return what a text says, or None if it is not one. Fields may come in any order, with any white space."""
    words = text.split() if len(text) <= _TEXT_MOST else []
    fields = dict([word.partition("=")[::2] for word in words[1:]])
    if words[:1] != [_VERSION] or len(fields) != len(words) - 1:
        return None
    of, protected = fields.pop("of", ""), fields.pop("protected", "")
    figures = {name: int(number) for name, number in fields.items() if _FIGURE.fullmatch(number)}
    if figures.keys() != fields.keys() or not _DIGEST.fullmatch(of):
        return None
    unknown, done = figures.pop("unknown", 0), figures.pop("done", 0)
    if figures.keys() != set(Numbers._fields):
        return None
    names = frozenset(filter(None, protected.split(",")))
    return Confirmation(ImpactToConfirm(Numbers(**figures), names, unknown, done), of)


def exceeded(confirmed: ImpactToConfirm, hit: ImpactToConfirm, percent: float) -> str | None:
    """Return why a text no longer holds for what is hit now, in words; None if it does."""
    names = {**confirmed.numbers._asdict(), "unknown": confirmed.unknown}
    most = {name: _grown(number, percent) for name, number in names.items()}
    more = [f"{hit.figures[name]} {name} (at most {most[name]})" for name in most if hit.figures[name] > most[name]]
    if more:
        return f"was printed for less: now {', '.join(more)}"
    strange = min(hit.protected - confirmed.protected, default="")
    return f"was printed before the protected namespace {strange} was hit" if strange else None


def overstated(confirmed: ImpactToConfirm, hit: ImpactToConfirm) -> str | None:
    """Return which figures say far more than is hit today, so that they would be a ceiling for nothing; or None."""
    today = hit.figures
    more = [
        f"{number} {name} (today {today[name]})"
        for name, number in confirmed.figures.items()
        if number > max(2 * today[name], today[name] + _SOME_MORE)
    ]
    return f"says more than is hit: {', '.join(more)}" if more else None


# --- what is confirmed ----------------------------------------------------------------------------


def digest_of(judged: DeviceTaintRule | ResourceSlicePatch, name: str, since: datetime | None) -> str:
    """Return the digest of a rule or patch under a name. Times before `since` are part of it; None: no time is."""
    if isinstance(judged, DeviceTaintRule):
        said = {"selector": _selector(judged.selector), "scope": judged.meta.annotations.get(SCOPE, "")}
        return _digest("DeviceTaintRule", name, {**said, **_taint(judged, since)})
    acting = [each for each in nominal_rules(judged) if each.effective_effect in EFFECT_RANK]
    taints = sorted([_taint(each, since) for each in acting], key=_canonical)
    return _digest("ResourceSlicePatch", name, {"filter": _selector(judged.filter), "taints": taints})


def names_of(meta: ObjectMeta, *, generated: bool) -> Iterator[str]:
    """Yield the names under which an object may be confirmed, the best first.

    `generated`: also by `generateName*`, where its name may be one that a server has made of that.
    """
    prefix = meta.generate_name[:_PREFIX_MOST]
    made = meta.name.startswith(prefix) and _GENERATED.fullmatch(meta.name[len(prefix) :])
    if generated and prefix and (made or not meta.name):
        yield f"{prefix}*"
    if meta.name:
        yield meta.name


def as_it_will_act(judged: DeviceTaintRule | ResourceSlicePatch) -> tuple[DeviceTaintRule | ResourceSlicePatch, ...]:
    """Return the object as it is and, if it does nothing yet, as it would act once its effect is raised."""
    if isinstance(judged, DeviceTaintRule):
        if judged.effective_effect in EFFECT_RANK:
            return (judged,)
        asking = structs.replace(judged.meta, annotations={**judged.meta.annotations, EVICT: "true"})
        raised = structs.replace(judged, taint=structs.replace(judged.taint, effect=NO_EXECUTE))
        closed = structs.replace(judged, taint=structs.replace(judged.taint, effect=NO_SCHEDULE))
        return judged, raised, closed, structs.replace(closed, meta=asking)
    if any(each.effective_effect in EFFECT_RANK for each in nominal_rules(judged)):
        return (judged,)
    taints = [structs.replace(each, effect=NO_EXECUTE) for each in judged.taints]
    return judged, structs.replace(judged, taints=tuple(taints))


def confirms(of: str, judged: DeviceTaintRule | ResourceSlicePatch) -> bool:
    """Return whether a digest is of a stored rule or patch, whenever it was confirmed."""
    taints = (judged.taint,) if isinstance(judged, DeviceTaintRule) else judged.taints
    # Which times lay in the past then cannot be seen any more: none, those before some moment, or all.
    times = sorted({each.time_added for each in taints if each.time_added is not None})
    moments = [None, *times[1:], NEVER] if times else [None]
    names = tuple(names_of(judged.meta, generated=True))
    return any(digest_of(judged, name, since) == of for name in names for since in moments)


def _digest(kind: str, name: str, said: Mapping[str, Any]) -> str:
    text = _canonical({"confirms": _VERSION, "kind": kind, "name": name, **said})
    return base64.b32encode(hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES]).decode().lower()


def _canonical(said: Mapping[str, Any]) -> str:
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def _selector(selector: DeviceSelector | None) -> dict[str, Any] | None:
    """Return what a selector says, without what it does not."""
    if selector is None:
        return None
    said = {
        "driver": selector.driver,
        "pool": selector.pool,
        "device": selector.device,
        "deviceClassName": selector.device_class_name,
        "selectors": [each.expression for each in selector.selectors] or None,
        "unknown": dict(selector.unknown) or None,
    }
    return {name: value for name, value in said.items() if value is not None}


def _taint(rule: DeviceTaintRule, since: datetime | None) -> dict[str, Any]:
    taint = rule.taint
    past = since is not None and taint.time_added is not None and taint.time_added < since
    return {
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "evict": rule.meta.annotations.get(EVICT) == "true",
        "timeAdded": format_time(taint.time_added) if past and taint.time_added else "",
    }


# --- the text that a rule or patch carries --------------------------------------------------------

_UNREADABLE: Final = 'is not a confirmation: it must be like "v1 devices=4 claims=4 pods=4 namespaces=1 of=..."'
_OTHER: Final = (
    "was printed for another object: name, selector, key, value, effect, /evict, /scope or a past timeAdded differ"
)
_NOBODY: Final = "confirms nothing: by the policy no one may confirm this (confirmable: false)"
_UNJUDGED: Final = "was stored before the policy that says who may confirm: remove it, and set it again if it is right"
_NOT_YOU: Final = "may be set by the policy's confirmers alone, and the requester is none of them"


class CarriedText:
    """The text in a rule or patch that is created (`old` is None) or updated. All sentences say what is wrong with it.

    `backdated`: False if times that are past were there before, so that they need not have been confirmed.
    """

    def __init__(
        self,
        new: DeviceTaintRule | ResourceSlicePatch,
        old: DeviceTaintRule | ResourceSlicePatch | None,
        request: AdmissionRequest,
        context: AdmissionContext,
        *,
        backdated: bool = True,
    ) -> None:
        self.text = new.meta.annotations.get(CONFIRM_IMPACT, "")
        self.is_new = bool(self.text) and (old is None or self.text != old.meta.annotations.get(CONFIRM_IMPACT))
        """Whether it is set or changed, so that it is judged whatever the object does."""
        self._new = new
        self._old = old
        self._context = context
        self._requester = Requester(request.username, request.groups)
        since = context.now - CLOCK_SKEW
        self._moments = (since,) if backdated else (since, None)
        self._said = read_text(self.text)
        self._in_time = partial(context.budget.check, "impact")

    @property
    def _settings(self) -> ImpactSettings:
        return self._context.policy.impact

    @property
    def by_requester(self) -> bool:
        """Whether the policy lets the requester confirm; in files no one asks."""
        unnamed = self._context.offline and self._requester.username == ANONYMOUS
        return unnamed or may_confirm(self._settings, self._requester)

    @property
    def confirmable(self) -> bool:
        """Whether no limit on what the object does, or will do once its effect is raised, says that no one confirms."""
        return self._may_be_confirmed(self._acting)

    def _may_be_confirmed(self, form: DeviceTaintRule | ResourceSlicePatch) -> bool:
        rules = (form,) if isinstance(form, DeviceTaintRule) else nominal_rules(form)
        limits_of = partial(limits_for, self._settings, self._requester, check=self._in_time)
        return all(limits_of(each.taint, each.effective_effect).confirmable for each in rules)

    @property
    def _acting(self) -> DeviceTaintRule | ResourceSlicePatch:
        """The object, or, if it does nothing yet, as it would act."""
        return as_it_will_act(self._new)[:2][-1]

    def _names(self) -> tuple[str, ...]:
        return tuple(names_of(self._new.meta, generated=self._old is None))

    def text_for(self, hit: ImpactToConfirm) -> str:
        """Return the text that confirms what the object hits, or will hit once its effect is raised."""
        name = next(iter(self._names()), "")
        return text_of(hit, digest_of(self._acting, name, self._moments[0]))

    def misplaced(self) -> str | None:
        """Return why a new text may not be set, whatever the object hits; None if it may, or is not new."""
        if not self.is_new:
            return None
        if self._said is None:
            return _UNREADABLE
        if not self.by_requester:
            return _NOT_YOU
        meant = [form for form in as_it_will_act(self._new) if self._is_of(form)]
        if not meant:
            return _OTHER
        return None if all(map(self._may_be_confirmed, meant)) else _NOBODY

    def overstated(self, hit: ImpactToConfirm) -> str | None:
        """Return why a new text says too much; None if it does not, or is not new."""
        return overstated(self._said.hit, hit) if self.is_new and self._said is not None else None

    def fault(self, hit: ImpactToConfirm) -> str | None:
        """Return why it does not confirm what is hit now; None if it does."""
        if not self.text:
            return "is missing"
        if self._said is None:
            return _UNREADABLE
        if not self.confirmable:
            return _NOBODY
        if not self._is_of(self._new):
            return _OTHER
        return exceeded(self._said.hit, hit, self._settings.tolerance_percent)

    def _is_of(self, judged: DeviceTaintRule | ResourceSlicePatch) -> bool:
        digests = (digest_of(judged, name, since) for name in self._names() for since in self._moments)
        return self._said is not None and self._said.of in digests

    def outlived(self) -> str | None:
        """Return why a stored text that held for the object as it was does not after this update; None otherwise."""
        stored = bool(self.text) and not self.is_new
        if stored and self._old is not None and self._is_of(self._old) and not self._is_of(self._new):
            return "was printed for the object as it was: from now on the limits of the policy hold again"
        return None


def fault_of_stored(
    judged: DeviceTaintRule | ResourceSlicePatch, metadata: Mapping[str, JSON], judged_since: datetime | None
) -> Finding | None:
    """Return what is wrong with the text of a stored rule or patch that has this metadata; None if nothing is known.

    The policy judges texts since that time; None: that is not known, and nothing is said of it.
    """
    text = judged.meta.annotations.get(CONFIRM_IMPACT, "")
    said, at = read_text(text), Path.root().child("metadata", "annotations").key(CONFIRM_IMPACT)
    if not text:
        return None
    if said is None:
        return Finding(Severity.DENY, forbidden(at, _UNREADABLE))
    if not any(confirms(said.of, form) for form in as_it_will_act(judged)):
        return Finding(Severity.DENY, forbidden(at, _OTHER))
    written = changed_at(metadata, CONFIRM_IMPACT)
    if written is None or judged_since is None or written >= judged_since:
        return None
    return Finding(Severity.WARN, forbidden(at, _UNJUDGED))
