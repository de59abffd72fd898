"""The cluster of a test suite: its inventory, inline and in files, read as by `preview --dump`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from webhook.api.field import FieldError, Finding, Path, Severity, not_supported
from webhook.api.meta import GROUP, GroupVersionKind
from webhook.commands.shared.entries import entries_of, text, unreadable_row
from webhook.commands.shared.policy_files import row_of
from webhook.files.dump import Dump, Stock, held_in
from webhook.files.read import Manifest, read
from webhook.files.report import UNREADABLE, Entry, Level, Result, Row
from webhook.files.spots import NOWHERE
from webhook.validation.releases import NEWEST
from webhook.validation.strict import strict_findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.api.field import JSON
    from webhook.inventory.state import Inventory
    from webhook.policy.suites import InventorySource

_OBJECTS: Final = Path.root().child("inventory", "objects")
_HELD: Final = frozenset({(GROUP, "ResourceSlice"), (GROUP, "ResourceClaim"), (GROUP, "DeviceTaintRule"), ("", "Pod")})
_NAMES: Final = frozenset({(GROUP, "DeviceClass"), ("", "Namespace")})
_KINDS: Final = sorted(kind for _, kind in _HELD | _NAMES)
_EMPTY: Final = f"contains none of {', '.join(_KINDS)}"


@dataclass(slots=True)
class SuiteCluster:
    """The objects and names of a cluster; incomplete if there are `faults`, which say what is unusable."""

    stock: Stock = field(default_factory=Stock)
    names: Dump = field(default_factory=Dump)
    faults: list[Row] = field(default_factory=list)

    @property
    def inventory(self) -> Inventory:
        """Slices, rules, claims and pods."""
        return self.stock.inventory


def cluster_of(given: InventorySource, suite: Manifest, folder: str) -> SuiteCluster:
    """The cluster of a suite in `folder`; inline objects replace those in files."""
    cluster = SuiteCluster()
    for name in given.files:
        _add_files(cluster, os.path.join(folder, name))  # noqa: PTH118 -- shown as it is put together
    errors = [error for position, value in enumerate(given.objects) for error in _add_object(cluster, value, position)]
    if errors:
        cluster.faults.append(_unusable(row_of(suite), [*entries_of(suite.spot, _denials(errors))]))
    return cluster


def _add_files(cluster: SuiteCluster, name: str) -> None:
    known, found = len(cluster.stock.malformed), False
    for file in read([name]):
        unreadable = unreadable_row(file)
        if unreadable is not None:
            cluster.faults.append(unreadable)
            found = True
        ours = [manifest for manifest in file.manifests if _kind_of(manifest.value) in _HELD | _NAMES]
        found = found or bool(ours)
        cluster.stock.add(ours)
        cluster.names.add(manifest for manifest in ours if _kind_of(manifest.value) in _NAMES)
    for manifest, error in cluster.stock.malformed[known:]:
        cluster.faults.append(_unusable(row_of(manifest), [*entries_of(manifest.spot, _denials([error]))]))
    if not found:
        cluster.faults.append(_unusable(Row(name), [Entry(Level.ERROR, _EMPTY)]))


def _add_object(cluster: SuiteCluster, value: JSON, position: int) -> Iterator[FieldError]:
    """One inline object. Unknown fields are errors here, since no server will report them."""
    path = _OBJECTS.index(position)
    kind = _kind_of(value)
    if kind in _NAMES:
        cluster.names.add([Manifest("", 0, value, NOWHERE)])
    elif kind in _HELD:
        held, errors = held_in(value, path)
        yield from errors
        for finding in strict_findings(value, GroupVersionKind.parse(text(value, "apiVersion"), kind[1]), NEWEST, path):
            if finding.severity is Severity.DENY:
                yield finding.error
        cluster.inventory.apply(None, held)
    else:
        yield not_supported(path.child("kind"), value.get("kind"), _KINDS)


def _kind_of(value: JSON) -> tuple[str, str]:
    if not isinstance(value, dict):
        return "", ""
    kind = GroupVersionKind.parse(text(value, "apiVersion"), text(value, "kind"))
    return kind.group, kind.kind


def _denials(errors: Sequence[FieldError]) -> Iterator[Finding]:
    return (Finding(Severity.DENY, error) for error in errors)


def _unusable(row: Row, entries: Sequence[Entry]) -> Row:
    """A fault that makes every case of the suite meaningless."""
    unreadable_entries = tuple(replace(entry, reason=UNREADABLE) for entry in entries)
    return replace(row, result=Result.DENIED, entries=unreadable_entries)
