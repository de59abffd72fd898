"""Command lines: argparse with one-line errors, examples in the help, and no flag silently overriding another."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

from webhook.api.messages import nearest
from webhook.api.names import PROGRAM

_PLUGIN: Final = "kubectl-"


def program(verb: str = "") -> str:
    """Return the name this was called by, with the verb; kubectl's plugins: `kubectl x`, not `kubectl-x`."""
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
        self.given: list[str] = []
        """The words that were parsed."""
        usual = f"{PROGRAM} {program.rpartition(' ')[2]}"
        shown = "\n".join(f"  {example.replace(usual, program)}" for example in self.examples)
        super().__init__(
            prog=program,
            description=description,
            epilog=f"examples:\n{shown}\n\n{end}",
            formatter_class=_WholeWords,
            allow_abbrev=False,
        )
        if not self.last_wins:
            self.register("action", None, _StoreOnce)
            self.register("action", "store", _StoreOnce)

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        """Do as argparse does, but show the message of a ValueError that `type` raises after the value."""
        if "type" in options:
            options["type"] = _complaining(options["type"])
        return super().add_argument(*names, **options)

    def parse_args(  # type: ignore[override]  # argparse also has an overload for namespaces of other types
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Do as argparse does, but report a misspelt flag before any other error."""
        self.given = words = sys.argv[1:] if args is None else list(args)
        complaint = misspelt(self, words)
        if complaint is not None:
            self.error(complaint)
        return self.parse_intermixed_args(words, namespace) if self.intermixed else super().parse_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the error in one line, and the usage without flags in the next."""
        usage = usage_of(self.prog, self._actions)
        self.exit(2, f"{self.prog}: {message}\nusage: {usage} (--help lists flags and examples)\n")


def usage_of(program: str, actions: Iterable[argparse.Action]) -> str:
    """Return the program with its arguments."""
    return " ".join([program, "[FLAGS]", *[str(each.metavar) for each in actions if not each.option_strings]])


def wrapped(text: str, width: int, first: str = "", other: str = "") -> list[str]:
    """Return lines of whole words; a list or path that is longer than a line is cut after commas and slashes."""
    room = width - len(other)
    words = [each if len(each) <= room else re.sub(r"([,/])(?=.)", "\\1\0 ", each) for each in text.split()]
    lines = textwrap.wrap(
        " ".join(words),
        width,
        initial_indent=first,
        subsequent_indent=other,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [re.sub("\0 ?", "", line) for line in lines]


class _WholeWords(argparse.HelpFormatter):
    """Help as wide as the terminal. Lines that begin with spaces are commands, which go on after a backslash."""

    def add_usage(self, _: Any, actions: Iterable[argparse.Action], *__: Any) -> None:
        """Leave the flags out, as they are listed right below."""
        usage = f"usage: {usage_of(self._prog, actions)}"
        self._add_item(lambda: "\n".join(wrapped(usage, self._width, other="  ")) + "\n\n", [])

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for part in re.findall(r"(?m)^ +.*$|^(?:\S.*\n?)+|^$", text):
            if part.startswith(" "):
                quoted = re.sub(r"'[^']*'", lambda found: found[0].replace(" ", "\1"), part)
                lines += " \\\n".join(wrapped(quoted, width - 2, "  ", "    ")).replace("\1", " ").splitlines()
            else:
                lines += wrapped(part, width) or [""]
        return "\n".join(f"{indent}{line}" for line in lines)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(text, width)


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
    """Make a parser of `config.texts` for argparse, which hides the text of a ValueError."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} {error}") from None

    return parsed


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X or Y?`, or nothing where there is no such name, or many."""
    names = nearest(word, known)
    return f"; did you mean {names}?" if names else ""


def misspelt(parser: argparse.ArgumentParser, words: Sequence[str]) -> str | None:
    """Return an error for the first long flag that the command line does not know; None if it knows all."""
    known = list(parser._option_string_actions)  # noqa: SLF001 -- argparse has no other way to list them
    for word in words:
        if word == "--":
            return None
        name = word.partition("=")[0]
        if name.startswith("--") and name not in known:
            return f"unknown flag {name}{did_you_mean(name, [each for each in known if each.startswith('--')])}"
    return None
