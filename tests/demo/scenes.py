"""What stories are made of: chapters of steps, and what each step must come to."""

from __future__ import annotations

from dataclasses import dataclass

REVIEW = "POST "


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command, as typed, or one review, as `POST /path OPERATION file`, perhaps with `in NAMESPACE`.

    With `as resource-claim-controller` it is a review of the claim that is made from the template in the file.
    """

    command: str
    code: int = 0
    """Exit code; of a review the status code, 200 if it was allowed."""
    says: tuple[str, ...] = ()
    """What must stand in the output."""
    never: tuple[str, ...] = ()
    """What must not."""
    next_second: bool = False
    """Runs when a new second has begun: times in Kubernetes have no fractions."""
    new: str = ""
    """A regular expression; what it finds differs from what it found in earlier steps."""
    until: str = ""
    """A regular expression; it goes on until this finds something in its output. Lines are shown when they come."""
    ripe: str = ""
    """What a dry run of it must answer before it runs: our server hears of pods and claims a moment after they change.

    The dry runs are neither shown nor counted.
    """
    again: bool = False
    """Runs until it comes out so, as a pod that is evicted takes a moment to be gone; only the last run is shown."""
    keeps: str = ""
    """A regular expression; what its group finds stands for {kept} in later commands."""
    logged: str = ""
    """What our server must log before the next step, from when this one began."""

    @property
    def typed(self) -> bool:
        """A user would type it; reviews are sent by programs."""
        return not self.command.startswith(REVIEW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A sentence, a few steps, and what to see in them."""

    title: str
    steps: tuple[Step, ...]
    remark: str = ""
    asked: bool | None = None
    """Whether the API server asks our validating webhook meanwhile, by its own count; None: does not matter."""
