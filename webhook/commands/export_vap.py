"""`export-vap`: the part of a policy that Kubernetes can enforce by itself, as ValidatingAdmissionPolicies."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.commands.shared.flags import add_namespace_of_installation, add_output
from webhook.commands.shared.main import main_of
from webhook.commands.shared.output import write
from webhook.commands.shared.policy_files import policy_file
from webhook.config.command_line import CommandLine, program
from webhook.files.render import line, visible
from webhook.files.report import Level, Report
from webhook.files.structured import json_list, yaml_stream
from webhook.policy.vap.export import Coverage, export
from webhook.policy.vap.objects import STATIC_FILE, STATIC_FOLDER, static_manifests

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from webhook.policy.model import Policy
    from webhook.policy.vap.export import Export, Exported

_VERB: Final = "export-vap"
_FORMATS: Final = {"yaml": yaml_stream, "json": json_list}
_UNREADABLE: Final = 2
_ALL: Final = "all"
_RULES: Final = "rules"


def run(arguments: Sequence[str]) -> int:
    """Prints policies and bindings, and on stderr gaps. Returns 0, 1 with --strict if so, 2 for no policy."""
    return main_of(command_line(), arguments, _run)


def _run(options: argparse.Namespace, parser: CommandLine) -> int:
    if (options.file is None) == (options.policy is None):
        parser.error("one POLICY is required" if options.file is None else "POLICY and --policy are the same: give one")
    policy = _policy_in(options.file or options.policy)
    if policy is None:
        return _UNREADABLE
    exported = export(policy, protect_labels=options.protect_labels, namespace=options.namespace)
    sys.stderr.write("".join(f"{program(_VERB)}: {text}\n" for text in _coverage_lines(exported)))
    code = int(_is_incomplete(exported, options.strict))
    if options.static is not None:
        return _write_static(exported, options.static) or code
    return write(_FORMATS[options.output](exported.objects), code)


def _write_static(exported: Export, folder: Path) -> int:
    """Writes the file at once, as a running API server may be reading it. Returns 2 if it cannot."""
    file = folder / STATIC_FOLDER / STATIC_FILE
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        objects = static_manifests(exported.objects)
        if not objects:
            file.unlink(missing_ok=True)
            return 0
        new = file.with_suffix(".new")  # no suffix that the API server reads
        new.write_text(yaml_stream(objects), encoding="utf-8")
        new.replace(file)
        sys.stderr.write(f"{program(_VERB)}: written: {visible(str(file))}\n")
    except OSError as error:
        sys.stderr.write(f"{program(_VERB)}: {visible(str(folder))} cannot be written: {error.strerror or error}\n")
        return _UNREADABLE
    return 0


def _is_incomplete(exported: Export, strict: str | None) -> bool:
    """Whether something that `--strict` covers is not exported in full."""
    if strict is None:
        return False
    beyond = strict == _ALL and any(each.coverage is not Coverage.FULL for each in exported.beyond)
    return beyond or not exported.complete


def _policy_in(name: str) -> Policy | None:
    """The policy of a file; its faults go to stderr."""
    report = Report()
    found = policy_file(name)
    for row in found.rows:
        report.add(row)
    if found.policy is None or report.errors or report.unreadable:
        faults = [line(row, entry, color=False) for row, entry in report.entries() if entry.level is Level.ERROR]
        cause = "cannot be read" if report.unreadable else "has errors"
        faults.append(f"{program(_VERB)}: nothing was exported: the policy in {visible(name)} {cause}")
        sys.stderr.write("".join(f"{each}\n" for each in faults))
        return None
    return found.policy


def _coverage_lines(exported: Export) -> Iterable[str]:
    """Lines on what is not exported in full, and the counts."""
    for each in (*exported.rules, *exported.beyond):
        if each.coverage is not Coverage.FULL:
            yield _line(each)
    yield f"rules: {_counted(exported.rules)}"
    yield f"everything else: {_counted(exported.beyond)}"
    if not exported.objects:
        yield "this policy refuses nothing, so there is nothing to export"


def _counted(parts: Iterable[Exported]) -> str:
    counts = Counter(each.coverage for each in parts)
    return ", ".join(f"{counts[coverage]} exported: {coverage}" for coverage in Coverage)


def _line(each: Exported) -> str:
    return f"{each.name}: exported: {each.coverage}: {'; '.join(each.why)}"


def command_line() -> CommandLine:
    """The flags of the verb."""
    parser = CommandLine(
        program(_VERB),
        "Prints the part of a policy that Kubernetes can enforce by itself, even while the webhook is down.",
        "Exit codes: 0 fine, 1 with --strict: something is not exported in full, 2 wrong usage or no policy.",
        (
            "device-taint-webhook export-vap policy.yaml > vap.yaml",
            "device-taint-webhook export-vap policy.yaml --protect-labels --strict=rules -o json",
            "device-taint-webhook export-vap policy.yaml --static /etc/kubernetes/admission",
        ),
    )
    add = parser.add_argument
    add("file", nargs="?", metavar="POLICY", help="the policy, or the ConfigMap that holds it; - is standard input")
    add("--policy", metavar="F", help="the same")
    add_namespace_of_installation(parser, "where the webhook is installed; claims in it are exempt")
    add("--protect-labels", action="store_true", help="also let only users with permission set trustedNamespaceLabels")
    add(
        "--static",
        type=Path,
        metavar="DIR",
        help="write a file for the API server's staticManifestsDir into DIR/validating",
    )
    add(
        "--strict",
        nargs="?",
        choices=(_ALL, _RULES),
        const=_ALL,
        metavar="WHAT",
        help=f"exit with 1 if anything is not exported in full; {_RULES}: consider only rules, not "
        "documentedRules, impact and unknownAuthor",
    )
    add_output(parser, _FORMATS, "yaml")
    return parser
