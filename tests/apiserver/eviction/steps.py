"""What may happen in a scenario: each step is one change, or waits for something that follows from one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tests.apiserver.eviction.scenario import KEY, Due, Pod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.apiserver.eviction.bench import Bench


class Step(Protocol):
    """Done when it returns."""

    def do(self, bench: Bench) -> None:
        """Does it."""
        ...


@dataclass(frozen=True)
class Admit:
    """Another pod comes, and has its devices."""

    pod: Pod

    def do(self, bench: Bench) -> None:
        bench.admit(self.pod)


@dataclass(frozen=True)
class Taint:
    """A rule. `ago`: its timeAdded, seconds before now; the API server's unless given.

    `selects` names fields of its selector, of which `driver` needs no value; None is no selector at all.
    """

    name: str = "r"
    effect: str = "NoExecute"
    selects: Mapping[str, str] | None = field(default_factory=lambda: {"driver": ""})
    key: str = KEY
    value: str = ""
    ago: int | None = None

    def do(self, bench: Bench) -> None:
        bench.taint(self.name, self.effect, self.selects, self.key, self.value, self.ago)


@dataclass(frozen=True)
class Change:
    """Other fields of a rule's taint, or another selector."""

    name: str = "r"
    taint: Mapping[str, str] = field(default_factory=dict)
    selects: Mapping[str, str] | None = None

    def do(self, bench: Bench) -> None:
        bench.change(self.name, self.taint, self.selects)


@dataclass(frozen=True)
class Untaint:
    name: str = "r"

    def do(self, bench: Bench) -> None:
        bench.untaint(self.name)


@dataclass(frozen=True)
class Marked:
    """A taint of a device in a slice; `name` is for the scenario. `ago` as in Taint."""

    name: str
    effect: str = "NoExecute"
    ago: int | None = None
    key: str = KEY


@dataclass(frozen=True)
class Publish:
    """A slice comes, or is changed: devices with their taints."""

    devices: Mapping[str, tuple[Marked, ...]]
    name: str = "slice"
    generation: int = 1

    def do(self, bench: Bench) -> None:
        bench.publish(self.name, self.generation, self.devices)


@dataclass(frozen=True)
class Unpublish:
    name: str = "slice"

    def do(self, bench: Bench) -> None:
        bench.unpublish(self.name)


@dataclass(frozen=True)
class Allocate:
    """A claim gets its devices, and is reserved for a pod."""

    claim: str
    pod: str

    def do(self, bench: Bench) -> None:
        bench.allocate(self.claim, self.pod)


@dataclass(frozen=True)
class Deallocate:
    """A claim loses its devices."""

    claim: str

    def do(self, bench: Bench) -> None:
        bench.deallocate(self.claim)


@dataclass(frozen=True)
class Reserve:
    """An allocated claim is reserved for these pods, and for nobody else."""

    claim: str
    pods: tuple[str, ...] = ()

    def do(self, bench: Bench) -> None:
        bench.reserve(self.claim, self.pods)


@dataclass(frozen=True)
class DeleteClaim:
    claim: str

    def do(self, bench: Bench) -> None:
        bench.delete_claim(self.claim)


@dataclass(frozen=True)
class LabelClaim:
    """A change of a claim that means nothing to evictors."""

    claim: str

    def do(self, bench: Bench) -> None:
        bench.label_claim(self.claim)


@dataclass(frozen=True)
class ClaimAnew:
    """A claim of that name and for that pod comes, with other tolerations."""

    claim: str
    pod: str
    tolerates: tuple[str, ...] = ()

    def do(self, bench: Bench) -> None:
        bench.claim_anew(self.claim, self.pod, self.tolerates)


@dataclass(frozen=True)
class Bind:
    """A pod gets its node."""

    pod: str

    def do(self, bench: Bench) -> None:
        bench.bind(self.pod)


@dataclass(frozen=True)
class Tell:
    """A pod's status says which claims were made for it."""

    pod: str

    def do(self, bench: Bench) -> None:
        bench.tell_claims(self.pod)


@dataclass(frozen=True)
class LabelPod:
    """A change of a pod that means nothing to evictors."""

    pod: str

    def do(self, bench: Bench) -> None:
        bench.label_pod(self.pod)


@dataclass(frozen=True)
class Delete:
    """Somebody else deletes a pod."""

    pod: str

    def do(self, bench: Bench) -> None:
        bench.delete(self.pod)


@dataclass(frozen=True)
class Budget:
    """A PodDisruptionBudget that allows nobody to go."""

    def do(self, bench: Bench) -> None:
        bench.budget()


@dataclass(frozen=True)
class Forbid:
    """From now on no pod of the scenario may be deleted."""

    def do(self, bench: Bench) -> None:
        bench.forbid()


@dataclass(frozen=True)
class Permit:
    """They may again, after so many requests were refused."""

    refusals: int

    def do(self, bench: Bench) -> None:
        bench.permit(self.refusals)


@dataclass(frozen=True)
class Gone:
    """Waits until a pod was evicted: whoever is hit by the same taint later is planned by then, too."""

    pod: str = "now"

    def do(self, bench: Bench) -> None:
        bench.wait_evicted(self.pod)


@dataclass(frozen=True)
class Cancelled:
    """Waits until Events say that these pods stay after all: of two quick changes ours sees only the last."""

    pods: tuple[str, ...]

    def do(self, bench: Bench) -> None:
        bench.wait_cancelled(*self.pods)


@dataclass(frozen=True)
class Says:
    """Waits until the condition of a rule is this."""

    text: str
    name: str = "r"

    def do(self, bench: Bench) -> None:
        bench.wait_condition(self.name, self.text)


@dataclass(frozen=True)
class Pass:
    """Waits until that time is so many seconds past."""

    due: Due
    seconds: float = 2.0

    def do(self, bench: Bench) -> None:
        bench.wait_past(self.due, self.seconds)
