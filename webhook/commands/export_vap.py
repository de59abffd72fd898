"""`export-vap`: what of a policy Kubernetes can hold on to by itself, as ValidatingAdmissionPolicies."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

from webhook.commands.flags import namespace_flag, write
from webhook.commands.policies import policy_file
from webhook.commands.program import program
from webhook.config.namespace import own_namespace
from webhook.files.manifests_text import as_json_list, as_yaml_stream
from webhook.files.render import as_text
from webhook.files.report import Report
from webhook.policy.vap import export
from webhook.policy.vap_beyond import Coverage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from webhook.policy.model import Policy
    from webhook.policy.vap import Export
    from webhook.policy.vap_beyond import Exported

_VERB: Final = "export-vap"
_FORMATS: Final = {"yaml": as_yaml_stream, "json": as_json_list}
_UNREADABLE: Final = 2


def run(arguments: Sequence[str]) -> int:
    """Prints policies and bindings, and on stderr what they lack; 1 for that with --strict, 2 without a policy."""
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as error:  # argparse has said why
        return error.code if isinstance(error.code, int) else _UNREADABLE
    policy = _policy_in(options.policy)
    if policy is None:
        return _UNREADABLE
    exported = export(policy, protect_labels=options.protect_labels, namespace=options.namespace)
    sys.stderr.write("".join(f"{program(_VERB)}: {line}\n" for line in _told(exported)))
    return write(_FORMATS[options.output](exported.objects), int(options.strict and not exported.complete))


def _policy_in(name: str) -> Policy | None:
    """The policy of a file; its faults go to stderr."""
    report = Report()
    found = policy_file(name)
    for row in found.rows:
        report.add(row)
    if found.policy is None or report.errors or report.unreadable:
        sys.stderr.write(as_text(report))
        return None
    return found.policy


def _told(exported: Export) -> Iterable[str]:
    """What is not there, line by line, and how much is."""
    for each in (*exported.rules, *exported.beyond):
        if each.coverage is not Coverage.FULL:
            yield _line(each)
    counted = Counter(each.coverage for each in exported.rules)
    yield f"rules: {', '.join(f'{counted[coverage]} exported: {coverage}' for coverage in Coverage)}"
    if not exported.objects:
        yield "nothing is refused by this policy, so there is nothing to export"


def _line(each: Exported) -> str:
    return f"{each.name}: exported: {each.coverage}: {'; '.join(each.why)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program(_VERB),
        description="Prints what of a policy Kubernetes can enforce by itself, while no pod of ours runs.",
        epilog="Exit codes: 0 fine, 1 with --strict: a rule is not exported in full, 2 wrong usage or no policy.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--policy", required=True, metavar="F", help="the policy, or the ConfigMap that holds it; - is standard input")
    usual = own_namespace()
    add(
        "-n",
        "--namespace",
        type=namespace_flag,
        default=usual,
        metavar="NS",
        help=f"where the webhook is installed, whose claims are left out; default {usual}",
    )
    add("--protect-labels", action="store_true", help="also keep trustedNamespaceLabels from those without that right")
    add("--strict", action="store_true", help="exit with 1 if a rule is not exported in full")
    add("-o", "--output", choices=sorted(_FORMATS), default="yaml", help="default yaml")
    return parser
