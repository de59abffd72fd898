"""One run of `diff`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from webhook.admission.context import AdmissionContext
from webhook.api.meta import GroupVersionKind
from webhook.commands.diff.inputs import compared, reference_of
from webhook.commands.diff.report import ChangedObject, DiffReport, as_text, as_values, changes_of
from webhook.commands.shared.entries import text
from webhook.commands.shared.flags import known_names, refuse_cluster_beside_dump, refuse_stdin_twice
from webhook.commands.shared.output import write
from webhook.files.structured import STRUCTURED
from webhook.inventory.state import Sight
from webhook.policy.decide import Judge
from webhook.policy.ports import asks_who, authenticated
from webhook.validation.kinds import BY_KIND

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from webhook.commands.diff.inputs import Compared
    from webhook.config.command_line import CommandLine
    from webhook.policy.model import Policy

_BESIDE: Final = ("eviction", "pause", "breaker", "reactions")
"""Parts of a policy that judge no object."""


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Prints the differences. Returns 0 if there is none, 1 if there are some, 2 for wrong usage or bad input."""
    refuse_cluster_beside_dump(options, parser)
    refuse_stdin_twice([*options.dump, options.old, options.new], parser)
    if options.group and not options.user:
        parser.error("--group needs --user: groups belong to a user")
    if options.old == options.new:
        parser.error(f"OLD and NEW are both {options.old}")
    found = compared(options)
    report = DiffReport(found.source, notes=found.notes, rows=found.rows)
    if found.old is not None and found.new is not None:
        now = options.time or datetime.now(UTC)  # noqa: TID251 -- the shell asks
        report.changed = list(_changed(found, (found.old, found.new), options, now))
        report.judged = len(found.objects)
        report.notes += _notes(found.old, found.new, options.user)
    if options.output == "text":
        return write(as_text(report, limit=options.limit), report.exit_code)
    return write(STRUCTURED[options.output](as_values(report)), report.exit_code)


def _changed(
    found: Compared, policies: tuple[Policy, Policy], options: argparse.Namespace, now: datetime
) -> Iterator[ChangedObject]:
    names = known_names(found.dump, (), None, {})
    sight = Sight(found.stock.inventory)
    old, new = (AdmissionContext(now=now, judge=Judge(policy), names=names, sight=sight) for policy in policies)
    groups = authenticated(options.user, options.group).groups if options.user else ()
    for manifest in found.objects:
        kind = GroupVersionKind.parse(text(manifest.value, "apiVersion"), text(manifest.value, "kind"))
        if kind in BY_KIND:
            changes = changes_of(manifest.value, old, new, options.user, groups)
            if changes:
                yield ChangedObject(*reference_of(manifest), changes)


def _notes(old: Policy, new: Policy, user: str) -> Iterator[str]:
    differing = [name for name in _BESIDE if getattr(old, name) != getattr(new, name)]
    if differing:
        yield f"the policies also differ in {', '.join(differing)}, which judge no object; see preview and status"
    if not user and any(map(asks_who, (old, new))):
        yield (
            "who wrote rules, patches and slices is unknown (see --user), and so is who wrote claims that are not made "
            "from templates: for claims, rules on requesters count as matching if they refuse"
        )
