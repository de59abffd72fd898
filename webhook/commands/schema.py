"""`schema`: the JSON Schema of policies or of test suites, as the package has it."""

from __future__ import annotations

import json
import pkgutil
from typing import TYPE_CHECKING, Final

from webhook.api.meta import OWN_GROUP
from webhook.commands.shared.main import main_of
from webhook.commands.shared.output import write
from webhook.config.command_line import CommandLine, program
from webhook.files.structured import json_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_FILES: Final = {"policy": "schema.json", "suite": "suite.schema.json"}
_VERSION: Final = "v1alpha1"


def run(arguments: Sequence[str]) -> int:
    """Prints the schema. Returns 0, or 2 for wrong usage."""
    return main_of(command_line(), arguments, _run)


def _run(options: argparse.Namespace, _: CommandLine) -> int:
    return write(json_text(identified(options.what)), 0)


def identified(what: str) -> dict[str, object]:
    """The schema of `policy` or `suite` with an `$id`, which names it and need not lead anywhere."""
    schema = json.loads(pkgutil.get_data("webhook.policy", _FILES[what]) or b"{}")
    identity = f"https://{OWN_GROUP}/schemas/{what}.{_VERSION}.json"
    return {"$schema": schema.pop("$schema"), "$id": identity, **schema}


def command_line() -> CommandLine:
    """The flags of the verb."""
    parser = CommandLine(
        program("schema"),
        "Prints the JSON Schema of policies (a DeviceTaintPolicy, or its text in a ConfigMap) or of test suites.",
        "Exit codes: 0 fine, 2 wrong usage.",
        ("device-taint-webhook schema > policy.schema.json", "device-taint-webhook schema suite > suite.schema.json"),
    )
    parser.add_argument("what", nargs="?", choices=sorted(_FILES), default="policy", metavar="policy|suite")
    return parser
