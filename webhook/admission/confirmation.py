"""The text that confirms an impact: `v1 devices=412 claims=96 pods=96 namespaces=7 of=k7f3q2m4x4tjw5ra`.

Figures for people to read and review, which are also the ceiling for evictions, and a digest of what is confirmed.
Nothing is secret: anyone may write such a text, as anyone may say "yes, these 96 pods". It is an acknowledgement, not
an authorization; docs/impact.md has the canonical form and test vectors.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec import structs

from webhook.api.meta import ObjectMeta, format_time
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import EVICT, NEVER, SCOPE, DeviceSelector, DeviceTaintRule
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE
from webhook.inventory.rule_delta import EFFECT_RANK
from webhook.patches.patch_reach import nominal_rules

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
    """The four figures of an impact."""

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
    """Whether a digest is of a stored rule or patch, whenever it was confirmed."""
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
    """What a selector says, without what it does not."""
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
