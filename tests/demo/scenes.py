"""What stories are made of: chapters of steps, and what each step must come to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command, as typed."""

    command: str
    code: int = 0
    says: tuple[str, ...] = ()
    """What must stand in the output."""
    never: tuple[str, ...] = ()
    """What must not."""
    matches: str = ""
    """A regular expression that must find something in the output."""
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
    unseen: bool = False
    """It is not shown: it sets a scene, or looks whether the story is right."""
    keeps: str = ""
    """A regular expression; what its group finds stands for {kept} in later commands."""
    logged: str = ""
    """What our server must log before the next step, from when this one began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A sentence, a few steps, and what to see in them."""

    title: str
    steps: tuple[Step, ...]
    setting: str = ""
    """What the scene shows when the first step runs."""
    scene: tuple[Step, ...] = ()
    """Set it: they run unseen."""
    remark: str = ""
    asked: bool | None = None
    """Whether the API server asks our validating webhook meanwhile, by its own count; None: does not matter."""
