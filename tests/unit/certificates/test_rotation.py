"""Which step is next: from every state that there can be, and from those that there should not be."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from webhook.certificates.authority import Pair
from webhook.certificates.rotation import (
    Authorities,
    Forget,
    Keep,
    Leaf,
    Make,
    Plan,
    Promote,
    Signer,
    Spread,
    Step,
    Trust,
    is_early,
    late_from,
    leaf_signer,
    next_step,
    trusted_since,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NOW: Final = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)
CA_LIFE: Final = 90 * MINUTE
PLAN: Final = Plan(leaf_lifetime=20 * MINUTE, settle=5 * MINUTE)
LONG_AGO: Final = NOW - timedelta(days=1)
UNTIL: Final = NOW + timedelta(minutes=25, seconds=1)


def signer(name: str, age: timedelta = timedelta()) -> Signer:
    return Signer(Pair(name.encode(), b"key of " + name.encode()), NOW - age, NOW - age + CA_LIFE)


ONE, TWO = signer("one"), signer("two")
DUE: Final = signer("due", 60 * MINUTE)
ENDED: Final = signer("ended", 90 * MINUTE)
BACKDATED: Final = signer("backdated", -5 * MINUTE)
"""Made by a clock that is ahead by no more than certificates are backdated."""
SOON: Final = signer("soon", -10 * MINUTE)
"""Not valid yet, but before another one could sign."""
EARLY: Final = signer("early", -timedelta(days=730))


def trust(name: str, *entries: Iterable[Signer]) -> Trust:
    return Trust(name, tuple({each.pair.certificate: each.ends for each in entry} for entry in entries))


def both(*signers: Signer) -> list[Trust]:
    """Two configurations with two webhooks each, which trust these."""
    return [trust("validating", signers, signers), trust("mutating", signers, signers)]


def step(
    authorities: Authorities,
    trusted: list[Trust],
    *,
    complete: bool = True,
    since: Mapping[Signer, datetime] | None = None,
    now: datetime = NOW,
) -> Step | None:
    times = {each.pair.certificate: time for each, time in (since or {}).items()}
    return next_step(authorities, trusted, complete=complete, since=times, now=now, plan=PLAN)


def old(*signers: Signer, until: datetime = UNTIL) -> dict[str, object]:
    return {"old": tuple(each.pair.certificate for each in signers), "old_until": until}


CASES: Final[dict[str, tuple[Authorities, list[Trust], Step | None]]] = {
    "nothing is there: a CA that signs at once": (Authorities(), both(), Make(successor=False)),
    "only the Secret is empty: a CA that must be trusted first": (Authorities(), both(ONE), Make(successor=True)),
    "what ended is as good as nothing": (Authorities(signing=ENDED, next=ENDED), both(ENDED), Make(successor=False)),
    "a CA that nobody trusts yet": (Authorities(signing=ONE), both(), Spread(("validating", "mutating"), (b"one",))),
    "one webhook of one configuration lacks it": (
        Authorities(signing=ONE),
        [trust("validating", [ONE], [ONE]), trust("mutating", [ONE], [])],
        Spread(("mutating",), (b"one",)),
    ),
    "no configuration exists": (Authorities(signing=ONE), [], None),
    "a configuration without webhooks": (Authorities(signing=ONE), [trust("validating")], None),
    "all is well": (Authorities(signing=ONE), both(ONE), None),
    "a stranger is trusted": (Authorities(signing=ONE), both(ONE, TWO), Keep((b"two",), UNTIL)),
    "a stranger that has ended is trusted": (
        Authorities(signing=ONE),
        both(ONE, ENDED),
        Spread(("validating", "mutating"), (b"one",)),
    ),
    "two thirds of its life are over": (Authorities(signing=DUE), both(DUE), Make(successor=True)),
    "the successor is not trusted yet": (
        Authorities(signing=DUE, next=TWO),
        both(DUE),
        Spread(("validating", "mutating"), (b"due", b"two")),
    ),
    "a successor that has ended is made anew": (Authorities(signing=DUE, next=ENDED), both(DUE), Make(successor=True)),
    "a successor that has ended, and none is due": (Authorities(signing=ONE, next=ENDED), both(ONE), Forget()),
    "an old one stays trusted": (Authorities(signing=TWO, **old(DUE)), both(TWO, DUE), None),  # type: ignore[arg-type]
    "its time is over": (
        Authorities(signing=TWO, **old(DUE, until=NOW)),  # type: ignore[arg-type]
        both(TWO, DUE),
        Spread(("validating", "mutating"), (b"two",)),
    ),
    "it was made by a clock a little ahead": (Authorities(signing=BACKDATED), both(BACKDATED), None),
    "it is valid soon": (Authorities(signing=SOON), both(SOON), None),
    "it is valid in years": (Authorities(signing=EARLY), both(EARLY), Make(successor=True, early=True)),
    "no caBundle has the one that is valid in years": (
        Authorities(signing=EARLY),
        both(),
        Make(successor=True, early=True),
    ),
    "neither is valid for years": (
        Authorities(signing=EARLY, next=EARLY),
        both(EARLY),
        Make(successor=True, early=True),
    ),
    "it is valid in years, and the next is on its way": (
        Authorities(signing=EARLY, next=TWO),
        both(EARLY),
        Spread(("validating", "mutating"), (b"early", b"two")),
    ),
    "the successor is valid in years, and there is time": (
        Authorities(signing=ONE, next=EARLY),
        both(ONE, EARLY),
        None,
    ),
    "the successor is valid in years, and it is due": (
        Authorities(signing=DUE, next=EARLY),
        both(DUE, EARLY),
        Make(successor=True, early=True),
    ),
    "the successor is valid soon": (Authorities(signing=DUE, next=SOON), both(DUE, SOON), None),
    "nobody trusts it any more": (Authorities(signing=TWO, **old(DUE, until=NOW)), both(TWO), Forget()),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", CASES)
def test_next_step(case: str) -> None:
    authorities, trusted, expected = CASES[case]
    assert step(authorities, trusted) == expected


@pytest.mark.parametrize(
    ("authorities", "trusted"),
    [
        (Authorities(signing=EARLY), [EARLY]),
        (Authorities(signing=EARLY, next=EARLY), [EARLY]),
        (Authorities(signing=DUE, next=EARLY), [DUE, EARLY]),
    ],
)
def test_a_replica_that_replaced_an_early_ca_replaces_no_other(authorities: Authorities, trusted: list[Signer]) -> None:
    """F6: or two whose clocks differ by more than a CA's life would replace each other's for ever."""
    since = {each.pair.certificate: LONG_AGO for each in trusted}
    taken = next_step(
        authorities, both(*trusted), complete=True, since=since, now=NOW, plan=PLAN, may_replace_early=False
    )
    assert taken is None


def test_a_successor_that_is_not_valid_yet_does_not_sign_however_long_it_is_trusted() -> None:
    """F6."""
    for successor in (SOON, EARLY):
        settled = {successor: LONG_AGO}
        assert step(Authorities(signing=ONE, next=successor), both(ONE, successor), since=settled) is None


def test_trust_seen_by_a_clock_that_was_put_back_since_counts_from_now() -> None:
    """F6."""
    ahead = {b"one": NOW + timedelta(days=730)}
    assert trusted_since(ahead, Authorities(signing=ONE), both(ONE), NOW) == {b"one": NOW}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({}, None),
        ({TWO: NOW}, None),
        ({TWO: NOW - 5 * MINUTE + timedelta(seconds=1)}, None),
        ({TWO: NOW - 5 * MINUTE}, Promote(UNTIL)),
        ({ONE: LONG_AGO}, None),
    ],
)
def test_successor_signs_once_everybody_trusted_it_for_a_while(
    seen: dict[Signer, datetime], expected: Step | None
) -> None:
    assert step(Authorities(signing=ONE, next=TWO), both(ONE, TWO), since=seen) == expected
    assert step(Authorities(next=TWO), both(TWO), since=seen) == expected


def test_while_a_configuration_cannot_be_read_only_the_others_get_what_they_lack() -> None:
    one = [trust("validating", [])]
    assert step(Authorities(), one, complete=False) is None
    assert step(Authorities(signing=ONE), one, complete=False) == Spread(("validating",), (b"one",))
    assert step(Authorities(signing=DUE), [trust("validating", [DUE])], complete=False) is None
    settled = {TWO: LONG_AGO}
    assert step(Authorities(signing=ONE, next=TWO), [], complete=False, since=settled) is None
    assert step(Authorities(signing=ONE, **old(TWO, until=NOW)), [], complete=False) is None  # type: ignore[arg-type]


def test_trust_counts_from_when_every_webhook_had_it_and_anew_after_a_gap() -> None:
    authorities = Authorities(signing=ONE, next=TWO)
    first = trusted_since({}, authorities, both(ONE, TWO), NOW)
    assert first == {b"one": NOW, b"two": NOW}
    later = NOW + MINUTE
    assert trusted_since(first, authorities, both(ONE, TWO), later) == first
    gap = trusted_since(first, authorities, [*both(ONE, TWO), trust("third", [ONE])], later)
    assert gap == {b"one": NOW}
    assert trusted_since(gap, authorities, both(ONE, TWO), later) == {b"one": NOW, b"two": later}


def leaf(issuer: Signer, age: timedelta = timedelta()) -> Leaf:
    return Leaf(Pair(b"", b""), issuer.pair.certificate, NOW - age, NOW - age + PLAN.leaf_lifetime)


_SETTLED: Final = {b"one": LONG_AGO, b"two": LONG_AGO}
LEAVES: Final[dict[str, tuple[Authorities, Leaf | None, Mapping[bytes, datetime], Signer | None]]] = {
    "the first one": (Authorities(signing=ONE, next=TWO), None, {}, ONE),
    "the first one, while nobody signs yet": (Authorities(next=TWO), None, {}, TWO),
    "nobody can sign": (Authorities(signing=ENDED), None, {}, None),
    "young": (Authorities(signing=ONE), leaf(ONE, 13 * MINUTE), {}, None),
    "two thirds old": (Authorities(signing=ONE), leaf(ONE, 14 * MINUTE), {}, ONE),
    "its CA was replaced": (Authorities(signing=TWO), leaf(ONE), _SETTLED, TWO),
    "its CA was replaced by one that nobody trusts": (Authorities(signing=TWO), leaf(ONE, 19 * MINUTE), {}, None),
    "its CA was replaced by one that is trusted since now": (Authorities(signing=TWO), leaf(ONE), {b"two": NOW}, None),
    "the same, and little is left": (Authorities(signing=TWO), leaf(ONE, 18 * MINUTE), {b"two": NOW}, TWO),
    "nobody trusts its CA, at the end": (Authorities(signing=TWO), leaf(ONE, 20 * MINUTE), {}, TWO),
    "a successor signs nothing": (Authorities(signing=ONE, next=TWO), leaf(ONE), _SETTLED, None),
    "its CA is lost, and the next not trusted": (Authorities(next=TWO), leaf(ONE, 15 * MINUTE), {}, None),
    "made by a clock a little ahead": (Authorities(signing=ONE), leaf(ONE, -5 * MINUTE), {}, None),
    "made by a clock that was ahead": (Authorities(signing=ONE), leaf(ONE, -6 * MINUTE), {}, ONE),
    "made by a clock that was ahead, as its CA was": (Authorities(signing=EARLY), leaf(EARLY, -6 * MINUTE), {}, EARLY),
    "made by a clock that was ahead, and its CA was replaced": (
        Authorities(signing=TWO),
        leaf(ONE, -6 * MINUTE),
        {b"two": NOW},
        TWO,
    ),
    "the only CA is not valid yet": (Authorities(signing=EARLY), None, {}, EARLY),
    "its CA is lost, and the next trusted": (Authorities(next=TWO), leaf(ONE), _SETTLED, TWO),
}


@pytest.mark.parametrize("case", LEAVES)
def test_leaf_signer(case: str) -> None:
    authorities, present, since, expected = LEAVES[case]
    assert leaf_signer(authorities, present, since, NOW, PLAN) == expected


@pytest.mark.parametrize(
    ("life", "left", "late"),
    [
        (timedelta(days=10), timedelta(minutes=61), False),
        (timedelta(days=10), timedelta(minutes=60), True),
        (timedelta(seconds=20), timedelta(seconds=3), False),
        (timedelta(seconds=20), timedelta(seconds=2), True),
    ],
)
def test_a_leaf_is_late_before_it_ends(life: timedelta, left: timedelta, *, late: bool) -> None:
    assert (left <= late_from(life)) is late


_SIGNERS: Final = (None, ONE, DUE, ENDED, EARLY)
_BUNDLES: Final = ((), (ONE,), (TWO,), (ONE, TWO), (DUE,), (DUE, TWO), (ENDED,), (signer("stranger"),))


def _all_authorities() -> Iterable[Authorities]:
    for signing, successor, kept, until in itertools.product(
        _SIGNERS, (None, TWO, ENDED, EARLY), (None, DUE), (NOW, UNTIL)
    ):
        yield Authorities(signing, successor, **(old(kept, until=until) if kept else {}))  # type: ignore[arg-type]


@pytest.mark.slow
def test_from_every_state_the_way_ends_with_one_ca_that_everybody_trusts() -> None:
    """Times pass between the steps; no step undoes another, or the way would not end."""
    ways = [
        _walk(authorities, [trust("validating", first), trust("mutating", second)])
        for authorities in _all_authorities()
        for first, second in itertools.product(_BUNDLES, _BUNDLES)
    ]
    print(f"\n{len(ways)} states, {sum(ways)} steps, at most {max(ways)} from one state")


def _walk(authorities: Authorities, trusted: list[Trust]) -> int:
    now, made, steps, idle, replaced = NOW, 0, 0, timedelta(), False
    since: Mapping[bytes, datetime] = {}
    while idle <= CA_LIFE:  # longer than anything that is waited for
        since = trusted_since(since, authorities, trusted, now)
        taken = next_step(
            authorities, trusted, complete=True, since=since, now=now, plan=PLAN, may_replace_early=not replaced
        )
        if taken is None:
            now, idle = now + 5 * MINUTE, idle + 5 * MINUTE
            continue
        steps, idle = steps + 1, timedelta()
        assert steps < 12
        match taken:
            case Make(successor, early):
                made += 1
                replaced = replaced or early
                fresh = Signer(Pair(f"made {made}".encode(), b""), now, now + timedelta(days=365))
                authorities = authorities.with_new(fresh, successor=successor)
            case Keep(certificates, until):
                authorities = authorities.keeping(certificates, until)
            case Promote(until):
                authorities = authorities.promoted(until)
            case Forget():
                authorities = authorities.forgotten(now)
            case Spread(names, certificates):
                bundle = dict.fromkeys(certificates, now + timedelta(days=365))
                trusted = [Trust(each.name, (bundle,)) if each.name in names else each for each in trusted]
    assert authorities.signing is not None
    assert not is_early(authorities.signing, now)
    assert (authorities.next, authorities.old) == (None, ())
    assert all(set(entry) == {authorities.signing.pair.certificate} for each in trusted for entry in each.entries)
    return steps
