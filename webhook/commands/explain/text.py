"""An explanation as text: first what comes of it, then why, and what is not known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from webhook.commands.explain.values import SubjectKind
from webhook.commands.status.report import WORDS
from webhook.eviction.modes import Mode
from webhook.files.report import shortened, visible
from webhook.inventory.pools import Evictor
from webhook.inventory.preview import PodOutcome

_OURS: Final = Evictor.OURS.value
_EVICTORS: Final = {
    _OURS: "our worker",
    Evictor.IN_TREE.value: "the in-tree controller",
}
_MEANINGS: Final = {
    "NotTolerated": "not tolerated: evicts",
    "EffectNotNamed": "evicts: the in-tree controller passes over {toleration}, since it does not name NoExecute",
    "ToleratedForSeconds": "tolerated until {until} by {toleration}",
    "Tolerated": "tolerated for ever by {toleration}",
    "ToleratesScheduling": "not evicted: {toleration} would bring it back to the same device",
    "ExtendedResource": "evicts through an extended resource: {byRelease}",
    "AllocationOnly": "evicts no pod",
}
_NO_NODE: Final = "is not evicted before it is on a node"
_DATA_SHOWN: Final = 200
_SHOWN_MOST: Final = 20
"""Pods, devices and claims that a text lists; JSON has all."""


def as_text(values: dict[str, Any]) -> str:
    """Return the whole explanation."""
    writers: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
        SubjectKind.POD: _pod,
        SubjectKind.CLAIM: _claim,
        SubjectKind.DEVICE: _device,
        SubjectKind.RULE: _rule,
    }
    lines = writers[values["kind"]](values)
    text = [*lines]
    for each in values["reported"]:
        old = "" if each["current"] else " (of an earlier version of the rule)"
        message = f": {each['message']}" if each["message"] else ""
        text.append(f"{each['rule']} reports {each['type']}={each['status']}, {each['reason']}{message}{old}")
    text += [f"unknown: {each}" for each in values["unknown"]]
    text += [f"error: {each['message']}" for each in values["findings"]]
    return "\n".join(map(visible, text)) + "\n"


# --- pods and claims ----------------------------------------------------------------------------


def _pod(values: dict[str, Any]) -> Iterator[str]:
    name = f"pod {values['namespace']}/{values['name']}"
    if not values["claims"] and not values.get("claimsNotFound"):
        yield f"{name} uses no device: no taint of a device concerns it"
        return
    node = f" on node {values['node']}" if values["node"] else ""
    yield f"{name}{node}: {_outcome(values)}"
    if values["hold"] is not None:
        yield f"  hold: {values['hold'] or '(without a text)'}"
    for each in values["evictions"]:
        yield from _eviction(each, values["worker"])
    for claim in values["claims"]:
        yield ""
        yield from _claim(claim, alone=False)
    for key in values["claimsNotFound"]:
        yield f"claim {key} is not there, or not known"
    for key in values["claimsNotReserved"]:
        yield f"claim {key} is not reserved for this pod"


def _outcome(values: dict[str, Any]) -> str:
    pending = [each for each in values["evictions"] if each["state"] != "skipped"]
    if pending:
        if pending[0]["state"] in {"terminating", "stuck"}:
            return "is terminating"
        acting = any(not _idle(each["evictor"], values["worker"]) for each in pending)
        return "is to be evicted" if acting else "would be evicted, and nothing evicts it"
    taints = [taint for claim in values["claims"] for device in claim["devices"] for taint in device["taints"]]
    if not values["node"] and any(taint["outcome"] == "Evicted" for taint in taints):
        return _NO_NODE
    if values["unknown"]:
        return "is not evicted by any taint that could be read"
    return "is not evicted" if taints else "is not evicted: none of its devices is tainted"


def _idle(evictor: str | None, worker: dict[str, Any], *, asked: bool = True) -> str:
    """Return why the evictor of a taint does not act on it; empty if it does. `asked`: its rule has `/evict`."""
    if evictor != _OURS:
        return ""
    if not worker["runs"]:
        return "no eviction worker is known"
    if worker["mode"] == Mode.OBSERVE or (worker["mode"] == Mode.DELEGATED and not asked):
        return f"our worker is in mode {worker['mode']}"
    return ""


def _eviction(each: dict[str, Any], worker: dict[str, Any]) -> Iterator[str]:
    causes = [f"DeviceTaintRule {name}" for name in each["rules"]]
    causes += [f"taints in slices of {name}" for name in each["drivers"]]
    due = f", due {each['due']}" if each["due"] else ""
    idle = _idle(each["evictor"], worker)
    by = f"by no one, since {idle}" if idle else f"by {_EVICTORS[each['evictor']]}"
    yield f"  {by}{due}, for {' and '.join(causes)}"
    since = f" since {each['since']}" if each["since"] else ""
    state = WORDS.get(each["state"], each["state"])
    yield f"  {state}{since}: waits for {each['waitsFor']['message']}"


def _claim(claim: dict[str, Any], *, alone: bool = True) -> Iterator[str]:
    state = "" if claim["allocated"] else ": no device is allocated to it"
    yield f"claim {claim['namespace']}/{claim['name']}{state}"
    for device in claim["devices"]:
        gone = "" if device["published"] is not False else ", which is not published any more"
        yield f"  request {device['request']}: {device['driver']}/{device['pool']}/{device['device']}{gone}"
        if not device["taints"]:
            yield "    no taint"
        for taint in device["taints"]:
            yield f"    {_taint(taint)}: {_meaning(taint)}{_ruled(taint)}"
    policy = claim["policy"]
    if policy is None:
        yield "  what the policy says of its tolerations is not known"
    else:
        yield from _policy(policy)
    if alone:
        yield f"  reserved for {', '.join(claim['reservedFor']) or 'nothing'}"


def _taint(taint: dict[str, Any], *, named: bool = True) -> str:
    """Return the taint in words; `named`: with where it comes from."""
    value = f"={taint['value']}" if taint["value"] else ""
    source = f" by DeviceTaintRule {taint['rule']}" if taint["rule"] else " in its ResourceSlice"
    evict = ", evict" if taint["evict"] else ""
    since = f", since {taint['timeAdded']}" if taint["timeAdded"] else ""
    passed_over = ", ".join(taint["notJudged"])
    odd = f", if {passed_over} of its selector, which cannot be judged here, selects this device" if passed_over else ""
    data = f", data {shortened(taint['data'], _DATA_SHOWN)}" if taint["data"] is not None else ""
    return f"{taint['key']}{value}:{taint['effect']}{evict}{source if named else ''}{since}{data}{odd}"


def _meaning(taint: dict[str, Any]) -> str:
    toleration = "" if taint["toleration"] is None else taint["toleration"]["text"]
    until = taint["until"] or "a time that is not known"
    start = f" (not before {taint['notBefore']})" if taint["notBefore"] and taint["outcome"] == "Evicted" else ""
    return _MEANINGS[taint["reason"]].format(toleration=toleration, until=until, byRelease=taint["byRelease"]) + start


def _ruled(taint: dict[str, Any]) -> str:
    ruled = taint.get("policy")
    if ruled is None:
        return ""
    rule = f"rule {ruled['rule']}" if ruled["rule"] else "no rule decides"
    return f"; the policy would {'refuse' if ruled['decision'] == 'denied' else 'allow'} that today: {rule}"


def _policy(policy: dict[str, Any]) -> Iterator[str]:
    for note in policy["notes"]:
        yield f"  policy: {note}"
    for walk in policy["walks"]:
        rule = f"rule {walk['decidedBy']}" if walk["decidedBy"] else "no rule decides"
        yield f"  policy: {walk['path']}: {walk['what']}: {walk['decision']} ({rule})"
    if policy["walks"]:
        yield f"  policy: its author is {policy['author']}"


# --- devices and rules --------------------------------------------------------------------------


def _device(values: dict[str, Any]) -> Iterator[str]:
    name = f"{values['driver']}/{values['pool']}/{values['device']}"
    state = {True: "published", False: "not published", None: "not known to be published"}[values["published"]]
    partly = ", by a pool that is incomplete" if values["poolComplete"] is False else ""
    yield f"device {name}: {state}{partly}"
    for taint in values["taints"]:
        idle = _idle(taint["evictor"], values["worker"], asked=taint["evict"])
        by = f"no one, since {idle}" if idle else _EVICTORS.get(taint["evictor"])
        yield f"  {_taint(taint)}: {f'carried out by {by}' if by else 'evicts no pod'}"
    if not values["taints"]:
        yield "  no taint"
    for claim in values["claims"]:
        users = ", ".join(claim["reservedFor"]) or "nothing"
        yield f"claim {claim['namespace']}/{claim['name']}, request {claim['request']}, reserved for {users}"
        for taint in claim["taints"]:
            yield f"  {taint['key']}:{taint['effect']}: {_meaning(taint)}"
    if not values["claims"]:
        yield "no claim holds it" if not values["unknown"] else "no claim that is known holds it"
    for sibling in _first(values["siblings"]):
        users = ", ".join(sibling["reservedFor"]) or "nothing"
        tainted = ", ".join(f"{each['key']}:{each['effect']}" for each in sibling["taints"]) or "no taint"
        yield f"same hardware: {sibling['device']}: {tainted}; reserved for {users}"
    yield from _rest(values["siblings"])


def _rule(values: dict[str, Any]) -> Iterator[str]:
    computed = {name: "?" if value is None else value for name, value in values["computed"].items()}
    confirmation = values["confirmation"]
    yield f"DeviceTaintRule {values['name']}: {_taint(values['taint'], named=False)}"
    selection = _selection(values["selector"])
    yield f"  selects {selection}: {computed['devices']} devices, {computed['allocated']} allocated"
    for name in ("description", "owner", "ticket", "notBefore", "expiresAt", "softenedFrom", "writtenFor"):
        if values[name]:
            yield f"  {name}: {values[name]}"
    if values["incompletePools"]:
        yield f"  pools that are not published in full: {', '.join(values['incompletePools'])}"
    siblings = [f"same hardware, in service: {sibling}" for sibling in _first(values["siblings"])]
    yield from (f"  {each}" for each in (*siblings, *_rest(values["siblings"])))
    evictors = " and ".join(_EVICTORS[each] for each in computed["evictors"])
    evicted = "" if values["evicted"] is None else f"; {values['evicted']} evicted so far"
    by = f"to be evicted by {evictors}" if evictors else "would be evicted, and nothing evicts for it"
    yield f"  {computed['pending']} pods {by}{evicted}"
    if confirmation["needed"]:
        yield f"  waits for a confirmation; this prints the text for it: {confirmation['command']}"
    elif confirmation["needed"] is None:
        yield f"  whether it needs a confirmation is not known: {confirmation['why']}"
    for pod in _first(values["pods"]):
        due = f", due {pod['due']}" if pod["due"] else ""
        state = WORDS.get(pod["state"], pod["state"])
        yield f"pod {pod['namespace']}/{pod['name']}: {state}{due}: waits for {pod['waitsFor']['message']}"
    yield from _rest(values["pods"])
    for pod in _first(values["staying"]):
        toleration = "" if pod["toleration"] is None else f": {pod['toleration']['text']}"
        stays = _NO_NODE if pod["outcome"] == PodOutcome.NO_NODE else f"stays, {pod['reason']}{toleration}"
        yield f"pod {pod['namespace']}/{pod['name']}: {stays}"
    yield from _rest(values["staying"])


def _selection(selector: dict[str, Any] | None) -> str:
    if selector is None:
        return "every device, since it has no selector"
    names = ", ".join(f"{name} {selector[name]}" for name in ("driver", "pool", "device") if selector[name])
    passed_over = ", ".join(selector["notJudged"])
    odd = f", narrowed down by {passed_over}, which cannot be judged here" if passed_over else ""
    return f"{names or 'every device'}{odd}"


def _first(entries: list[Any]) -> list[Any]:
    return entries[:_SHOWN_MOST]


def _rest(entries: list[Any]) -> Iterator[str]:
    if len(entries) > _SHOWN_MOST:
        yield f"and {len(entries) - _SHOWN_MOST} more; -o json has all"
