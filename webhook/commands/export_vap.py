"""`export-vap`: the part of a policy that Kubernetes can enforce by itself, as ValidatingAdmissionPolicies."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from webhook.commands.shared.flags import add_exempt_namespaces, add_namespace_of_installation, add_output
from webhook.commands.shared.main import USAGE
from webhook.commands.shared.output import write
from webhook.commands.shared.policy_files import policy_file
from webhook.config.command_line import CommandLine, program
from webhook.files.report import UNREADABLE, Level, json_list, line, visible, yaml_stream
from webhook.policy.vap.export import Coverage, Export, export
from webhook.policy.vap.objects import STATIC_FILE, STATIC_FOLDER, static_manifests

_VERB: Final = "export-vap"
_FORMATS: Final = {"yaml": yaml_stream, "json": json_list}
_ALL: Final = "all"
_RULES: Final = "rules"


def _say(text: str) -> None:
    sys.stderr.write(f"{program(_VERB)}: {text}\n")


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Print policies and bindings, and on stderr gaps. Return 0, 1 with --strict if so, 2 for no policy."""
    if (options.file is None) == (options.policy is None):
        parser.error("one POLICY is required" if options.file is None else "POLICY and --policy are the same: give one")
    if options.static is not None and options.output != "yaml":
        parser.error(f"--static writes YAML: it does not go with -o {options.output}")
    name = options.file or options.policy
    found = policy_file(name)
    faults = [(row, entry) for row in found.rows for entry in row.entries if entry.level is Level.ERROR]
    if found.policy is None or faults:
        sys.stderr.write("".join(f"{line(row, entry, color=False)}\n" for row, entry in faults))
        cause = "cannot be read" if any(entry.reason == UNREADABLE for _, entry in faults) else "has errors"
        _say(f"nothing was exported: the policy in {visible(name)} {cause}")
        return USAGE
    exported = export(
        found.policy,
        protect_labels=options.protect_labels,
        namespace=options.namespace,
        exempt=options.exempt_namespaces,
    )
    gaps = [each for each in (*exported.rules, *exported.beyond) if each.coverage is not Coverage.FULL]
    for each in gaps:
        _say(f"{each.name}: exported: {each.coverage}: {'; '.join(each.why)}")
    for what, parts in (("rules", exported.rules), ("everything else", exported.beyond)):
        counts = Counter(each.coverage for each in parts)
        _say(f"{what}: {', '.join(f'{counts[coverage]} exported: {coverage}' for coverage in Coverage)}")
    if not exported.objects:
        _say("this policy refuses nothing, so there is nothing to export")
    incomplete = bool(gaps) if options.strict == _ALL else options.strict == _RULES and not exported.complete
    if options.static is not None:
        return _write_static(exported, options.static) or int(incomplete)
    return write(_FORMATS[options.output](exported.objects), int(incomplete))


def _write_static(exported: Export, folder: Path) -> int:
    """Write the file at once, as a running API server may be reading it. Return 2 if it cannot."""
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
    except OSError as error:
        _say(f"{visible(str(folder))} cannot be written: {error.strerror or error}")
        return USAGE
    _say(f"written: {visible(str(file))}")
    return 0


def command_line() -> CommandLine:
    """Return the flags of the verb."""
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
    add_exempt_namespaces(parser)
    add("--protect-labels", action="store_true", help="also let only users with permission set trustedNamespaceLabels")
    text = "write a file for the API server's staticManifestsDir into DIR/validating"
    add("--static", type=Path, metavar="DIR", help=text)
    text = (
        f"exit with 1 if anything is not exported in full; {_RULES}: consider only rules, not "
        "documentedRules, impact and unknownAuthor"
    )
    add("--strict", nargs="?", choices=(_ALL, _RULES), const=_ALL, metavar="WHAT", help=text)
    add_output(parser, _FORMATS, "yaml")
    return parser
