"""Reviews policies in files and manifests: rows with every error at its position."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

from webhook.admission.config_maps import CANDIDATE_KEY, CONFIG_MAPS, POLICY_KEY, alike, config_map_decision
from webhook.admission.context import AdmissionContext
from webhook.admission.review import AdmissionRequest
from webhook.api.field import JSON, ErrorType, Finding, Path, Severity, too_long
from webhook.api.meta import OWN_GROUP, GroupVersionKind
from webhook.api.names import POLICY_NAME
from webhook.commands.shared.entries import (
    by_position,
    duplicate_entries,
    entries_of,
    remark_entries,
    unreadable_row,
    with_entries,
)
from webhook.config.texts import own_namespace
from webhook.files import manifests
from webhook.files.manifests import MAX_BYTES, meta, text
from webhook.files.read import Manifest, read, shown, with_text_read
from webhook.files.report import Level, Report, Row
from webhook.files.spots import NOWHERE, Spot
from webhook.policy.document import Loaded, load
from webhook.policy.lint import expiring
from webhook.policy.model import KIND, Policy

_ROOT: Final = Path.root()
_DATA: Final = _ROOT.child("data")
_KEYS: Final = (POLICY_KEY, CANDIDATE_KEY)
_GROUP: Final = f"policy.{OWN_GROUP}"
_SAYS_POLICY: Final = re.compile(
    rf"""^[ \t{{]*["']?kind["']?[ \t]*:[ \t]*["']?{KIND}\b|["']kind["'][ \t]*:[ \t]*["']{KIND}["']""", re.MULTILINE
)
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Reading a ConfigMap does not depend on the time."""
_Check = Callable[[str], None]


def read_policy(content: str, at: Path = _ROOT, check: _Check = lambda _: None, namespace: str = "") -> Loaded:
    """Return the policy in a text; `namespace` is this process's own unless given. `check` keeps to a budget."""
    return manifests.read_policy(content, at, check, namespace or own_namespace())


def row_of(manifest: Manifest) -> Row:
    """Return a row with the identity of a manifest, as far as it is given."""
    value, spot = manifest.value, manifest.spot
    row = Row(manifest.file, manifest.document, None if spot is NOWHERE else spot.position)
    if not isinstance(value, dict):
        return row
    about = meta(value)
    prefix = text(about, "generateName")
    name = text(about, "name") or (f"{prefix}*" if prefix else "")
    version, kind = text(value, "apiVersion"), text(value, "kind")
    return replace(row, api_version=version, kind=kind, namespace=text(about, "namespace"), name=name)


# --- manifests ----------------------------------------------------------------------------------


class ReviewedPolicy(NamedTuple):
    """A document or ConfigMap after its review. `loaded` has its policies by key; a bare document is `policy.yaml`."""

    row: Row
    loaded: Mapping[str, Loaded]

    @property
    def policies(self) -> tuple[Policy | None, Policy | None]:
        """The policy and the candidate, None where there is none or it has errors."""
        policy, candidate = (self.loaded[key].policy if key in self.loaded else None for key in _KEYS)
        return policy, candidate


def holds_policy(value: JSON) -> bool:
    """Return whether it is a policy document, or the ConfigMap of one.

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
    """Review a policy document or its ConfigMap. With `now`, exceptions that expire soon are reported as well."""
    entries = list(duplicate_entries(manifest))
    if text(manifest.value, "kind") == KIND:
        loaded = load(manifest.value, _ROOT, namespace=own_namespace())
        findings = [*(Finding(Severity.DENY, error) for error in loaded.errors), *loaded.warnings]
        held = {POLICY_KEY: loaded._replace(policy=None) if entries else loaded}
        entries += remark_entries(manifest)
        spot, found = manifest.spot, {_ROOT: loaded}
    else:
        row = replace(row, operation="CREATE" if old is None else "UPDATE")
        spot, held, findings = _as_webhook(manifest, row, old)
        found = {_DATA.key(key): each for key, each in held.items()}
    for at, each in found.items():
        if each.policy is not None and now is not None:
            findings += expiring(each.policy, now, at)
    return ReviewedPolicy(with_entries(row, by_position([*entries, *entries_of(spot, findings)])), held)


def _as_webhook(manifest: Manifest, row: Row, old: JSON) -> tuple[Spot, dict[str, Loaded], list[Finding]]:
    """Review a ConfigMap as the webhook does before it is stored. The positions are in its policies, too."""
    loaded: dict[str, Loaded] = {}
    spot = manifest.spot

    def reading(content: str, at: Path, check: _Check) -> Loaded:
        nonlocal spot
        key = next(key for key in _KEYS if at == _DATA.key(key))
        spot = with_text_read(spot, ("data", key), content)
        loaded[key] = read_policy(content, at, check)
        return loaded[key]

    request = AdmissionRequest(
        uid=f"{manifest.file}#{manifest.document}",
        operation=row.operation,
        resource=CONFIG_MAPS,
        kind=GroupVersionKind("", "v1", "ConfigMap"),
        name=row.name,
        namespace=row.namespace,
        dry_run=True,
        object=manifest.value,
        old_object=old,
    )
    decision = config_map_decision(request, AdmissionContext(now=_NO_TIME, read_policy=reading))
    return spot, loaded, list(decision.findings)


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

    def told(self, report: Report, *, judges: bool = True) -> PolicyFile:
        """Return the same, after its rows are in the report. `judges`: it is applied, and not itself checked."""
        for row in self.rows:
            report.add(replace(row, judges=judges))
        return self


def policy_file(name: str, *, now: datetime | None = None) -> PolicyFile:
    """Read the policy in a file (`-` is standard input): a document, or a ConfigMap that holds it and a candidate.

    Other objects in the file are ignored. Never raises: a file that cannot be read becomes a row with an error.
    """
    rows: list[Row] = []
    found: list[ReviewedPolicy] = []
    whole = Row(shown(name))
    for file in read([name]):
        if (unreadable := unreadable_row(file)) is not None:
            rows.append(unreadable)
        holding = [manifest for manifest in file.manifests if holds_policy(manifest.value)]
        alone = len(file.manifests) == len(holding) == 1 and text(holding[0].value, "kind") == KIND
        if alone and file.size_bytes > MAX_BYTES:
            rows.append(Row(file.name).failed(str(too_long(_ROOT, MAX_BYTES)), ErrorType.TOO_LONG.value))
        else:
            found += [review_policy(manifest, row_of(manifest), now=now) for manifest in holding]
    rows += [judged.row for judged in found]
    if not rows:
        rows.append(whole.failed(f"contains neither a {KIND} nor a ConfigMap with one in {POLICY_KEY}"))
    if len(found) > 1:
        many = f"contains {len(found)} policies, but only one can be in effect"
        rows.append(whole.failed(many, ErrorType.TOO_MANY.value))
    return PolicyFile(tuple(rows), *(found[0].policies if len(found) == 1 else ()))


def policy_in(manifest: Manifest, *, now: datetime | None = None) -> PolicyFile:
    """Return the policy in a ConfigMap that was read from a cluster."""
    row = row_of(manifest)
    if not holds_policy(manifest.value):
        return PolicyFile((Row(manifest.file).failed(f"{row.reference}: contains no {KIND} in {POLICY_KEY}"),))
    return policy_of(None, manifest, now=now)


def policy_of(name: str | None, held: Manifest | None, *, now: datetime | None = None) -> PolicyFile:
    """Return the policy of a file, else that of a document or ConfigMap that was read, else none."""
    if name is not None:
        return policy_file(name, now=now)
    if held is None:
        return PolicyFile(())
    judged = review_policy(held, row_of(held), now=now)
    return PolicyFile((judged.row,), *judged.policies)
