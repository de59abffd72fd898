"""Codes: what they look like, what they hold for, and in what words they do not."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.builders import NOW
from webhook.admission.confirmation import (
    CodeSubject,
    CodeTerms,
    ImpactToConfirm,
    Numbers,
    fault_of,
    make_code,
    read_code,
)
from webhook.api.rules import DeviceSelector

SECRET = b"k" * 32
EXPIRES = NOW + timedelta(hours=72)
ABOUT = CodeSubject(
    "gpu-7", DeviceSelector("gpu.example.com", "node-7"), "example.com/broken", "fan", "NoExecute", None
)
TERMS = CodeTerms(NOW, 10)
OTHER_RULE = "was made for another rule, selector, taint or effect, or with another key"


def namespaces(number: int, prefix: str = "ns-") -> frozenset[str]:
    return frozenset(f"{prefix}{each:03}" for each in range(number))


def hit(devices: int = 20, claims: int = 10, pods: int = 10, names: Any = 2, protected: Any = ()) -> ImpactToConfirm:
    found = namespaces(names) if isinstance(names, int) else frozenset(names)
    found |= frozenset(protected)
    return ImpactToConfirm(Numbers(devices, claims, pods, len(found)), found, frozenset(protected))


def code_for(
    about: CodeSubject = ABOUT, impact: ImpactToConfirm | None = None, user: str = "jane", key: bytes = SECRET
) -> str:
    return make_code(about, impact or hit(), user, EXPIRES, key)


def fault(
    code: str,
    about: CodeSubject = ABOUT,
    impact: ImpactToConfirm | None = None,
    terms: CodeTerms = TERMS,
    key: bytes = SECRET,
) -> str | None:
    return fault_of(code, about, impact or hit(), terms, key)


def test_code_is_readable() -> None:
    code = code_for()
    assert re.fullmatch(r"v1\.1780574400\.20\.10\.10\.2\.[A-Za-z0-9_-]{38}", code)
    read = read_code(code)
    assert read is not None
    assert (read.expires, read.numbers) == (EXPIRES, Numbers(devices=20, claims=10, pods=10, namespaces=2))


def test_code_is_the_same_in_every_process() -> None:
    """Replicas share nothing but the key, and what was printed yesterday must hold tomorrow."""
    assert code_for() == "v1.1780574400.20.10.10.2.ndgyfnN0pP8U63oxS8T2hWaTdX805NfXbpxoTw"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1",
        "v1.1.2.3.4.5.",
        "v1.1.2.3.4.5.AAAA",
        "v2.1780574400.20.10.10.2.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "v1.9999999999999.20.10.10.2.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "v1.999999999999.20.10.10.2.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "v1.-1.20.10.10.2.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "v1.1780574400.20.10.10.2.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "v1.1780574400.20.10.10.2.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB",
        "v1.1780574400.20.10.10.2.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n",
        " v1.1780574400.20.10.10.2.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "v1.1780574400.20.10.10.2.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "v1.\N{ARABIC-INDIC DIGIT ONE}.20.10.10.2.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "v1.1780574400.20.10.10.2." + "A" * 20_000,
    ],
)
def test_what_is_no_code_is_told_so(text: str) -> None:
    assert read_code(text) is None
    assert fault(text) == "is not a code as this webhook makes them"


def test_seal_of_a_length_that_nobody_makes_is_no_code() -> None:
    code = code_for()
    readable, _, seal = code.rpartition(".")
    longer = base64.urlsafe_b64decode(seal + "==") + b"\0"
    text = f"{readable}.{base64.urlsafe_b64encode(longer).decode().rstrip('=')}"
    assert read_code(text) is not None
    assert fault(text) == "is not a code as this webhook makes them"


def test_code_that_holds_has_no_fault() -> None:
    assert fault(code_for()) is None


@pytest.mark.parametrize(
    "other",
    [
        {"name": "gpu-8"},
        {"name": "gpu-7*"},
        {"selector": None},
        {"selector": DeviceSelector()},
        {"selector": DeviceSelector("gpu.example.com")},
        {"selector": DeviceSelector("gpu.example.com", "node-7", unknown=(("all", "true"),))},
        {"selector": DeviceSelector("gpu.example.com", device="node-7")},
        {"key": "example.com/brokenfan"},
        {"key": "example.com/brokenfan", "value": ""},
        {"value": ""},
        {"effect": "NoSchedule"},
        {"time_added": NOW},
    ],
    ids=str,
)
def test_code_fits_nothing_else(other: Any) -> None:
    assert fault(code_for(), ABOUT._replace(**other)) == OTHER_RULE
    assert fault(code_for(ABOUT._replace(**other))) == OTHER_RULE


def test_code_ends() -> None:
    assert fault(code_for(), terms=CodeTerms(EXPIRES - timedelta(seconds=1), 10)) is None
    assert fault(code_for(), terms=CodeTerms(EXPIRES, 10)) == "expired at 2026-06-04T12:00:00Z"


@pytest.mark.parametrize(
    ("impact", "expected"),
    [
        (hit(22, 11, 11), None),
        (hit(23, 11, 11), "was made for less: now 23 devices (at most 22)"),
        (hit(20, 12, 12), "was made for less: now 12 claims (at most 11), 12 pods (at most 11)"),
        (hit(names=3), "was made for less: now 3 namespaces (at most 2)"),
        (hit(0, 0, 0, 0), None),
        (hit(1, 1, 1, 1), None),
    ],
)
def test_numbers_may_grow_by_the_tolerance(impact: ImpactToConfirm, expected: str | None) -> None:
    assert fault(code_for(), impact=impact) == expected


@pytest.mark.parametrize("percent", [0, 1, 7, 10, 15, 33, 100])
def test_tolerance_is_exact(percent: int) -> None:
    for number in range(500):
        grown = Numbers(number, number, number, number).grown(percent)
        assert grown == (number + number * percent // 100,) * 4


def test_namespaces_may_not_be_swapped() -> None:
    code = code_for(impact=hit(names=["ml", "web"]))
    assert fault(code, impact=hit(names=["ml"])) is None
    assert fault(code, impact=hit(names=["ml", "db"])) == "was made for other namespaces than db"
    assert fault(code, impact=hit(names=["a", "b"])) == "was made for other namespaces than a, b"


def test_namespaces_may_join_as_far_as_the_tolerance_goes() -> None:
    code = code_for(impact=hit(names=20))
    assert fault(code, impact=hit(names=22)) is None
    assert fault(code, impact=hit(names=namespaces(18) | {"a", "b"})) is None
    assert (
        fault(code, impact=hit(names=namespaces(17) | {"a", "b", "c"})) == "was made for other namespaces than a, b, c"
    )
    expected = "was made for other namespaces than a, b, c and 1 more"
    assert fault(code, impact=hit(names=namespaces(10) | set("abcd"))) == expected


@pytest.mark.parametrize(
    ("percent", "expected"), [(33, "was made for other namespaces than db"), (34, None)], ids=["less than one", "one"]
)
def test_namespaces_that_may_join_are_whole_ones(percent: int, expected: str | None) -> None:
    code = code_for(impact=hit(names=["a", "b", "ml"]))
    terms = CodeTerms(NOW, percent)
    assert fault(code, impact=hit(names=["a", "b", "db"]), terms=terms) == expected


def test_thirty_two_namespaces_are_known_one_by_one() -> None:
    code = code_for(impact=hit(names=32))
    assert fault(code, impact=hit(names=32)) is None
    expected = "was made for other namespaces than other-000, other-001, other-002 and 29 more"
    assert fault(code, impact=hit(names=namespaces(32, "other-"))) == expected


def test_beyond_thirty_two_namespaces_only_their_number_is_known() -> None:
    """Each costs four characters."""
    assert fault(code_for(impact=hit(names=33)), impact=hit(names=namespaces(33, "other-"))) is None
    code = code_for(impact=hit(names=40))
    assert fault(code, impact=hit(names=namespaces(40, "other-"))) is None
    assert fault(code, impact=hit(names=45)) == "was made for less: now 45 namespaces (at most 44)"
    assert len(code) == len(code_for(impact=hit(names=99)))


@pytest.mark.parametrize("protected", [1, 32, 33, 500])
@pytest.mark.parametrize("others", [0, 1, 100])
def test_protected_namespaces_are_known_one_by_one_however_many(protected: int, others: int) -> None:
    of_system = namespaces(protected, "kube-")
    code = code_for(impact=hit(names=others, protected=of_system))
    assert fault(code, impact=hit(names=others, protected=of_system)) is None
    assert fault(code, impact=hit(names=0, protected=sorted(of_system)[1:])) is None
    swapped = {*sorted(of_system)[1:], "zz-system"}
    expected = "was made before the protected namespace zz-system was hit"
    assert fault(code, impact=hit(names=others, protected=swapped)) == expected


def test_first_new_protected_namespace_is_named() -> None:
    swapped = hit(names=0, protected=["b-system", "a-system"])
    assert fault(code_for(), impact=swapped) == "was made before the protected namespace a-system was hit"


@pytest.mark.parametrize(("protected", "others"), [(2, 40), (31, 5), (32, 5), (33, 5)])
def test_code_names_no_other_namespace_beyond_thirty_two(protected: int, others: int) -> None:
    """Each costs four characters; numbers of two digits cost the same."""
    named = max(protected, 32)
    code = code_for(impact=hit(names=others, protected=namespaces(protected, "kube-")))
    assert len(code) == len(code_for(impact=hit(names=0, protected=namespaces(named, "kube-"))))


def test_namespace_that_became_protected_was_confirmed_all_the_same() -> None:
    code = code_for(impact=hit(names=["ml", "web"]))
    assert fault(code, impact=hit(names=["web"], protected=["ml"])) is None


@pytest.mark.parametrize(
    ("confirmed_by", "expected"),
    [
        (None, None),
        ("john", None),
        ("jane", "was given to the same user; another user must confirm"),
        ("Jane", None),
        ("", None),
    ],
)
def test_second_person(confirmed_by: str | None, expected: str | None) -> None:
    assert fault(code_for(user="jane"), terms=CodeTerms(NOW, 10, confirmed_by)) == expected


def test_code_does_not_tell_who_or_where() -> None:
    """It ends up in repositories and logs."""
    seals = {code_for(impact=hit(names=["ml"]), key=bytes([each]) * 32)[-38:-22] for each in range(64)}
    assert len(seals) == 64


def test_time_is_read_as_utc() -> None:
    read = read_code(make_code(ABOUT, hit(), "jane", datetime(2026, 6, 4, 14, tzinfo=UTC), SECRET))
    assert read is not None
    assert read.expires == datetime(2026, 6, 4, 14, tzinfo=UTC)


def spelt(seal_bytes: int) -> str:
    """A code of the right form with a seal of that many bytes."""
    seal = base64.urlsafe_b64encode(b"s" * seal_bytes).decode().rstrip("=")
    return f"v1.1.0.0.0.0.{seal}"


def test_code_has_at_most_16384_characters() -> None:
    assert (len(spelt(12278)), len(spelt(12279))) == (16384, 16385)
    assert read_code(spelt(12278)) is not None
    assert read_code(spelt(12279)) is None


def test_seal_has_at_least_22_bytes() -> None:
    assert read_code(spelt(22)) is not None
    assert read_code(spelt(21)) is None
