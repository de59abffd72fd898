"""One object, two judges: a real API server and our pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.apiserver.facts import renews_time
from tests.apiserver.generator import GROUP, NAMESPACE, NAMESPACED, PLURALS, Case
from tests.controlplane.client import Client, Reply, path
from webhook.admission.chain import mutate, validate
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import apply_patch
from webhook.admission.review import AdmissionRequest
from webhook.api.meta import GroupVersionKind, GroupVersionResource, parse_time
from webhook.policy.decide import Judge
from webhook.policy.model import Policy, PolicyMode
from webhook.validation.releases import Release

JSON = Any
Errors = frozenset[tuple[str, str]]
"""(field, type) of each error; None in its place where the object could not even be decoded."""


@dataclass(frozen=True)
class Verdict:
    """Whether an object may be stored, and what is wrong with it."""

    allowed: bool
    errors: Errors | None = frozenset()


@dataclass
class Disagreement:
    """What the two judges said of one object."""

    case: Case
    ours: Verdict
    theirs: Verdict
    message: str

    def __str__(self) -> str:
        shown = json.dumps(self.case.object, ensure_ascii=True)
        return (
            f"{self.case.kind} {self.case.version} {'update of ' + self.case.stored if self.case.stored else 'create'}"
            f"{' status' if self.case.status else ''}\n  ours   {_shown(self.ours)}\n  theirs {_shown(self.theirs)}\n"
            f"  server says: {self.message[:400]}\n  object: {shown[:800]}"
        )

    @property
    def sort(self) -> tuple[object, ...]:
        """What is the same in disagreements that have one reason."""
        mine, yours = self.ours.errors or frozenset(), self.theirs.errors or frozenset()
        differ = sorted({(re.sub(r"[0-9]+", "N", field), kind) for field, kind in mine ^ yours})
        return (self.case.kind, bool(self.case.stored), self.ours.allowed, self.theirs.allowed, tuple(differ))


def _shown(verdict: Verdict) -> str:
    return f"{'allowed' if verdict.allowed else 'refused'} {sorted(verdict.errors) if verdict.errors else ''}"


def request_of(case: Case, old: Mapping[str, JSON] | None) -> AdmissionRequest:
    """What the API server would ask the webhook about this case."""
    meta = case.object.get("metadata", {})
    name = meta.get("name", "")
    return AdmissionRequest(
        "generated",
        "UPDATE" if case.stored else "CREATE",
        GroupVersionResource(GROUP, case.version, case.plural),
        "status" if case.status else "",
        GroupVersionKind(GROUP, case.version, case.kind),
        name=name if isinstance(name, str) else "",
        object=case.object,
        old_object=old,
    )


def our_verdict(case: Case, old: Mapping[str, JSON] | None, release: Release, now: datetime) -> Verdict:
    """What the pure functions say, without the rules that only we have."""
    context = AdmissionContext(now=now, release=release, judge=Judge(Policy(documented_rules=PolicyMode.OFF)))
    decision = validate(request_of(case, old), context)
    errors = frozenset((error.field, error.type.value) for error in decision.errors)
    undecodable = decision.problem is not None or any(kind == "FieldValueTypeInvalid" for _, kind in errors)
    return Verdict(decision.allowed, None if undecodable else errors)


def their_verdict(reply: Reply) -> Verdict:
    """What the API server says."""
    if reply.ok:
        return Verdict(allowed=True)
    if reply.code == 422:
        return Verdict(allowed=False, errors=frozenset((cause.field, cause.reason) for cause in reply.causes))
    return Verdict(allowed=False, errors=None)


def send(client: Client, case: Case) -> Reply:
    """The case as a dry run."""
    api_version = f"{GROUP}/{case.version}"
    namespace = NAMESPACE if case.kind in NAMESPACED else ""
    if not case.stored:
        return client.create(path(api_version, case.plural, namespace=namespace), case.object, dry_run=True)
    subresource = "status" if case.status else ""
    url = path(api_version, case.plural, namespace=namespace, name=case.stored, subresource=subresource)
    return client.replace(url, case.object, dry_run=True)


@dataclass
class Comparison:
    client: Client
    release: Release
    stored: Mapping[tuple[str, str], Mapping[str, Mapping[str, JSON]]]
    """(kind, version) -> name -> the object as the server shows it."""
    disagreements: list[Disagreement] = field(default_factory=list)
    mutations_differ: list[str] = field(default_factory=list)
    count: int = 0
    accepted: int = 0
    updates: int = 0
    undecodable: int = 0
    mutations: int = 0
    versions: dict[str, int] = field(default_factory=dict)

    def judge(self, case: Case) -> tuple[Verdict, Mapping[str, JSON] | None]:
        """Ask both, and note where they disagree. Returns the server's verdict and the stored object."""
        old = self.stored[case.kind, case.version][case.stored] if case.stored else None
        before = datetime.now(UTC)  # noqa: TID251 -- a server's clock cannot be passed in
        reply = send(self.client, case)
        after = datetime.now(UTC)  # noqa: TID251 -- likewise
        ours, theirs = our_verdict(case, old, self.release, before), their_verdict(reply)
        self.count += 1
        self.accepted += theirs.allowed
        self.updates += bool(case.stored)
        self.undecodable += theirs.errors is None
        self.versions[case.version] = self.versions.get(case.version, 0) + 1
        if ours.allowed != theirs.allowed or (theirs.errors is not None and ours.errors != theirs.errors):
            self.disagreements.append(Disagreement(case, ours, theirs, reply.message))
        elif theirs.allowed and not case.status:
            self._compare_mutation(case, old, reply.object, before, after)
        return theirs, old

    def _compare_mutation(
        self, case: Case, old: Mapping[str, JSON] | None, stored: JSON, before: datetime, after: datetime
    ) -> None:
        """What we would store, against what the server stores: taints' times and tolerations' operators."""
        context = AdmissionContext(now=before, release=self.release)
        ours = apply_patch(case.object, mutate(request_of(case, old), context).patch)
        self.mutations += 1
        now = (before - timedelta(seconds=1), after + timedelta(seconds=1))
        for (where, mine), (_, theirs), (_, sent) in zip(
            defaulted(ours), defaulted(stored), defaulted(case.object), strict=True
        ):
            if mine == theirs:
                continue
            my_time, their_time = parse_time(mine or ""), parse_time(theirs or "")
            if my_time is not None and my_time == their_time:
                continue  # another zone or a fraction, the same second
            if their_time is None and my_time is not None and my_time.year == 1:
                continue
            kept = old is not None and sent is not None and their_time == parse_time(sent)
            left_to_us = kept and not renews_time(self.release) and where.endswith(".taint.timeAdded")
            if left_to_us and my_time and now[0] <= my_time <= now[1]:
                continue  # D-4
            if my_time and their_time and now[0] <= their_time <= now[1]:
                carried = old is not None and sent is None  # D-2: we keep the stored time, on purpose
                if carried or now[0] <= my_time <= now[1]:
                    continue
            self.mutations_differ.append(f"{case.kind} {case.version} {where}: ours {mine!r}, theirs {theirs!r}")


def defaulted(value: JSON, where: str = "") -> Iterator[tuple[str, str | None]]:
    """Every field that defaulting may set, in document order: times of taints, operators of tolerations."""
    if isinstance(value, dict):
        for name in sorted(value):
            entry = value[name]
            at = f"{where}.{name}"
            if name == "taint" and isinstance(entry, dict):
                yield f"{at}.timeAdded", entry.get("timeAdded")
            elif name in ("taints", "tolerations") and isinstance(entry, list):
                wanted = "timeAdded" if name == "taints" else "operator"
                for position, item in enumerate(entry):
                    yield f"{at}[{position}].{wanted}", item.get(wanted) or None
            elif name in ("spec", "devices", "requests", "exactly", "firstAvailable", "basic"):
                yield from defaulted(entry, at)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from defaulted(item, f"{where}[{position}]")


def stored_objects(client: Client, versions: Mapping[str, tuple[str, ...]]) -> dict[tuple[str, str], dict[str, JSON]]:
    """Everything that is stored, as each version shows it."""
    stored: dict[tuple[str, str], dict[str, JSON]] = {}
    for kind, served in versions.items():
        for version in served:
            namespace = NAMESPACE if kind in NAMESPACED else ""
            items = client.get(path(f"{GROUP}/{version}", PLURALS[kind], namespace=namespace)).items
            for item in items:
                item |= {"apiVersion": f"{GROUP}/{version}", "kind": kind}  # lists leave them out
            stored[kind, version] = {item["metadata"]["name"]: item for item in items}
    return stored
