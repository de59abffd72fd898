"""Objects to try laws on: any JSON at all, nearly right objects of every kind, and right ones."""

from __future__ import annotations

import copy
import json
import math
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from tests.builders import (
    DRIVER,
    encoded,
    make_claim,
    make_meta,
    make_patch,
    make_review,
    make_rule,
    make_slice,
    make_template,
)

if TYPE_CHECKING:
    from random import Random

    from hypothesis.strategies import SearchStrategy

FLAGS: Final = (True, False)
EFFECTS: Final = ("None", "NoSchedule", "NoExecute")
TIMES: Final = ("2026-05-01T00:00:00Z", "2026-06-01T11:59:30Z", "2026-06-01T12:00:00Z", "2027-01-01T00:00:00Z")
NOW_IN_ANOTHER_ZONE: Final = "2026-06-01T14:00:00.5+02:00"

# --- any JSON -----------------------------------------------------------------------------------

scalars: SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)
any_json: SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=8,
)


def nearly(*values: Any) -> SearchStrategy[Any]:
    """Mostly one of these values, now and then any scalar."""
    return st.one_of(st.sampled_from(values), st.sampled_from(values), scalars)


def objects(**fields: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    """An object with some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def lists(entries: SearchStrategy[Any], max_size: int = 3) -> SearchStrategy[Any]:
    """A list of them, now and then with a null, now and then no list."""
    return st.one_of(st.lists(entries, max_size=max_size), st.lists(st.one_of(entries, st.none()), max_size=2), scalars)


# --- nearly right -------------------------------------------------------------------------------

keys = nearly("", "a", "gpu.example.com/xid", "k8s.io/x", "A/b", "a/b/c", "-", "k" * 64)
values = nearly("", "v", "w", "-", "v" * 64)
effects = nearly(*EFFECTS, "", "Evict")
times = nearly(*TIMES, "", "yesterday", NOW_IN_ANOTHER_ZONE)

taints = objects(
    key=keys,
    value=values,
    effect=effects,
    timeAdded=times,
    data=any_json,
    description=st.text(max_size=5),
    evictionsPerSecond=nearly(-1, 0, 1),
)
tolerations = objects(
    key=keys,
    operator=nearly("", "Equal", "Exists", "Gt"),
    value=values,
    effect=effects,
    tolerationSeconds=nearly(-1, 0, 5, 2**63 - 1),
)
cel_selectors = objects(cel=objects(expression=nearly("true", "", "a ==", "device.driver == 'x'")))
selectors = objects(
    driver=nearly(DRIVER, "", "GPU.example.com", "-"),
    pool=nearly("node-0", "", "a/b", "/"),
    device=nearly("gpu-0", "", "a.b"),
    deviceClassName=nearly("gpu", "", "-"),
    selectors=lists(cel_selectors, 2),
    all=scalars,
)
exact_fields = {
    "deviceClassName": nearly("gpu", ""),
    "adminAccess": nearly(*FLAGS),
    "tolerations": lists(tolerations),
}
requests = objects(
    name=nearly("gpu"),
    exactly=objects(**exact_fields),
    firstAvailable=lists(objects(name=nearly("a", "b"), **exact_fields), 2),
    **exact_fields,
)
devices = objects(
    name=nearly("gpu-0", "gpu-1"),
    taints=lists(taints),
    basic=objects(taints=lists(taints)),
    consumesCounters=lists(objects(), 1),
    attributes=st.dictionaries(st.text(max_size=3), any_json, max_size=2),
)
conditions = objects(
    type=nearly("A", "B", "", "-"),
    status=nearly("True", "False", "true", ""),
    reason=nearly("Done", "", "-"),
    message=nearly("", "text"),
    observedGeneration=nearly(1, -1),
    lastTransitionTime=times,
)
attributes = objects(
    int=nearly(1), bool=nearly(*FLAGS), string=nearly("s", "s" * 65), version=nearly("1.2.3", "1.2"), null=objects()
)
metadata = objects(
    name=nearly("example", "", "-"),
    generateName=nearly("example-", ""),
    namespace=nearly("ml"),
    resourceVersion=nearly("7", ""),
    deletionTimestamp=nearly("2026-06-01T12:00:00Z"),
    annotations=st.one_of(
        scalars,
        st.dictionaries(
            st.sampled_from(
                [f"devicetaint.io/{name}" for name in ("data", "evict", "evictions-per-second", "expires-at", "x")]
            ),
            nearly("true", "false", "{}", "[]", "0", "10", "2026-06-01T12:00:00Z"),
            max_size=3,
        ),
    ),
)
claim_specs = objects(devices=objects(requests=lists(requests)))
claim_statuses = objects(
    allocation=objects(
        devices=objects(results=lists(objects(device=nearly("gpu-0"), tolerations=lists(tolerations)), 2))
    ),
    reservedFor=lists(objects(resource=nearly("pods"), name=nearly("p"), uid=nearly("u")), 1),
)
slice_specs = objects(
    driver=nearly(DRIVER, ""),
    pool=objects(name=nearly("node-0", ""), generation=nearly(1), resourceSliceCount=nearly(1)),
    nodeName=nearly("node-0", "node-1"),
    devices=lists(devices),
    taints=lists(objects(device=nearly("gpu-0", ""), taint=taints), 2),
    sharedCounters=lists(objects(), 1),
)
rule_specs = objects(deviceSelector=selectors, taint=taints)
patch_specs = objects(
    devices=objects(
        filter=selectors,
        priority=nearly(0, -1),
        attributes=st.dictionaries(nearly("a/b", "b", "").map(str), attributes, max_size=2),
        capacity=st.dictionaries(nearly("a/b", "b").map(str), any_json, max_size=2),
        taints=lists(taints),
    )
)


def _rooted(manifest: dict[str, Any], spec: SearchStrategy[Any], status: SearchStrategy[Any]) -> SearchStrategy[Any]:
    identity = {"apiVersion": st.just(manifest["apiVersion"]), "kind": st.just(manifest["kind"])}
    return st.fixed_dictionaries(identity, optional={"metadata": metadata, "spec": spec, "status": status})


_nothing = st.nothing()
NEARLY_RIGHT: Final[dict[str, SearchStrategy[Any]]] = {
    f"{manifest['kind']} {manifest['apiVersion'].rpartition('/')[2]}": _rooted(manifest, spec, status)
    for manifest, spec, status in (
        (make_claim(), claim_specs, claim_statuses),
        (make_claim(version="v1beta2"), claim_specs, claim_statuses),
        (make_claim(version="v1beta1"), claim_specs, claim_statuses),
        (make_template(), objects(spec=claim_specs, metadata=metadata), any_json),
        (make_template(version="v1beta1"), objects(spec=claim_specs), any_json),
        (make_slice(), slice_specs, any_json),
        (make_slice(version="v1beta1"), slice_specs, any_json),
        (make_slice(version="v1alpha3"), slice_specs, any_json),
        (make_rule(), rule_specs, objects(conditions=lists(conditions, 2))),
        (make_rule(version="v1alpha3"), rule_specs, objects(conditions=lists(conditions, 2))),
        (make_patch(), patch_specs, any_json),
    )
}
"""For each kind and shape, objects of which about everything may be missing or wrong."""
nearly_right: SearchStrategy[Any] = st.one_of(*NEARLY_RIGHT.values())

# --- right --------------------------------------------------------------------------------------

right_keys = st.sampled_from(("a", "B", "gpu.example.com/xid", "x/" + "k" * 63))
right_taints: SearchStrategy[Any] = st.fixed_dictionaries(
    {"key": right_keys, "effect": st.sampled_from(EFFECTS)},
    optional={
        "value": st.sampled_from(("", "v", "w")),
        "timeAdded": st.one_of(st.none(), st.sampled_from((*TIMES, NOW_IN_ANOTHER_ZONE))),
    },
)
right_tolerations: SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries(
        {"operator": st.just("Exists")},
        optional={
            "key": st.one_of(st.just(""), right_keys),
            "effect": st.sampled_from(("", *EFFECTS)),
            "tolerationSeconds": st.sampled_from((None, -1, 0, 5, 2**63 - 1)),
        },
    ),
    st.fixed_dictionaries(
        {"key": right_keys},
        optional={
            "operator": st.sampled_from(("", "Equal", None)),
            "value": st.sampled_from(("", "v")),
            "effect": st.sampled_from(("", *EFFECTS)),
        },
    ),
)
toleration_lists: SearchStrategy[Any] = st.one_of(st.none(), st.lists(right_tolerations, max_size=16))


@st.composite
def _right_requests(draw: st.DrawFn, version: str) -> list[Any]:
    found: list[Any] = []
    for number in range(draw(st.integers(1, 3))):
        name, tolerated = f"r{number}", draw(toleration_lists)
        exact = {"deviceClassName": "gpu"} | ({} if tolerated is None else {"tolerations": tolerated})
        if draw(st.booleans()):
            found.append({"name": name, "firstAvailable": [{"name": "a", **exact}]})
        else:
            found.append({"name": name, **exact} if version == "v1beta1" else {"name": name, "exactly": exact})
    return found


@st.composite
def _right_slices(draw: st.DrawFn, version: str) -> Any:
    lists_of_taints = draw(st.lists(st.lists(right_taints, max_size=4), max_size=4))
    contents = [({"taints": each} if each else {}) for each in lists_of_taints]
    wrapped = [{"basic": each} if version == "v1beta1" else each for each in contents]
    return make_slice([{"name": f"gpu-{at}", **each} for at, each in enumerate(wrapped)], version=version)


@st.composite
def _right_rules(draw: st.DrawFn, version: str) -> Any:
    selector = draw(
        objects(driver=st.just(DRIVER), pool=st.sampled_from(("a", "a/b")), device=st.sampled_from(("gpu-0", "1")))
    )
    annotations = draw(st.sampled_from((None, {"devicetaint.io/evict": "true"}, {"devicetaint.io/evict": "false"})))
    return make_rule(
        selector=draw(st.sampled_from((None, selector))),
        taint=draw(right_taints),
        version=version,
        annotations=annotations,
        resource_version="7",
    )


@st.composite
def _right_patches(draw: st.DrawFn) -> Any:
    return make_patch(
        filter_=draw(st.sampled_from((None, {}, {"driver": DRIVER}))),
        taints=draw(st.lists(right_taints, max_size=4)),
        meta=make_meta("firmware"),
    )


RIGHT: Final[dict[str, SearchStrategy[Any]]] = {
    "claim": st.sampled_from(("v1", "v1beta2", "v1beta1")).flatmap(
        lambda version: _right_requests(version).map(lambda found: make_claim(requests=found, version=version))
    ),
    "template": st.sampled_from(("v1", "v1beta1")).flatmap(
        lambda version: _right_requests(version).map(lambda found: make_template(requests=found, version=version))
    ),
    "slice": st.sampled_from(("v1", "v1beta1")).flatmap(_right_slices),
    "rule": st.sampled_from(("v1", "v1beta2", "v1alpha3")).flatmap(_right_rules),
    "patch": _right_patches(),
}
right: SearchStrategy[Any] = st.one_of(*RIGHT.values())

# --- hostile bodies -----------------------------------------------------------------------------

BODIES_PER_EXAMPLE: Final = 200
"""One drawn review gives so many bodies: drawing costs much more than judging."""
_STRANGE: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1.5, 2**63, 2**64, -(2**80), 1e300),
    *("", "\u0000", "x" * 300, "\U0001f4a5", "2026-06-01T12:00:00Z"),
    *([], {}, [None], [[]], [{}], {"": None}, {"a": {"b": {"c": []}}}, [1, "a", None, {}]),
    *({"taints": [{}]}, {"basic": None}),
)
_STRANGE_BYTES: Final = (
    b"",
    b"\x00",
    b"\xff",
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b",",
    b":",
    b"null",
    b"1e999",
    b"\\ud800",
    b"-",
)


def mutated_bodies(review: Any, random: Random) -> list[bytes]:
    """The review, spoilt in so many ways: values replaced, removed, moved; and bytes of it."""
    bodies = []
    for _ in range(BODIES_PER_EXAMPLE):
        spoilt = copy.deepcopy(review)
        for _ in range(random.randint(0, 3)):
            _spoil(spoilt, random)
        body = encoded(spoilt)
        bodies.append(_spoil_bytes(body, random) if random.random() < 0.2 else body)
    return bodies


def _spoil(root: Any, random: Random) -> None:
    """Change one place, deep or not; the envelope is spared most of the time, as most would end there."""
    places: list[tuple[Any, Any]] = []
    start = root["request"] if random.random() < 0.9 and isinstance(root.get("request"), dict) else root
    if random.random() < 0.8 and isinstance(start.get("object"), dict):
        start = start["object"]
    _collect(start, places)
    if not places:
        return
    container, at = random.choice(places)
    choice = random.randrange(5)
    if choice == 0:
        del container[at]
    elif choice == 1:
        container[at] = copy.deepcopy(
            container[random.choice(list(container))] if isinstance(container, dict) else container
        )
    elif choice == 2 and isinstance(container, list):
        container.extend(copy.deepcopy(container) * random.randint(1, 20))
    elif choice == 3 and isinstance(container, dict):
        container[random.choice(("taints", "tolerations", "basic", "spec", "x", "", "devices"))] = container.pop(at)
    else:
        container[at] = copy.deepcopy(random.choice(_STRANGE))


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for at, entry in list(entries):
        places.append((value, at))
        _collect(entry, places)


def _spoil_bytes(body: bytes, random: Random) -> bytes:
    at = random.randrange(len(body) + 1)
    end = min(len(body), at + random.choice((0, 1, 1, 5, len(body))))
    return body[:at] + random.choice(_STRANGE_BYTES) + body[end:]


def uid_in(body: bytes) -> str | None:
    """The uid that an answer to the body has to repeat, found by another decoder than ours; None if there is none."""
    try:
        # Python's decoder alone would take other encodings, NaN, infinity and halves of surrogate pairs as well.
        review = json.loads(body.decode(), parse_constant=_refuse, parse_float=_finite)
        json.dumps(review, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    request = review.get("request") if isinstance(review, dict) else None
    uid = request.get("uid") if isinstance(request, dict) else None
    return uid if isinstance(uid, str) and uid else None


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


reviews: SearchStrategy[Any] = st.builds(
    lambda new, old, sub: make_review(new, old, sub_resource=sub),
    right,
    st.none(),
    st.sampled_from((None, "status")),
) | right.flatmap(
    lambda new: st.builds(
        lambda sub: make_review(new, copy.deepcopy(new), sub_resource=sub), st.sampled_from((None, "status"))
    )
)
"""Reviews of right objects, created and updated."""
