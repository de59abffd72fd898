"""DeviceTaintRules as people write them from the command line: their names, their manifests, and who wrote a rule."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.decode import Reader
from webhook.api.meta import GROUP
from webhook.api.rules import REACTION, decode_rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.api.rules import DeviceTaintRule
    from webhook.commands.shared.words import DeviceAddress, TaintSpec

RESOURCE: Final = "devicetaintrules"
KIND: Final = "DeviceTaintRule"
NAME: Final = f"{KIND.lower()}.{GROUP}"
"""Before the slash in what `-o name` prints."""
MANAGER: Final = "kubectl-dtaint"
"""The field manager of what the verbs write."""
_HASH_DIGITS: Final = 8
_READABLE_MOST: Final = 200
_ODD: Final = re.compile(r"[^a-z0-9.-]+")
_EDGES: Final = "-."


class WantedRule(NamedTuple):
    """A taint, and the devices that are to have it."""

    address: DeviceAddress
    taint: TaintSpec

    @property
    def name(self) -> str:
        """The name of its rule: the same for the same devices, key and effect, and readable."""
        parts = (*self.address, self.taint.key, self.taint.effect)
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_HASH_DIGITS]
        where = self.address.pool or self.address.driver
        key = self.taint.key.rpartition("/")[2]
        words = [where, self.address.device, key, self.taint.effect]
        text = "-".join(_ODD.sub("-", word.lower()).strip(_EDGES) for word in words if word)
        # A dot must not stand beside a dash in a subdomain.
        return f"{re.sub(r'-*[.]-*', '.', text)[:_READABLE_MOST].strip(_EDGES)}-{digest}"

    def manifest(self, version: str, annotations: Mapping[str, str]) -> dict[str, Any]:
        """The rule as it is sent, in a version of the API."""
        driver, pool, device = self.address
        selector = {"driver": driver, "pool": pool, "device": device}
        value = {"value": self.taint.value} if self.taint.value else {}
        return {
            "apiVersion": f"{GROUP}/{version}",
            "kind": KIND,
            "metadata": {"name": self.name, **({"annotations": dict(annotations)} if annotations else {})},
            "spec": {
                "deviceSelector": {name: text for name, text in selector.items() if text},
                "taint": {"key": self.taint.key, **value, "effect": self.taint.effect},
            },
        }


class StoredTaintRule(NamedTuple):
    """A rule as the server has it: the whole object, and what the code works with."""

    raw: Mapping[str, Any]
    rule: DeviceTaintRule

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> StoredTaintRule:
        """From an object of any served version."""
        return cls(raw, decode_rule(Reader.of(raw, [])))

    def is_for(self, address: DeviceAddress) -> bool:
        """Whether it selects just these devices, and by their names."""
        return self.rule.selector == address.selector

    def is_for_rule(self, wanted: WantedRule) -> bool:
        """Whether it sets this taint, with whatever value, on just these devices."""
        taint = self.rule.taint
        return self.is_for(wanted.address) and (taint.key, taint.effect) == (wanted.taint.key, wanted.taint.effect)

    @property
    def maker(self) -> str:
        """What wrote the rule and would write it again, and what to change instead; empty for a rule of a person."""
        origin, name = self.rule.origin, self.rule.meta.name
        if origin.patch:
            return f"rule {name} belongs to ResourceSlicePatch {origin.name}: change or delete that"
        if origin.rule:
            return f"rule {name} belongs to rule {origin.name} (devicetaint.io/scope: hardware): untaint that one"
        if origin.name:
            return f"rule {name} is controlled by {origin.name} ({origin.uid}): change that"
        labels = self.raw.get("metadata", {}).get("labels") or {}
        if labels.get(REACTION) == "true":
            return f"rule {name} is a reaction of the policy to another taint of the device: it goes with that taint"
        return ""

    def overwritten(self, wanted: WantedRule, annotations: Mapping[str, str]) -> dict[str, Any]:
        """The same object with the value and these annotations, to be written if it has not changed meanwhile."""
        metadata, spec = dict(self.raw["metadata"]), dict(self.raw["spec"])
        taint = {**spec["taint"]}
        taint.pop("value", None)
        if wanted.taint.value:
            taint["value"] = wanted.taint.value
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
        return {**self.raw, "metadata": metadata, "spec": {**spec, "taint": taint}}
