"""Command lines: argparse with one-line errors, examples in the help, and no flag silently overriding another."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

from webhook.api.names import PROGRAM

__all__ = ["CommandLine", "IntermixedLine", "misspelt", "program"]

_PLUGIN: Final = "kubectl-"


def program(verb: str = "") -> str:
    """The name this was called by, with the verb; kubectl's plugins are called `kubectl x`, not `kubectl-x`."""
    called = Path(sys.argv[0]).name.removesuffix(".exe")
    # kubectl takes "_" in a plugin's file name for "-", and needs an ending for programs on Windows
    name = f"kubectl {called.removeprefix(_PLUGIN).replace('_', '-')}" if called.startswith(_PLUGIN) else PROGRAM
    return f"{name} {verb}" if verb else name


class CommandLine(argparse.ArgumentParser):
    """The command line of a verb. `examples` are whole command lines, `end` the last words of the help.

    `program` is its name as called, with the verb; the help shows examples with it, and not device-taint-webhook.
    Of flags whose values are read elsewhere, `values` has those that can be chosen from; `variables` has the names of
    flags in the environment. Both are by `dest`.
    """

    last_wins: ClassVar[bool] = False
    """Whether a flag may be given again, and has the last of its values."""
    intermixed: ClassVar[bool] = False
    """Whether arguments may stand before, between and after flags, as in kubectl."""

    def __init__(self, program: str, description: str, end: str, examples: Sequence[str]) -> None:
        self.examples = tuple(examples)
        self.end = end
        self.values: dict[str, tuple[str, ...]] = {}
        self.variables: dict[str, str] = {}
        usual = f"{PROGRAM} {program.rpartition(' ')[2]}"
        shown = "\n".join(f"  {example.replace(usual, program)}" for example in self.examples)
        super().__init__(
            prog=program,
            description=description,
            epilog=f"examples:\n{shown}\n\n{end}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if not self.last_wins:
            self.register("action", None, _StoreOnce)
            self.register("action", "store", _StoreOnce)

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        """As argparse does, but if `type` raises ValueError, its message is shown after the value."""
        if "type" in options:
            options["type"] = _complaining(options["type"])
        return super().add_argument(*names, **options)

    def parse_args(  # type: ignore[override]  # argparse also has an overload for namespaces of other types
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """As argparse does, but a misspelt flag is reported before any other error."""
        words = sys.argv[1:] if args is None else list(args)
        complaint = misspelt(self, words)
        if complaint is not None:
            self.error(complaint)
        return self.parse_intermixed_args(words, namespace) if self.intermixed else super().parse_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Prints the error in one line, and the usage without flags in the next."""
        wanted = [f" {each.metavar}" for each in self._get_positional_actions()]
        usage = f"usage: {self.prog} [FLAGS]{''.join(wanted)}"
        self.exit(2, f"{self.prog}: {message}\n{usage} (--help lists flags and examples)\n")


class IntermixedLine(CommandLine):
    """A command line whose arguments may stand among flags."""

    intermixed = True


class _StoreOnce(argparse.Action):
    """A flag that may be given once: with two values, either could be a mistake."""

    def __call__(
        self, _: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        given: set[str] = vars(namespace).setdefault("_given", set())
        if option is not None and self.dest in given:
            raise argparse.ArgumentError(self, "given more than once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


def _complaining(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser of `config.texts` for argparse, which hides the text of a ValueError."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} {error}") from None

    return parsed


def misspelt(parser: argparse.ArgumentParser, words: Sequence[str]) -> str | None:
    """An error for the first long flag that the command line does not know; None if it knows all."""
    known = list(parser._option_string_actions)  # noqa: SLF001 -- argparse has no other way to list them
    for word in words:
        if word == "--":
            return None
        name = word.partition("=")[0]
        if name.startswith("--") and name not in known:
            # Here and not above: only for mistakes; its import takes longer than a small command line.
            from difflib import get_close_matches  # noqa: PLC0415

            close = get_close_matches(name, [each for each in known if each.startswith("--")], n=1)
            return f"unknown flag {name}{f'; did you mean {close[0]}?' if close else ''}"
    return None
