"""Which findings share an object: few objects, each of bounded size, and a small change concerns few of them.

A subject belongs to the object whose name ends with the first bits of the subject's hash. All findings are in one
object with no bits; one that would be too large is split into two by one more bit, and the others stay as they are. So
the division depends on the findings alone: another leader, or a restart, makes the same objects.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.reports.findings import ReportFinding, ReportSubject

BITS_MOST: Final = 32
"""Two subjects of one hash stay together, however large they are."""


class SizedFinding(NamedTuple):
    """A finding and what it adds to the size of its object, in bytes."""

    finding: ReportFinding
    size: int


def place_of(subject: ReportSubject) -> str:
    """The hash of a subject as zeros and ones; an object that is created again keeps its place."""
    text = f"{subject.kind}\0{subject.namespace}\0{subject.name}"
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
    return f"{int.from_bytes(digest[: BITS_MOST // 8]):0{BITS_MOST}b}"


def shards(findings: Sequence[SizedFinding], most_bytes: int) -> Iterator[tuple[str, list[SizedFinding]]]:
    """(bits, findings) of each object, in order; none of them larger than `most_bytes`.

    A single subject is never divided, so its findings must be fewer than that by themselves.
    """
    placed = sorted(((place_of(each.finding.subject), each) for each in findings), key=_order)
    yield from _divided("", placed, most_bytes)


def _divided(
    bits: str, placed: Sequence[tuple[str, SizedFinding]], most_bytes: int
) -> Iterator[tuple[str, list[SizedFinding]]]:
    if len(bits) == BITS_MOST or sum(each.size for _, each in placed) <= most_bytes:
        if placed:
            yield bits, [each for _, each in placed]
        return
    parts: defaultdict[str, list[tuple[str, SizedFinding]]] = defaultdict(list)
    for place, each in placed:
        parts[place[len(bits)]].append((place, each))
    for bit, part in sorted(parts.items()):
        yield from _divided(bits + bit, part, most_bytes)


def _order(placed: tuple[str, SizedFinding]) -> tuple[str, ReportFinding]:
    return placed[0], placed[1].finding
