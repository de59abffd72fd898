"""What reactions of the policy write: rules that belong to no other object, and Events about the policy's ConfigMap."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from webhook.api.meta import GROUP, format_time
from webhook.api.rules import EVICT
from webhook.cluster.events import EventType, ObjectReference
from webhook.patches.stored import RULE_KIND

if TYPE_CHECKING:
    from webhook.api.meta import NamespacedName
    from webhook.cluster.events import EventWriter
    from webhook.cluster.patch_writer import PatchWriter, WriteAnswer
    from webhook.patches.reactions import ReactionWrite
    from webhook.patches.stored import StoredRule


class ReactionWriter:
    """Writes as the controller of patches does: same account, same field manager."""

    def __init__(self, rules: PatchWriter, events: EventWriter, config_map: NamespacedName | None) -> None:
        """`config_map` holds the policy; None: it is in a file, and there is nothing that Events could be about."""
        self._rules = rules
        self._events = events
        self._config_map = config_map

    async def write_reaction(self, write: ReactionWrite) -> WriteAnswer:
        """Creates or changes the rule of a device."""
        merge = write.surplus or write.foreign
        make = _replacement if merge else _rule
        return await self._rules.put_rule(write.rule.name, partial(make, write), merge=merge)

    async def delete_rule(self, stored: StoredRule) -> WriteAnswer:
        """As `PatchWriter.delete_rule`."""
        return await self._rules.delete_rule(stored)

    async def report(self, reason: str, note: str, *, warns: bool) -> None:
        """An Event about the ConfigMap; the EventWriter logs a failure."""
        if self._config_map is None:
            return
        regarding = ObjectReference("v1", "ConfigMap", self._config_map.namespace, self._config_map.name)
        event_type = EventType.WARNING if warns else EventType.NORMAL
        await self._events.write(regarding, event_type, reason=reason, action="React", note=note)


def _rule(write: ReactionWrite, version: str) -> dict[str, Any]:
    """The rule as it is applied."""
    rule, taint = write.rule, write.taint
    assert taint.time_added is not None
    selector = rule.selector
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": RULE_KIND,
        "metadata": {"name": rule.name, "labels": dict(rule.labels), "annotations": dict(rule.annotations)},
        "spec": {
            "deviceSelector": {"driver": selector.driver, "pool": selector.pool, "device": selector.device},
            "taint": {"key": taint.key, "effect": taint.effect, "timeAdded": format_time(taint.time_added)},
        },
    }


def _replacement(write: ReactionWrite, version: str) -> dict[str, Any]:
    """The rule as a merge patch, with null for what others may have added."""
    rule = _rule(write, version)
    metadata, spec = rule["metadata"], rule["spec"]
    retired = {"deviceClassName": None, "selectors": None}
    return {
        "metadata": {
            "labels": metadata["labels"],
            "annotations": {**dict.fromkeys((EVICT, *write.retired)), **metadata["annotations"]},
            "finalizers": None,
            "ownerReferences": None,
        },
        "spec": {
            "deviceSelector": {**retired, **spec["deviceSelector"]},
            "taint": {"value": None, **spec["taint"]},
        },
    }
