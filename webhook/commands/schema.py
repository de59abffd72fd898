"""`schema`: the JSON Schema of policies or of test suites, as the package has it."""

from __future__ import annotations

import argparse
import json
import pkgutil
from typing import Final

from webhook.api.meta import OWN_GROUP
from webhook.commands.shared.output import write
from webhook.config.command_line import CommandLine, program
from webhook.files.report import json_text

_FILES: Final = {"policy": "schema.json", "suite": "suite.schema.json"}


def run(options: argparse.Namespace, _: CommandLine) -> int:
    """Print the schema. Return 0, or 2 for wrong usage."""
    schema = json.loads(pkgutil.get_data("webhook.policy", _FILES[options.what]) or b"{}")
    identity = f"https://{OWN_GROUP}/schemas/{options.what}.v1alpha1.json"  # it need not lead anywhere
    return write(json_text({"$schema": schema.pop("$schema"), "$id": identity, **schema}), 0)


def command_line() -> CommandLine:
    """Return the flags of the verb."""
    parser = CommandLine(
        program("schema"),
        "Prints the JSON Schema of policies (a DeviceTaintPolicy, or its text in a ConfigMap) or of test suites.",
        "Exit codes: 0 fine, 2 wrong usage.",
        ("device-taint-webhook schema > policy.schema.json", "device-taint-webhook schema suite > suite.schema.json"),
    )
    parser.add_argument("what", nargs="?", choices=sorted(_FILES), default="policy", metavar="policy|suite")
    return parser
