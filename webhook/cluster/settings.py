"""Settings of this room. Nothing here imports a client, so that reading flags stays quick."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Which cluster."""

    kubeconfig: Path | None = None
    """None: the cluster that the pod runs in, else the one that kubectl would use."""
    context: str | None = None
    """Of the kubeconfig; None for its current context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettings:
    """How single requests are made."""

    timeout_seconds: float = 10.0
    """For one request from connecting to the last byte, except a page of a list."""
    page_seconds: float = 60.0
    """The same for one page of a list. An API server gives up a request after the same time (--request-timeout)."""
    page_silence_seconds: float = 20.0
    """A page is given up when no data arrives for this long, as the connection may be dead. A busy API server may queue
    a list for 15 s before it answers."""
    renew_seconds: float = 60.0
    """How old a token may be before its file is read again. A kubelet replaces it at 80 % of its life, so no sooner
    than 2 minutes before the old one ends (a token lives for 10 minutes at least)."""
    renew_at_most_every_seconds: float = 10.0
    """How often a 401 may lead to loading the credentials again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorSettings:
    """How one resource is listed and watched."""

    page_size: int = 5000
    """Objects in one answer of a list. For each page the API server goes through all objects that remain, so the 500 of
    kubectl would cost it two to four times as much at 100,000 objects (ADR 31)."""
    watch_seconds: int = 300
    """The server ends a watch after this time, and up to as much again: watches of many replicas drift apart."""
    silence_seconds: float = 180.0
    """A watch without a single line for this long is abandoned for a list, as its connection may be dead.

    Bookmarks come each minute, the first one after two (seen on 1.37.0); older servers send none for a resource that
    has not changed since they started, and then this is how often it is listed.
    """
    backoff_seconds: float = 0.5
    """The first wait after a failure; each further one doubles it."""
    backoff_most_seconds: float = 30.0
    """Where doubling ends; also the longest Retry-After that is honoured."""
    short_watch_seconds: float = 1.0
    """A watch that ends sooner without a line counts as a failure, else it would be reopened in a loop."""
    catch_up_seconds: float = 1.0
    """After this time an open watch has brought what happened before it was opened, if no bookmark says so sooner."""
    resume_attempts: int = 5
    """Watches in a row that may break without an event or a bookmark; then the collection is listed.

    With the waits in between, these are 4 to 8 s without an API server: longer than a load balancer takes to choose
    another one, and shorter than restoring etcd from a backup. Versions begin again at an earlier one then, and a
    watch from a later one would be open, and silent.
    """
    unserved_seconds: float = 600.0
    """How long the objects of an optional resource are kept after the server has ceased to serve it.

    An API server that is rolled back, or one of several that is older, says so for minutes at most.
    """
    absent_most_seconds: float | None = None
    """Where doubling ends for an optional resource that is not served and has no known object; None: where it
    ends after other failures.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class InventorySettings:
    """How slices, rules, claims and pods are listed and watched."""

    reflector: ReflectorSettings = ReflectorSettings(backoff_most_seconds=10.0)
    slice_page_size: int = 50
    """Slices in one answer: one has up to 128 devices, and may be as large as 1 MiB."""
    pod_page_size: int = 2000
    """Pods in one answer: one has some 10 KiB, and a page holds the event loop until it is split into objects."""
    pod_groups_seconds: float = 300.0
    """How long PodGroups may be served before they are found, where they were not.

    Most clusters never serve them, and each look is a request for each version. Rules are found sooner: taints wait.
    """
    stale_seconds: float = 15.0
    """How long a watch may be lost before what is known counts as unknown.

    Replacing an API server takes about as long; meanwhile another one may send reviews.
    """
    pods_needed: bool = True
    """Whether the inventory counts as unknown while pods are not current, where they are followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameSettings:
    """How single names that the caches do not have are fetched."""

    names_most: int = 16
    """Names of one kind that one call fetches; the rest stay unknown."""
    in_flight_most: int = 32
    """Requests for one kind that may be in flight; no more are made until one has been answered."""
    request_seconds: float = 5.0
    """For one request. Callers wait for less; the answer is remembered for the next one."""
    absent_seconds: float = 5.0
    """How long it is remembered that a name does not exist, or could not be fetched."""
    present_seconds: float = 60.0
    """How long an answer stands in until the watch shows the object."""
    remembered_most: int = 1000
    """Answers of one kind that are kept; the oldest is dropped first."""
