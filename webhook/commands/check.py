"""`check`: manifests in files, judged as the webhook would judge them. Needs no cluster."""

from __future__ import annotations

import argparse
import os
import re
import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from webhook.admission.context import AdmissionContext
from webhook.commands.manifests import Identity, Terms, judged
from webhook.files.read import STDIN, read
from webhook.files.render import FORMATS, as_text
from webhook.files.report import UNREADABLE, Entry, Level, Report, Result, Row
from webhook.validation.releases import NEWEST, RELEASES, Release

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.api.field import JSON
    from webhook.files.read import File

_VERSION: Final = re.compile(r"v?1\.([0-9]{1,4})(?:[.+-].*)?")


def run(arguments: Sequence[str]) -> int:
    """Prints what is wrong; gives 0 for nothing, 1 for errors, 2 for wrong usage or input that cannot be read."""
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as error:  # argparse has said why
        return error.code if isinstance(error.code, int) else 2
    report = Report()
    terms = Terms(
        AdmissionContext(now=datetime.now(UTC), release=options.kubernetes_version),  # noqa: TID251 -- the shell asks
        options.user,
        tuple(options.group),
        _old_objects(options.old, report),
        options.verbose,
    )
    for file in read(options.files):
        _check(file, terms, report)
    return _write(_renderer(options.output)(report), report.exit_code)


def _check(file: File, terms: Terms, report: Report) -> None:
    report.files += 1
    for manifest in file.manifests:
        report.add(judged(manifest, terms, explicit=file.explicit))
    _add_unreadable(file, report)


def _add_unreadable(file: File, report: Report) -> None:
    if file.unreadable:
        entries = tuple(
            Entry(Level.ERROR, error.message, error.position, reason=UNREADABLE) for error in file.unreadable
        )
        report.add(Row(file.name, result=Result.DENIED, entries=entries))


def _old_objects(names: Sequence[str], report: Report) -> dict[Identity, JSON]:
    """The objects of the old files by identity. What cannot be read is told; nothing in them is judged."""
    old: dict[Identity, JSON] = {}
    for file in read(names):
        _add_unreadable(file, report)
        for manifest in file.manifests:
            identity = Identity.of(manifest.value) if isinstance(manifest.value, dict) else None
            if identity is not None:
                old[identity] = manifest.value
    return old


def _renderer(output: str) -> Callable[[Report], str]:
    if output != "text":
        return FORMATS[output]
    return partial(as_text, color=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))


def _write(text: str, code: int) -> int:
    """Writes all at once; a reader that has seen enough is no fault."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())  # whatever the locale says: files and CI expect UTF-8
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # the interpreter would try once more when it ends, and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _release(text: str) -> Release:
    """The release of `1.34`, `v1.34.2`. A newer one than this version knows is judged as the newest it knows."""
    match = _VERSION.fullmatch(text)
    oldest = min(RELEASES)
    if match is None or int(match[1]) < oldest:
        raise argparse.ArgumentTypeError(f"{text!r} must be a version from 1.{oldest} on, such as 1.{NEWEST.minor}")
    return RELEASES.get(int(match[1]), NEWEST)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="device-taint-webhook check",
        description="Judges manifests as the webhook would: field rules, documented rules, advice, unknown fields.",
        epilog="Exit codes: 0 fine (warnings are), 1 findings, 2 wrong usage or input that cannot be read.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE|DIR|-",
        help=f"YAML or JSON files; folders are searched for *.yaml, *.yml and *.json; {STDIN} is standard input",
    )
    parser.add_argument(
        "--old",
        action="append",
        default=[],
        metavar="FILE",
        help="objects as the cluster has them (kubectl get -o yaml): the same object in FILE is judged as an update",
    )
    parser.add_argument("--user", default="", metavar="U", help="who sends the request")
    parser.add_argument("--group", action="append", default=[], metavar="G", help="a group of the user; repeatable")
    parser.add_argument(
        "--kubernetes-version",
        type=_release,
        default=NEWEST,
        metavar="1.N",
        help=f"the release whose rules hold (default 1.{NEWEST.minor})",
    )
    parser.add_argument("-o", "--output", choices=sorted(FORMATS), default="text", help="default text")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also tell what /mutate would set, and what was skipped"
    )
    return parser
