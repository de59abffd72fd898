"""What servers of another version read otherwise in stored rules and slices than those of today. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from webhook.admission.impact_text import first_names
from webhook.api.counts import counted
from webhook.api.field import Path
from webhook.api.rules import DeviceTaintRule
from webhook.api.slices import ResourceSlice
from webhook.api.taints import NO_EXECUTE, NONE
from webhook.files.dump import Stock, held_in
from webhook.files.report import Entry, Level
from webhook.inventory.impact import Taint, impact_of, impact_on_devices
from webhook.inventory.rule_delta import EFFECT_RANK
from webhook.validation.rules import SELECTOR, TAINT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from webhook.api.servers import ServerFacts
    from webhook.commands.shared.flags import KubernetesVersion
    from webhook.files.read import Manifest

_REASON: Final = "release"
_DEVICES: Final = Path.root().child("spec", "devices")
_MILD: Final = {
    "extended_evicted": False,
    "empty_effect_protects": True,
    "taints_by_default": False,
    "rules_by_default": False,
}


class _Reading(NamedTuple):
    """What a rule, or the taints of a slice, do by the facts of one version: pods by uid, and how many devices."""

    evicted: frozenset[str]
    closed: int


class ReleaseAudit:
    """Stored objects, as servers of two versions read them. What is not known of today's is reported as a change."""

    def __init__(
        self, manifests: Iterable[Manifest], today: ServerFacts, then: KubernetesVersion, now: datetime
    ) -> None:
        mild = {name: value for name, value in _MILD.items() if getattr(today, name) is None}
        if today.missing_selects_nothing is None:
            mild["missing_selects_nothing"] = not then.facts.missing_selects_nothing
        self._today, self._then = structs.replace(today, **mild), then.facts
        self._release = then.release
        self._now = now
        stock = Stock()
        stock.add(manifests)
        self._inventory = stock.inventory
        claims = self._inventory.claims.values()
        self._names = {
            user.uid: f"{claim.meta.namespace}/{user.name}" for claim in claims for user in claim.reserved_for
        }

    def entries(self, manifest: Manifest) -> Iterator[Entry]:
        """What changes for a rule or a slice: errors for what that release does not take, else warnings."""
        value, errors = held_in(manifest.value)
        if errors or not isinstance(value, DeviceTaintRule | ResourceSlice):
            return
        path = TAINT if isinstance(value, DeviceTaintRule) else _DEVICES
        taints = (value.taint,) if isinstance(value, DeviceTaintRule) else value.distinct_taints
        effects = {taint.effect for taint in taints}
        if NONE in effects - self._release.effects:
            text = "has a taint with effect None, which that release does not know: remove it before you go there"
            yield self._entry(path, text, Level.ERROR)
        today, then = self._reading(value, self._today), self._reading(value, self._then)
        more = then.evicted - today.evicted
        if more:
            names = first_names(sorted(self._names[uid] for uid in more))
            yield self._entry(path, f"evicts {counted(len(more), 'pod')} there that it leaves alone today: {names}")
        if then.closed != today.closed:
            does = f"closes {counted(then.closed, 'device')} for it" if then.closed else "selects nothing for it"
            yield self._entry(SELECTOR, f"is missing: that release {does}")
        default = "rules_by_default" if isinstance(value, DeviceTaintRule) else "taints_by_default"
        if NO_EXECUTE in effects and getattr(self._today, default) is False and getattr(self._then, default):
            pods = counted(len(then.evicted), "pod")
            yield self._entry(path, f"acts there without a feature gate, and evicts {pods} unless it acts today")

    def _reading(self, value: DeviceTaintRule | ResourceSlice, servers: ServerFacts) -> _Reading:
        inventory = self._inventory
        inventory.servers = servers
        if isinstance(value, DeviceTaintRule):
            taint = Taint.of_rule(value, in_tree=True)
            impact = impact_of(inventory, value.selector, taint, self._now)
            acts = value.selector is None and value.effective_effect in EFFECT_RANK
        else:
            taints = {
                each.name: [Taint.of_slice(taint, in_tree=True) for taint in each.taints] for each in value.devices
            }
            impact = impact_on_devices(inventory, (value.driver, value.pool), taints, self._now)
            acts = False
        spared = impact.extended if servers.extended_evicted is False else frozenset()
        return _Reading(impact.pods - spared, impact.devices if acts else 0)

    @staticmethod
    def _entry(path: Path, text: str, level: Level = Level.WARNING) -> Entry:
        return Entry(level, text, field=str(path), reason=_REASON)
