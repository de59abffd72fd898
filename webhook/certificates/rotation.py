"""Rotation of a CA without a failed call: the next step from any state, for any number of replicas. Pure.

API servers trust the CAs in caBundle, and see a change a little later. So a new CA is trusted first and signs later,
and an old one is trusted until nothing that it signed can be in use:

    Make      a successor is made and stored, and signs nothing yet
    Spread    every caBundle holds both
    Promote   both have been there for a while: the successor signs, the other is old
    Spread    what it signed has ended or was replaced: caBundle loses the old one
    Forget    and so does the Secret

A CA that is not valid yet was made by a clock that ran ahead, unless ours is behind. It is replaced by the same steps,
so that no call fails if ours is behind. The others accept what the replica with the earliest clock makes, unless it is
so early that they take that CA for one that is due: so each replica replaces one such CA at most.

All state is in the Secret and in caBundle, and each step is one write that fails if another writer came first. So any
replica may take any step, and if it dies between two steps, the others go on from there.

The Secret has the fields of a kubernetes.io/tls Secret, and some more:

| field                 | what it holds                                                      |
|-----------------------|--------------------------------------------------------------------|
| tls.crt, tls.key      | the CA that signs                                                  |
| ca.crt                | what has to be trusted, for people and tools; it is never read     |
| next.crt, next.key    | the CA that signs once every caBundle has it                       |
| old.crt, old.until    | CAs that are still trusted, and until when (RFC 3339)              |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from webhook.api.meta import format_time, parse_time
from webhook.certificates.authority import SKEW, Authority, Pair
from webhook.certificates.parsing import Unusable, parsing

FIELDS: Final = ("tls.crt", "tls.key", "ca.crt", "next.crt", "next.key", "old.crt", "old.until")
"""Of the Secret, those that are ours."""


class Signer(NamedTuple):
    """A CA that can sign. Times are UTC."""

    pair: Pair
    made: datetime
    ends: datetime


class Leaf(NamedTuple):
    """A serving pair. Times are UTC."""

    pair: Pair
    issuer: bytes
    """The certificate of its CA."""
    made: datetime
    ends: datetime


@dataclass(frozen=True, slots=True)
class Authorities:
    """What the Secret holds. Certificates are PEM in one spelling, so that equal ones are equal bytes."""

    signing: Signer | None = None
    next: Signer | None = None
    """Signs once every caBundle has it."""
    old: tuple[bytes, ...] = ()
    """Certificates that are still trusted, because what they signed may be in use."""
    old_until: datetime | None = None
    """When that ends."""

    def with_new(self, signer: Signer, *, successor: bool) -> Authorities:
        """Return them with a new CA."""
        return replace(self, next=signer) if successor else replace(self, signing=signer, next=None)

    def keeping(self, certificates: Iterable[bytes], until: datetime) -> Authorities:
        """Trust these for some time more."""
        old = tuple(dict.fromkeys((*certificates, *self.old)))
        return replace(self, old=old, old_until=max(until, self.old_until or until))

    def promoted(self, until: datetime) -> Authorities:
        """Let the next CA sign; the one that did is trusted for some time more."""
        kept = self if self.signing is None else self.keeping([self.signing.pair.certificate], until)
        return replace(kept, signing=self.next, next=None)

    def forgotten(self, now: datetime) -> Authorities:
        """Drop the old CAs once their time is over, and a successor that has ended."""
        kept = replace(self, next=alive(self.next, now))
        return kept if self.old_until is not None and now < self.old_until else replace(kept, old=(), old_until=None)

    def trusted(self, now: datetime) -> tuple[bytes, ...]:
        """Return what a caBundle should hold: no CA that has ended, and no old one past its time."""
        signers = (alive(self.signing, now), alive(self.next, now))
        old = self.old if self.old_until is not None and now < self.old_until else ()
        return tuple(dict.fromkeys((*(signer.pair.certificate for signer in signers if signer), *old)))

    def known(self) -> frozenset[bytes]:
        """Return every certificate there is."""
        return frozenset((*(signer.pair.certificate for signer in (self.signing, self.next) if signer), *self.old))


class Trust(NamedTuple):
    """What one webhook configuration has API servers trust."""

    name: str
    entries: tuple[Mapping[bytes, datetime], ...]
    """For each of its webhooks the certificates in its caBundle, and when each ends; none if it cannot be read."""


class Plan(NamedTuple):
    """How long things last."""

    leaf_lifetime: timedelta
    settle: timedelta
    """For how long a caBundle has to be in place until every API server uses it."""


class Make(NamedTuple):
    """Make a CA; a successor signs later."""

    successor: bool
    early: bool = False
    """It replaces one that is not valid yet."""


class Keep(NamedTuple):
    """Store certificates that a caBundle has and the Secret has not: other replicas may serve what these signed."""

    certificates: tuple[bytes, ...]
    until: datetime


class Spread(NamedTuple):
    """Have these configurations trust these certificates, and no others."""

    names: tuple[str, ...]
    certificates: tuple[bytes, ...]


class Promote(NamedTuple):
    """Let the successor sign."""

    until: datetime
    """How long the other one stays trusted."""


class Forget(NamedTuple):
    """Drop the old certificates, or a successor that has ended."""


Step = Make | Keep | Spread | Promote | Forget


def next_step(  # noqa: PLR0913 -- all by name
    authorities: Authorities,
    trust: Sequence[Trust],
    *,
    complete: bool,
    since: Mapping[bytes, datetime],
    now: datetime,
    plan: Plan,
    may_replace_early: bool = True,
) -> Step | None:
    """Return what is to be done now, or None if all is as it should be, or nothing can be done.

    `trust` must have been read after `authorities`: then a certificate that is in a caBundle and not stored is not one
    that another replica is about to introduce, or storing it fails. `complete` says that every configuration that
    exists could be read. `since` is the result of `trusted_since`. `may_replace_early` says whether a CA that is not
    valid yet may be replaced.
    """
    # A leaf that was signed just before the step ends this much later, and clocks differ by less than settling takes.
    until = now.replace(microsecond=0) + timedelta(seconds=1) + plan.leaf_lifetime + plan.settle
    entries = [entry for each in trust for entry in each.entries]
    present = {certificate for entry in entries for certificate, end in entry.items() if now < end}
    signers = [signer for signer in (alive(authorities.signing, now), alive(authorities.next, now)) if signer]
    if not signers:
        return Make(successor=bool(present)) if complete else None
    if complete and may_replace_early and all(_is_far(signer, now, plan) for signer in signers):
        return Make(successor=True, early=True)
    if unknown := present - authorities.known():
        return Keep(tuple(sorted(unknown)), until)
    wanted = authorities.trusted(now)
    differing = tuple(each.name for each in trust if any(set(entry) != set(wanted) for entry in each.entries))
    if differing:
        return Spread(differing, wanted)
    if not complete:
        return None
    step = _rotation(authorities, since, now, plan, until)
    return None if isinstance(step, Make) and step.early and not may_replace_early else step


def _rotation(
    authorities: Authorities, since: Mapping[bytes, datetime], now: datetime, plan: Plan, until: datetime
) -> Step | None:
    """Return the next step while every caBundle is as it should be."""
    signing, successor = alive(authorities.signing, now), alive(authorities.next, now)
    due = signing is not None and now >= two_thirds(signing)
    if successor is not None and is_early(successor, now):
        return Make(successor=True, early=True) if due and _is_far(successor, now, plan) else None
    if successor is not None:
        return Promote(until) if _is_settled(successor, since, now, plan) else None
    if due:
        return Make(successor=True)
    if authorities.next is not None:  # else a replica for whose clock it has not ended would trust it again and again
        return Forget()
    if authorities.old and (authorities.old_until is None or authorities.old_until <= now):
        return Forget()
    return None


def trusted_since(
    before: Mapping[bytes, datetime], authorities: Authorities, trust: Sequence[Trust], now: datetime
) -> dict[bytes, datetime]:
    """Return since when each CA has been in every caBundle, seen by this replica at every look."""
    return {
        certificate: min(before.get(certificate, now), now)  # the clock may have been put back
        for certificate in authorities.known()
        if all(certificate in entry for each in trust for entry in each.entries)
    }


def leaf_signer(
    authorities: Authorities,
    leaf: Leaf | None,
    since: Mapping[bytes, datetime],
    now: datetime,
    plan: Plan,
    *,
    trusting: bool | None = None,
) -> Signer | None:
    """Return the CA that should sign a new leaf now; None if the present leaf may stay, or no CA can sign.

    `authorities` must have just been read: a CA that has been replaced must sign nothing more. Nor may an unexpected CA
    (after a manual change of the Secret) sign before it is trusted. `trusting` says whether any caBundle has the CA of
    the present leaf: if none has, the leaf is not worth the wait.
    """
    # Even one that is not valid yet: no other is trusted, and if our own clock is behind, it serves well.
    signer = alive(authorities.signing, now) or alive(authorities.next, now)
    if signer is None or leaf is None or leaf.ends <= now:
        return signer
    urgent = is_early(leaf, now)
    if leaf.issuer == signer.pair.certificate:
        return signer if urgent or now >= two_thirds(leaf) else None
    trusted_now = signer.pair.certificate in since
    is_late = leaf.ends - now <= late_from(plan.leaf_lifetime)
    settled = _is_settled(signer, since, now, plan) or (trusted_now and (urgent or is_late or trusting is False))
    return signer if settled else None


def alive(signer: Signer | None, now: datetime) -> Signer | None:
    """Return the CA, unless it has ended."""
    return signer if signer is not None and now < signer.ends else None


def is_early(certificate: Signer | Leaf, now: datetime) -> bool:
    """Return whether it is not valid yet: the clock that made it was ahead of this one by more than it is backdated."""
    return now < certificate.made - SKEW


def _is_far(signer: Signer, now: datetime, plan: Plan) -> bool:
    """Return whether it becomes valid only after a replacement made now would sign; a sooner one is worth the wait."""
    return is_early(signer, now + plan.settle)


def two_thirds(certificate: Signer | Leaf) -> datetime:
    """Return when it is to be renewed."""
    return certificate.made + (certificate.ends - certificate.made) * 2 / 3


def _is_settled(signer: Signer, since: Mapping[bytes, datetime], now: datetime, plan: Plan) -> bool:
    start = since.get(signer.pair.certificate)
    return start is not None and start + plan.settle <= now


def late_from(lifetime: timedelta) -> timedelta:
    """Return how much time is left when it should be reported: an hour, or a tenth of a short planned lifetime."""
    return min(timedelta(hours=1), lifetime / 10)


class Garbled(Exception):  # noqa: N818 -- it says what the Secret is
    """The Secret holds something that is not ours; the text says which field, and nothing of what is in it."""


def authorities_in(data: Mapping[str, bytes]) -> Authorities:
    """Return what the fields say; nothing if they are missing or empty. Raises Garbled."""
    until_text = data.get("old.until", b"").decode(errors="replace").strip()
    until = parse_time(until_text) if until_text else None
    if until_text and until is None:
        raise Garbled("old.until: must be a time such as 2026-01-31T12:00:00Z")
    try:
        old = tuple(certificates_in(data.get("old.crt", b"")))
    except Unusable as error:
        raise Garbled(f"old.crt: {error}") from None
    return Authorities(_signer(data, "tls"), _signer(data, "next"), old, until)


def data_of(authorities: Authorities, now: datetime) -> dict[str, bytes]:
    """Return the fields; those that have nothing to say are missing."""
    fields: dict[str, bytes] = {}
    for name, signer in (("tls", authorities.signing), ("next", authorities.next)):
        if signer is not None:
            fields |= {f"{name}.crt": signer.pair.certificate, f"{name}.key": signer.pair.key}
    if authorities.old and authorities.old_until is not None:
        fields |= {"old.crt": b"".join(authorities.old), "old.until": format_time(authorities.old_until).encode()}
    return fields | {"ca.crt": b"".join(authorities.trusted(now))}


def signer_of(authority: Authority) -> Signer:
    """Return an authority as rotation knows it."""
    return Signer(authority.pair, authority.made, authority.ends)


def certificates_in(bundle: bytes) -> dict[bytes, datetime]:
    """Return each certificate of a bundle in one spelling, with its end. Raises Unusable for anything else."""
    if not bundle.strip():
        return {}
    with parsing("the certificates cannot be read"):
        certificates = x509.load_pem_x509_certificates(bundle)
        return {each.public_bytes(Encoding.PEM): each.not_valid_after_utc for each in certificates}


def _signer(data: Mapping[str, bytes], name: str) -> Signer | None:
    certificate, key = data.get(f"{name}.crt", b""), data.get(f"{name}.key", b"")
    if not certificate and not key:
        return None
    if not key or not certificate:
        there, missing = ("crt", "key") if certificate else ("key", "crt")
        raise Garbled(f"{name}.{missing}: must come with {name}.{there}")
    try:
        return signer_of(Authority.load(Pair(certificate, key)))
    except Unusable as error:
        raise Garbled(f"{name}.crt and {name}.key: {error}") from None
