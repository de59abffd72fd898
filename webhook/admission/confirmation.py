"""The code that confirms an impact: `v1.<expires>.<devices>.<claims>.<pods>.<namespaces>.<seal>`.

Readable numbers, which are also the ceiling for evictions, and a seal that binds them to one rule, taint, selector and
key. Nothing is stored: any replica with the key can verify a code, also after a restart. `CarriedCode` judges the code
that a rule carries, also where none is needed, because its numbers become the worker's ceiling.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from webhook.admission.impact_text import first_names
from webhook.api.meta import format_time
from webhook.api.rules import CONFIRM_IMPACT, DeviceTaintRule
from webhook.api.taints import NO_EXECUTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.admission.context import AdmissionContext
    from webhook.admission.review import AdmissionRequest
    from webhook.api.meta import ObjectMeta
    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.rules import DeviceSelector

_CODE: Final = re.compile(
    r"v1\.([0-9]{1,12})\.([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})\.([A-Za-z0-9_-]+)"
)
_MAC_BYTES: Final = 16
"""Half of SHA-256: 128 bits cannot be guessed within the days that a code is valid."""
_USER_BYTES: Final = 6
_NAMESPACE_BYTES: Final = 3
_NAMED_MOST: Final = 32
"""Namespaces that a code lists. With more of them it has the number, and lists the protected ones."""
_CODE_MOST: Final = 16_384
_encoder: Final = msgspec.json.Encoder(order="deterministic")


class Numbers(NamedTuple):
    """The four numbers that a code confirms."""

    devices: int
    claims: int
    pods: int
    namespaces: int

    def grown(self, percent: float) -> Numbers:
        """The largest numbers allowed when they may grow by `percent`."""
        # Not number * 1.15, which may come out a hair below the whole number that it is.
        return Numbers(*[number + int(number * percent / 100) for number in self])

    def beyond(self, ceiling: Numbers) -> list[str]:
        """Which numbers exceed the ceiling, in words."""
        pairs = zip(self._fields, self, ceiling, strict=True)
        return [f"{number} {name} (at most {most})" for name, number, most in pairs if number > most]


class CodeSubject(NamedTuple):
    """The part of a rule that a code is bound to. `time_added` is set only if it was in the past."""

    name: str
    selector: DeviceSelector | None
    key: str
    value: str
    effect: str
    time_added: datetime | None


def about_of(rule: DeviceTaintRule, *, backdated: bool) -> CodeSubject:
    """The subject of a code for the rule; `backdated`: its timeAdded was in the past when it began to evict."""
    name = _name_in_code(rule.meta)
    added = rule.taint.time_added if backdated else None
    return CodeSubject(name, rule.selector, rule.taint.key, rule.taint.value, rule.effective_effect, added)


def about_of_patch(patch: ResourceSlicePatch, rules: Iterable[DeviceTaintRule], since: datetime) -> CodeSubject:
    """The subject of a code for a patch; `rules` has each of its taints, which are past if added before `since`."""
    taints = [
        (
            rule.taint.key,
            rule.taint.value,
            rule.effective_effect,
            format_time(rule.taint.time_added) if rule.taint.time_added and rule.taint.time_added < since else "",
        )
        for rule in rules
    ]
    # No rule has a name with a slash.
    name = f"resourceslicepatches/{_name_in_code(patch.meta)}"
    return CodeSubject(name, patch.filter, _encoder.encode(sorted(taints)).decode(), "", "", None)


def _name_in_code(meta: ObjectMeta) -> str:
    name, prefix = meta.name, meta.generate_name
    if prefix and (not name or name.startswith(prefix)):
        return f"{prefix}*"  # the server completes the name for each request, before it calls us
    return name


class ImpactToConfirm(NamedTuple):
    """What the rule hits: the numbers, the namespaces, and which of those are protected."""

    numbers: Numbers
    namespaces: frozenset[str]
    protected: frozenset[str]


class CodeTerms(NamedTuple):
    """The conditions for a code. `other_than`: the confirming user, if it must differ from the refused one."""

    now: datetime
    tolerance_percent: float
    other_than: str | None = None


class ConfirmationCode(NamedTuple):
    """A parsed code, not yet verified."""

    expires: datetime
    numbers: Numbers
    seal: bytes


def read_code(text: str) -> ConfirmationCode | None:
    """The parts of a code, or None if the text is not one."""
    match = _CODE.fullmatch(text) if len(text) <= _CODE_MOST else None
    if match is None:
        return None
    expires, *numbers = [int(number) for number in match.groups()[:5]]
    try:
        seal = base64.urlsafe_b64decode(match[6] + "=" * (-len(match[6]) % 4))
        code = ConfirmationCode(datetime.fromtimestamp(expires, UTC), Numbers(*numbers), seal)
    except (binascii.Error, ValueError, OverflowError, OSError):
        return None
    # Base64 has several texts for the same bytes; a code has one.
    return code if len(seal) >= _MAC_BYTES + _USER_BYTES and _text_of(seal) == match[6] else None


def make_code(about: CodeSubject, hit: ImpactToConfirm, user: str, expires: datetime, key: bytes) -> str:
    """A code for what was just refused to `user`, good until `expires`."""
    others = sorted(hit.namespaces - hit.protected)
    named = [*hit.protected, *others[: max(_NAMED_MOST - len(hit.protected), 0)]]
    body = _mark(key, "user", user)[:_USER_BYTES] + b"".join(sorted(_fingerprint(key, name) for name in named))
    readable = ".".join(["v1", str(int(expires.timestamp())), *map(str, hit.numbers)])
    seal = body + _mac(about, readable, body, key)
    return f"{readable}.{_text_of(seal)}"


def _text_of(seal: bytes) -> str:
    return base64.urlsafe_b64encode(seal).decode().rstrip("=")


def fault_of(text: str, about: CodeSubject, hit: ImpactToConfirm, terms: CodeTerms, key: bytes) -> str | None:
    """Why a code is not valid for this rule and its impact now; None if it is."""
    forged, code = forgery_of(text, about, key), read_code(text)
    if forged or code is None:
        return forged
    return next(filter(None, _faults(code, code.seal[:-_MAC_BYTES], hit, terms, key)), None)


def forgery_of(text: str, about: CodeSubject, key: bytes) -> str | None:
    """Why a code is not one of ours for this rule; None if it is, even if it has expired."""
    code = read_code(text)
    if code is None or (len(code.seal) - _MAC_BYTES - _USER_BYTES) % _NAMESPACE_BYTES:
        return "is not a code as this webhook makes them"
    body, mac = code.seal[:-_MAC_BYTES], code.seal[-_MAC_BYTES:]
    if hmac.compare_digest(_mac(about, text.rpartition(".")[0], body, key), mac):
        return None
    return "was made for another rule, selector, taint or effect, or with another key"


def is_proved(rule: DeviceTaintRule, key: bytes) -> bool:
    """Whether the code that the rule carries was made with this key for the rule as it stands, expired or not."""
    text = rule.meta.annotations.get(CONFIRM_IMPACT, "")
    # A timeAdded in the past is part of the seal. Later it cannot be seen whether it was, so both are tried.
    return any(forgery_of(text, about_of(rule, backdated=backdated), key) is None for backdated in (False, True))


def _faults(
    code: ConfirmationCode, body: bytes, hit: ImpactToConfirm, terms: CodeTerms, key: bytes
) -> Iterator[str | None]:
    """Why a genuine code is not valid."""
    if terms.now >= code.expires:
        yield f"expired at {format_time(code.expires)}"
    user = terms.other_than
    if user is not None and hmac.compare_digest(_mark(key, "user", user)[:_USER_BYTES], body[:_USER_BYTES]):
        yield "was given to the same user; another user must confirm"
    grown = hit.numbers.beyond(code.numbers.grown(terms.tolerance_percent))
    if grown:
        yield f"was made for less: now {', '.join(grown)}"
    yield _strangers(code, body[_USER_BYTES:], hit, terms.tolerance_percent, key)


def _strangers(
    code: ConfirmationCode, named: bytes, hit: ImpactToConfirm, tolerance_percent: float, key: bytes
) -> str | None:
    """Namespaces that were not hit when the code was made: no protected one, and of others what the tolerance gives."""
    known = {named[at : at + _NAMESPACE_BYTES] for at in range(0, len(named), _NAMESPACE_BYTES)}
    new = sorted(name for name in hit.namespaces if _fingerprint(key, name) not in known)
    protected = [name for name in new if name in hit.protected]
    if protected:
        return f"was made before the protected namespace {protected[0]} was hit"
    confirmed = code.numbers.namespaces
    allowed = int(confirmed * tolerance_percent / 100)
    if confirmed <= _NAMED_MOST and len(new) > allowed:
        return f"was made for other namespaces than {first_names(new)}"
    return None


def _fingerprint(key: bytes, namespace: str) -> bytes:
    return _mark(key, "namespace", namespace)[:_NAMESPACE_BYTES]


def _mark(key: bytes, kind: str, text: str) -> bytes:
    return hmac.digest(key, _encoder.encode(("confirm-impact", kind, text)), hashlib.sha256)


def _mac(about: CodeSubject, readable: str, body: bytes, key: bytes) -> bytes:
    selector = None if about.selector is None else msgspec.to_builtins(about.selector)
    added = None if about.time_added is None else format_time(about.time_added)
    text = _encoder.encode(
        ("confirm-impact", readable, body, about.name, selector, about.key, about.value, about.effect, added)
    )
    return hmac.digest(key, text, hashlib.sha256)[:_MAC_BYTES]


# --- the code that a rule carries ----------------------------------------------------------------


NOTHING: Final = ImpactToConfirm(Numbers(0, 0, 0, 0), frozenset(), frozenset())
"""Stands for an unknown impact."""
_NO_KEY: Final = "cannot be checked: the webhook has no key yet"
_NO_KEY_HERE: Final = "cannot be checked here, as there is no key"
_UNKNOWN_USER: Final = "cannot be checked: the webhook does not know who asks"


class CarriedCode:
    """The code in a rule or patch that is created (`old` is None) or updated. All texts say what is wrong with it."""

    def __init__(
        self,
        new: DeviceTaintRule | ResourceSlicePatch,
        old: DeviceTaintRule | ResourceSlicePatch | None,
        about: CodeSubject,
        request: AdmissionRequest,
        context: AdmissionContext,
    ) -> None:
        self._new = new
        self._old = old
        self._about = about
        self._request = request
        self._context = context
        self.text = new.meta.annotations.get(CONFIRM_IMPACT, "")
        stored = old is not None and self.text == old.meta.annotations.get(CONFIRM_IMPACT)
        self.is_new = bool(self.text) and not stored
        self.forgery = self._forgery() if self.is_new else None
        """Why a new code is not known to be ours; None if it is ours, or stored already."""

    @property
    def unchecked(self) -> bool:
        """Whether it cannot be checked, because files are judged and there is no key."""
        return self.forgery == _NO_KEY_HERE

    def _forgery(self) -> str | None:
        key = self._context.key
        if key is None:
            return _NO_KEY if self._context.sight is not None else _NO_KEY_HERE
        return forgery_of(self.text, self._about, key)

    def fault(self, hit: ImpactToConfirm) -> str | None:
        """Why it is not valid for what the rule hits now; None if it is."""
        key, context = self._context.key, self._context
        if not self.text:
            return "is missing"
        if key is None:
            return _NO_KEY
        settings = context.policy.impact
        if settings.second_person and not context.caller_trusted:
            return _UNKNOWN_USER
        user = self._request.username if settings.second_person else None
        return fault_of(self.text, self._about, hit, CodeTerms(context.now, settings.tolerance_percent, user), key)

    def misfit(self, hit: ImpactToConfirm) -> str | None:
        """The same for a new code of ours; None for any other."""
        return self.fault(hit) if self.is_new and self.forgery is None else None

    def outlived(self) -> str | None:
        """Why a rule's code that was valid until now is no longer valid after this update; None otherwise."""
        key, new, old = self._context.key, self._new, self._old
        if not isinstance(new, DeviceTaintRule) or not isinstance(old, DeviceTaintRule):
            return None
        if key is None or self.is_new or new.effective_effect != NO_EXECUTE:
            return None
        if is_proved(old, key) and not is_proved(new, key):
            return "was made for the rule as it was: from now on the limits of the policy hold again"
        return None
