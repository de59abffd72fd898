"""Reviews policies in files and manifests: rows with every error at its position."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.admission.config_maps import CANDIDATE_KEY, CONFIG_MAPS, POLICY_KEY, alike, config_map_decision
from webhook.admission.context import AdmissionContext
from webhook.admission.review import AdmissionRequest
from webhook.api.field import (
    ErrorType,
    Finding,
    Path,
    Severity,
    too_long,
)
from webhook.api.meta import OWN_GROUP, GroupVersionKind
from webhook.api.names import POLICY_NAME
from webhook.commands.shared.entries import duplicate_entries, entries_of, meta, remark_entries, text, unreadable_row
from webhook.config.namespace import own_namespace
from webhook.files import policies
from webhook.files.embedded import with_text_read
from webhook.files.policies import MAX_BYTES
from webhook.files.read import read, shown
from webhook.files.report import UNREADABLE, Entry, Level, Result, Row
from webhook.files.spots import NOWHERE
from webhook.policy.document import Loaded, load
from webhook.policy.lint import expiring
from webhook.policy.model import KIND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.api.field import JSON
    from webhook.files.read import Manifest
    from webhook.policy.model import Policy

    Check = Callable[[str], None]

_ROOT: Final = Path.root()
_DATA: Final = _ROOT.child("data")
_KEYS: Final = (POLICY_KEY, CANDIDATE_KEY)
_GROUP: Final = f"policy.{OWN_GROUP}"
_CONFIG_MAP: Final = GroupVersionKind("", "v1", "ConfigMap")
_SAYS_POLICY: Final = re.compile(
    rf"""^[ \t{{]*["']?kind["']?[ \t]*:[ \t]*["']?{KIND}\b|["']kind["'][ \t]*:[ \t]*["']{KIND}["']""", re.MULTILINE
)
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Reading a ConfigMap does not depend on the time."""


def read_policy(content: str, at: Path = _ROOT, check: Check | None = None, namespace: str = "") -> Loaded:
    """The policy in a text, as `files.policies` reads it; `namespace` is this process's own unless given."""
    return policies.read_policy(content, at, check or _go_on, namespace or own_namespace())


def _go_on(_: str) -> None:
    """No budget."""


# --- manifests ----------------------------------------------------------------------------------


class ReviewedPolicy(NamedTuple):
    """A document or ConfigMap after its review. `loaded` has its policies by key; a bare document is `policy.yaml`."""

    row: Row
    loaded: Mapping[str, Loaded]


def holds_policy(value: JSON) -> bool:
    """Whether it is a policy document, or the ConfigMap of one.

    By its name it is even if it has no policy: the webhook would be without one.
    """
    if not isinstance(value, dict):
        return False
    if text(value, "kind") == KIND:
        return text(value, "apiVersion").partition("/")[0] == _GROUP
    if text(value, "apiVersion") != "v1" or text(value, "kind") != "ConfigMap":
        return False
    if text(meta(value), "name") == POLICY_NAME:
        return True
    data = value.get("data")
    if not isinstance(data, dict):
        return False
    keys = (*_KEYS, alike(POLICY_KEY, data))
    return any(_SAYS_POLICY.search(text(data, key)) for key in keys if key is not None)


def review_policy(manifest: Manifest, row: Row, *, old: JSON = None, now: datetime | None = None) -> ReviewedPolicy:
    """The row of a policy document or its ConfigMap. With `now`, exceptions that expire soon are reported as well."""
    duplicates = tuple(duplicate_entries(manifest))
    if text(manifest.value, "kind") == KIND:
        loaded = load(manifest.value, _ROOT, namespace=own_namespace())
        entries = (*duplicates, *remark_entries(manifest), *_document_entries(manifest, loaded, _ROOT, now))
        judged = _with_entries(row, entries)
        return ReviewedPolicy(judged, {POLICY_KEY: loaded if not duplicates else loaded._replace(policy=None)})
    return _review_config_map(manifest, row, old, now, duplicates)


def _document_entries(manifest: Manifest, loaded: Loaded, at: Path, now: datetime | None) -> list[Entry]:
    findings = [*(Finding(Severity.DENY, error) for error in loaded.errors), *loaded.warnings]
    if loaded.policy is not None and now is not None:
        findings += expiring(loaded.policy, now, at)
    return list(entries_of(manifest.spot, findings))


def _review_config_map(
    manifest: Manifest, row: Row, old: JSON, now: datetime | None, duplicates: tuple[Entry, ...]
) -> ReviewedPolicy:
    """Reviews a ConfigMap as the webhook does before it is stored."""
    loaded: dict[str, Loaded] = {}
    spot = manifest.spot

    def reading(content: str, at: Path, check: Check) -> Loaded:
        nonlocal spot
        key = next(key for key in _KEYS if at == _DATA.key(key))
        spot = with_text_read(spot, ("data", key), content)
        loaded[key] = read_policy(content, at, check)
        return loaded[key]

    request = AdmissionRequest(
        uid=f"{manifest.file}#{manifest.document}",
        operation="CREATE" if old is None else "UPDATE",
        resource=CONFIG_MAPS,
        kind=_CONFIG_MAP,
        name=row.name,
        namespace=row.namespace,
        dry_run=True,
        object=manifest.value,
        old_object=old,
    )
    decision = config_map_decision(request, AdmissionContext(now=_NO_TIME, read_policy=reading))
    findings = list(decision.findings)
    for key, held in loaded.items():
        if held.policy is not None and now is not None:
            findings += expiring(held.policy, now, _DATA.key(key))
    entries = [*duplicates, *entries_of(spot, findings)]
    return ReviewedPolicy(_with_entries(replace(row, operation=request.operation), entries), loaded)


def _with_entries(row: Row, entries: tuple[Entry, ...] | list[Entry]) -> Row:
    denied = any(entry.level is Level.ERROR for entry in entries)
    ordered = tuple(sorted(entries, key=lambda entry: entry.position or (0, 0)))
    return replace(row, result=Result.DENIED if denied else Result.ALLOWED, entries=ordered)


def row_of(manifest: Manifest) -> Row:
    """A row with the identity of a manifest, as far as it is given."""
    value = manifest.value
    spot = manifest.spot
    row = Row(manifest.file, manifest.document, None if spot is NOWHERE else spot.position)
    if not isinstance(value, dict):
        return row
    about = meta(value)
    prefix = text(about, "generateName")
    return replace(
        row,
        api_version=text(value, "apiVersion"),
        kind=text(value, "kind"),
        namespace=text(about, "namespace"),
        name=text(about, "name") or (f"{prefix}*" if prefix else ""),
    )


# --- files --------------------------------------------------------------------------------------


class PolicyFile(NamedTuple):
    """The usable policies of a file, and rows with everything to report about them."""

    rows: tuple[Row, ...]
    policy: Policy | None = None
    candidate: Policy | None = None

    @property
    def usable(self) -> bool:
        """Whether it has no errors."""
        return not any(row.count(Level.ERROR) for row in self.rows)


def policy_file(name: str, *, now: datetime | None = None) -> PolicyFile:
    """The policy in a file (`-` is standard input): a document, or a ConfigMap that holds it and perhaps a candidate.

    Other objects in the file are ignored. Never raises: a file that cannot be read becomes a row with an error.
    """
    rows: list[Row] = []
    found: list[ReviewedPolicy] = []
    for file in read([name]):
        unreadable = unreadable_row(file)
        if unreadable is not None:
            rows.append(unreadable)
        holding = [manifest for manifest in file.manifests if holds_policy(manifest.value)]
        if len(file.manifests) == len(holding) == 1 and file.size_bytes > MAX_BYTES and not _wrapped(holding[0]):
            rows.append(Row(file.name).failed(str(too_long(_ROOT, MAX_BYTES)), ErrorType.TOO_LONG))
            continue
        found += [review_policy(manifest, row_of(manifest), now=now) for manifest in holding]
    rows += [judged.row for judged in found]
    if not rows:
        rows.append(
            Row(shown(name)).failed(f"contains neither a {KIND} nor a ConfigMap with one in {POLICY_KEY}", UNREADABLE)
        )
    if len(found) > 1:
        rows.append(
            Row(shown(name)).failed(
                f"contains {len(found)} policies, but only one can be in effect", ErrorType.TOO_MANY
            )
        )
        return PolicyFile(tuple(rows))
    loaded = found[0].loaded if found else {}
    held = (loaded[key].policy if key in loaded else None for key in _KEYS)
    return PolicyFile(tuple(rows), *held)


def policy_in(manifest: Manifest, *, now: datetime | None = None) -> PolicyFile:
    """The policy in a ConfigMap that was read from a cluster."""
    row = row_of(manifest)
    if not holds_policy(manifest.value):
        fault = Row(manifest.file).failed(f"{row.reference}: contains no {KIND} in {POLICY_KEY}", UNREADABLE)
        return PolicyFile((fault,))
    judged = review_policy(manifest, row, now=now)
    held = (judged.loaded[key].policy if key in judged.loaded else None for key in _KEYS)
    return PolicyFile((judged.row,), *held)


def _wrapped(manifest: Manifest) -> bool:
    return text(manifest.value, "kind") != KIND
