"""No cache of the process has keys of any size, or any number of them: what strangers send does not fill the memory."""

from __future__ import annotations

import asyncio
import copy
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from string import ascii_lowercase
from typing import Any, Final

import pytest

from tests.builders import (
    encoded,
    make_claim,
    make_device,
    make_meta,
    make_patch,
    make_request,
    make_review,
    make_rule,
    make_slice,
    make_taint,
    make_template,
    make_toleration,
)
from tests.caches import CONTAINERS, LRU, cached_functions, door_of, held, size_bytes
from tests.cases.corpus import cases, review_of
from tests.unit.admission.guarding import fleet
from tests.unit.inventory.values import inventory_of
from tests.unit.policy.documents import judge_of, make_entry, make_exception
from webhook.admission.context import Budget
from webhook.api.slices import DeviceClassSelectors
from webhook.expressions.selectors.selector import compile_selector
from webhook.inventory.state import Sight
from webhook.patches.filter_memo import FilterMemo
from webhook.patches.patch_reach import KnownPatches
from webhook.server.bodies import Shed
from webhook.server.http import Reviews
from webhook.server.responses import RequestRefused
from webhook.server.settings import ReviewSettings
from webhook.server.state import ReviewState
from webhook.telemetry.metrics import Metrics

MOST: Final = 10_000
"""Entries of any cache."""
ENTRY_BYTES: Final = 16 * 1024
"""Of a key and its value."""
LONG: Final = 12_000
"""Characters: more than any text that is kept, and more than any limit on a text."""
_DOORS: Final[dict[str, Callable[[Any], Callable[[Any], Any]]]] = {
    "KnownSpecs._read": lambda cached: cached.__wrapped__.__self__.get,
    "_remembered": lambda _: compile_selector,
}
"""Cached functions behind one that looks at the length itself."""
_OTHERS: Final = 100
_OF_PACKAGE: Final = {
    "webhook.api.schema.held_by",
    "webhook.expressions.selectors.kinds.named",
    "webhook.policy.schema._compiled",
}
"""What they are called with stands in files of the package."""
_OF_POLICIES: Final = {
    "webhook.admission.chain._allowed_by",
    "webhook.policy.limits._compiled",
    "webhook.policy.windows._opening_hours",
}
"""What they are called with are parts of the policy in use, which is no longer than a ConfigMap."""


def name_of(cached: Any) -> str:
    return f"{cached.__module__}.{cached.__qualname__}"


def parameters(cached: Any) -> list[str]:
    """Their types, as they are written."""
    return [str(each.annotation) for each in inspect.signature(cached.__wrapped__).parameters.values()]


def each_function(holds: Callable[[Any], bool]) -> pytest.MarkDecorator:
    found = {name_of(each): each for each in cached_functions() if holds(each)}
    return pytest.mark.parametrize("cached", found.values(), ids=found.keys())


def texts_of(cached: Any, length: int) -> Iterator[list[Any]]:
    """Arguments without end, of this many characters together; those of a JSON text are well-formed."""
    kinds = parameters(cached)
    share = length // len(kinds)
    for number in itertools.count():
        texts = [f"{number:08d}" + letter * (share - 8) for letter in ascii_lowercase[: len(kinds)]]
        yield [t if kind == "str" else f'{{"{t[:-5]}":0}}'.encode() for t, kind in zip(texts, kinds, strict=True)]


def takes_texts(cached: Any) -> bool:
    return bool(parameters(cached)) and set(parameters(cached)) <= {"str", "bytes"}


@each_function(lambda cached: bool(parameters(cached)))
def test_cached_function_has_a_bound_on_its_entries(cached: Any) -> None:
    assert 0 < (cached.cache_info().maxsize or 0) <= MOST


@each_function(lambda cached: bool(parameters(cached)))
def test_cached_function_takes_texts_or_what_has_a_bound_of_its_own(cached: Any) -> None:
    numbers = set(parameters(cached)) <= {"int", "bool", "int | None"}
    assert takes_texts(cached) or numbers or name_of(cached) in _OF_POLICIES | _OF_PACKAGE


@each_function(lambda cached: takes_texts(cached) and name_of(cached) not in _OF_PACKAGE)
def test_cached_function_keeps_no_long_text_and_no_more_than_its_bound(cached: Any) -> None:
    named = _DOORS.get(cached.__qualname__)
    door = door_of(cached) if named is None else named(cached)
    cached.cache_clear()
    for texts in itertools.islice(texts_of(cached, LONG), 3):
        door(*texts)
    assert cached.cache_info().currsize == 0
    most = cached.cache_info().maxsize
    for texts in itertools.islice(texts_of(cached, 300), most + 10):
        door(*texts)
    assert cached.cache_info().currsize == most, "it is no cache of short texts either"
    assert size_bytes(cached) < most * ENTRY_BYTES
    cached.cache_clear()


# --- what reviews leave behind -------------------------------------------------------------------


def server() -> Reviews:
    """One with everything that a review may come past: a policy, a candidate, an inventory, patches, classes."""
    rules = [
        make_entry("no-maintenance", "deny", {"tolerations": {"keys": ["maint.example.com/*"]}}),
        make_entry(
            "team", "warn", {"requesters": {"users": ["jane*"], "groups": ["ml-*"]}, "namespaces": {"names": ["m*"]}}
        ),
        make_entry("gpus", "allow", {"drivers": ["gpu.*"], "deviceClasses": ["gpu*"]}),
    ]
    taints = [make_entry("taints", "warn", {"taints": {"keys": ["gpu.*"]}, "drivers": ["gpu.*"]})]
    state = ReviewState()
    state.policies.use(judge_of(*rules, taintRules=taints, exceptions=[make_exception(rules=("team",))], mode="warn"))
    state.policies.use_candidate(judge_of(*rules[:2], default="deny"))
    inventory = inventory_of(*fleet())
    state.sight = lambda: Sight(inventory)
    memo = FilterMemo()
    state.patches = lambda: KnownPatches({}, {"gpu": DeviceClassSelectors("gpu")}, memo=memo)
    return Reviews(ReviewSettings(), Metrics(version="0", resources=("resourceclaims", "devicetaintrules")), state)


async def answer(reviews: Reviews, path: str, review: Any) -> None:
    route = reviews._route_to(f"{path}?timeout=30s")
    assert route is not None
    try:
        outcome = await reviews._review(route, encoded(review), Budget(route.seconds, lambda: 0.0))
    except Shed as shed:
        outcome = reviews._shed(route, shed)
    except RequestRefused:
        return
    reviews._finish(outcome, 0.0, "")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each text, and of each key of an object."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield (*path, key, None)
            yield from leaves(entry, (*path, key))
    elif isinstance(value, list):
        for position, entry in enumerate(value):
            yield from leaves(entry, (*path, position))
    elif isinstance(value, str):
        yield path


def with_long(review: Any, path: Sequence[Any], text: str) -> Any:
    """The review with the text in this place; `None` at the end of the path stands for the key."""
    changed = copy.deepcopy(review)
    *steps, last = path if path[-1] is not None else path[:-1]
    at = changed
    for step in steps:
        at = at[step]
    if path[-1] is None:
        at[text] = at.pop(last)
    else:
        at[last] = text
    return changed


def long_reviews() -> Iterator[Any]:
    """For each field of each kind one review with a long text in it that looks like what belongs there, and not."""
    numbers = itertools.count()
    seen: set[tuple[Any, ...]] = set()
    for case in cases():
        review = review_of(case)
        for path in leaves(review):
            place = case.kind, case.allowed, tuple(0 if isinstance(step, int) else step for step in path)
            if place not in seen:
                seen.add(place)
                number = f"{next(numbers):06d}"
                yield with_long(review, path, f"a{number}" + "a" * LONG)
                yield with_long(review, path, f"1.{number}" + "0" * LONG)


def long_texts(reviews: Reviews) -> dict[int, Any]:
    return {id(each): each for each in held(reviews) if isinstance(each, (str, bytes, bytearray)) and len(each) >= LONG}


def ordinary(names: str) -> list[Any]:
    """A review of each kind, by another requester each time."""
    user: dict[str, Any] = {"user": f"jane-{names}", "groups": [f"ml-{number}-{names}" for number in range(70)]}
    return [
        make_review(each, **user)
        for each in (
            make_claim([make_toleration()]),
            make_template([make_toleration()]),
            make_rule(),
            make_slice([make_device(taints=[make_taint()])]),
            make_patch(),
        )
    ]


@pytest.mark.slow
def test_no_review_leaves_a_long_text_behind() -> None:
    reviews = server()

    async def scenario() -> None:
        for review in long_reviews():
            for path in ("/validate", "/mutate"):
                await answer(reviews, path, review)
        for review in [*ordinary("one"), *ordinary("other")]:  # what is kept is the last requester, for one
            await answer(reviews, "/validate", review)

    before = long_texts(reviews)
    asyncio.run(scenario())
    assert [each[:40] for key, each in long_texts(reviews).items() if key not in before] == []


def varied(number: int) -> Iterator[Any]:
    """Reviews with a name of their own in each place; of kinds that take longer only a few, with many names each."""
    name = f"n{number:05d}"
    key = f"{name}.example.com/{name}"
    who: dict[str, Any] = {"user": f"user-{name}", "groups": [f"group-{name}"], "uid": name}
    tolerations = [make_toleration(key=key, value=name, operator="Equal"), make_toleration(key=f"{key}2")]
    request = make_request(name, tolerations, deviceClassName=f"{name}.example.com")
    yield make_review(make_claim(requests=[request], meta=make_meta(name, namespace=name)), **who)
    if number >= _OTHERS:
        return
    meta = make_meta(name, annotations={key: name}, labels={name: name})
    taint = make_taint(key=key, value=name)
    selector = {"driver": f"{name}.example.com", "pool": name, "device": name}
    devices = [make_device(f"{name}-{each}", [make_taint(key=f"{key}-{each}", value=f"{each}")]) for each in range(120)]
    yield make_review(make_template(requests=[request], meta=meta | {"namespace": name}), **who)
    yield make_review(make_rule(selector=selector, taint=taint, meta=meta), **who)
    yield make_review(make_slice(devices, driver=f"{name}.example.com", pool=name), **who)
    yield make_review(make_patch(filter_=selector, taints=[taint], meta=meta), **who)


@pytest.mark.slow
@pytest.mark.whole
def test_no_container_grows_with_the_number_of_reviews() -> None:
    reviews = server()

    async def scenario() -> None:
        for number in range(MOST + 500):
            for review in varied(number):
                await answer(reviews, "/validate", review)

    asyncio.run(scenario())
    for each in held(reviews):
        if isinstance(each, LRU):
            assert each.cache_info().currsize <= MOST
        elif isinstance(each, CONTAINERS):
            assert len(each) <= MOST, list(itertools.islice(each, 3))
