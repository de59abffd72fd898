"""What the policy's reactions have come to. Labels are the names of the reactions in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from webhook.telemetry.names import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client import CollectorRegistry, Metric

_STATES: Final = ("active", "quiet", "unpublished", "waiting", "held_back")
"""Fields of an outcome."""


class ReactionFigures(Protocol):
    """One reaction after a pass: `patches.reactions.ReactionOutcome`."""

    @property
    def name(self) -> str:
        """Of the reaction."""

    @property
    def devices(self) -> int:
        """Of its driver, with rules of any reaction."""

    @property
    def limit(self) -> int | None:
        """How many these may be; None is no limit."""


class ReactionMetrics(Collector):
    """The outcomes of the last pass; none before the first, as on a process that does not lead."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._outcomes: Sequence[ReactionFigures] = ()
        self._refused: int | None = None
        registry.register(self)

    def show(self, outcomes: Sequence[ReactionFigures], refused: int) -> None:
        """The outcomes of a pass, and how many rules of reactions were refused the last time."""
        self._outcomes = outcomes
        self._refused = refused

    def collect(self) -> Iterator[Metric]:
        """What a scrape gets."""
        reasons = GaugeMetricFamily(
            f"{PREFIX}_reaction_reasons",
            "Taints that a reaction goes by, by their state.",
            labels=["reaction", "state"],
        )
        devices = GaugeMetricFamily(
            f"{PREFIX}_reaction_devices",
            "Devices of the reaction's driver that have rules of any reaction.",
            labels=["reaction"],
        )
        limits = GaugeMetricFamily(
            f"{PREFIX}_reaction_devices_max", "How many maxDevices lets these be.", labels=["reaction"]
        )
        refused = GaugeMetricFamily(f"{PREFIX}_reaction_rules_refused", "Rules of reactions that were refused.")
        for each in self._outcomes:
            for state in _STATES:
                reasons.add_metric([each.name, state], getattr(each, state))
            devices.add_metric([each.name], each.devices)
            if each.limit is not None:
                limits.add_metric([each.name], each.limit)
        if self._refused is not None:
            refused.add_metric([], self._refused)
        yield from (reasons, devices, limits, refused)
