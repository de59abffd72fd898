"""The places of the pure rooms where a small change should be noticed by a test, and the changes."""

from __future__ import annotations

import ast
import difflib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cosmic_ray.ast import Visitor, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

ROOMS: Final = (
    "api",
    "expressions",
    "inventory",
    "policy",
    "validation",
    "admission",
    "eviction",
    "patches",
)
# One or two neighbours of each operator: eleven replacements of a plus say little more than one. `==` for `is` and the
# like are left out, since most of them change nothing for None and for short strings.
_COMPARISONS: Final = (
    *("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is"),
    *("Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt"),
)
_ARITHMETIC: Final = (
    *("Add_Sub", "Sub_Add", "Mul_FloorDiv", "Div_Mul", "FloorDiv_Mul", "Mod_Mul", "Pow_Mul"),
    *("BitOr_BitAnd", "BitAnd_BitOr", "BitXor_BitAnd", "LShift_RShift", "RShift_LShift"),
)
OPERATORS: Final = (
    *[f"core/ReplaceComparisonOperator_{each}" for each in _COMPARISONS],
    *[f"core/ReplaceBinaryOperator_{each}" for each in _ARITHMETIC],
    *[f"core/ReplaceUnaryOperator_{each}" for each in ("USub_UAdd", "Delete_Not", "Delete_USub")],
    *("core/AddNot", "core/ReplaceAndWithOr", "core/ReplaceOrWithAnd"),
    *("core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue"),
    *("core/ReplaceBreakWithContinue", "core/ReplaceContinueWithBreak", "core/ZeroIterationForLoop"),
    *("core/NumberReplacer", "core/ExceptionReplacer"),
)
_NO_BEHAVIOUR: Final = frozenset({"frozen", "gc", "slots"})
"""Arguments of classes that no caller can see as long as the types are kept."""

Change = tuple[str, int]
"""Name of the operator, and which of its occurrences in the module."""


class Mutant(NamedTuple):
    """One changed module. `removed` and `added` are the lines that differ; `line` counts from 1.

    `function` is that of the change, as `path: Class.name`, or `path: <module>`; `kind` its operator, without variants.
    """

    path: str
    function: str
    kind: str
    line: int
    source: str
    removed: tuple[str, ...]
    added: tuple[str, ...]

    @property
    def room(self) -> str:
        """The room of the module."""
        return self.path.split("/")[1]


class _Collector(Visitor):  # type: ignore[misc]  # cosmic-ray has no types
    """All changes of a module by the place that they change."""

    def __init__(self) -> None:
        self._operators = {name: get_operator(name)() for name in OPERATORS}
        self._counts = dict.fromkeys(OPERATORS, 0)
        self.places: dict[tuple[int, int], list[Change]] = {}

    def visit(self, node: Any) -> Any:
        """Notes what each operator could do here, and changes nothing."""
        for name, operator in self._operators.items():
            for start, _ in operator.mutation_positions(node):
                self.places.setdefault(start, []).append((name, self._counts[name]))
                self._counts[name] += 1
        return node


def sample_of(root: Path, count: int, random: random.Random, rooms: Sequence[str] = ROOMS) -> tuple[list[Mutant], int]:
    """Mutants of so many places, each as likely as any other, and how many places there are."""
    sources = {
        str(path.relative_to(root)): path.read_text()
        for room in rooms
        for path in sorted((root / "webhook" / room).rglob("*.py"))
    }
    places = [
        (path, line, changes)
        for path, source in sources.items()
        for (line, _), changes in sorted(_places(source).items())
    ]
    order = random.sample(range(len(places)), len(places))
    found: list[Mutant] = []
    for position in order:
        if len(found) == count:
            break
        path, line, changes = places[position]
        mutant = _mutant(path, sources[path], line, random.choice(changes))
        if mutant is not None:
            found.append(mutant)
    return found, len(places)


def _places(source: str) -> Mapping[tuple[int, int], list[Change]]:
    collector = _Collector()
    collector.walk(get_ast(source))
    return collector.places


def functions_of(source: str) -> Mapping[str, range]:
    """The lines of each function and class of a module, by its name within that; inner ones come after outer ones."""
    found: dict[str, range] = {}

    def look(node: ast.AST, within: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = within
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{within}.{child.name}".lstrip(".")
                found[name] = range(child.lineno, (child.end_lineno or child.lineno) + 1)
            look(child, name)

    look(ast.parse(source), "")
    return found


def _mutant(path: str, source: str, line: int, change: Change) -> Mutant | None:
    """The mutant, or None if it is the same program, or none."""
    operator, occurrence = change
    try:
        mutated = mutate_code(source, get_operator(operator)(), occurrence)
    except AttributeError:
        return None  # the replacement of exceptions expects plain names, and fails at `module.Error`
    if mutated is None or _program(mutated) in (None, _program(source)):
        return None
    before, after = source.splitlines(), mutated.splitlines()
    blocks = [
        each
        for each in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        if each[0] != "equal"
    ]
    removed = tuple(line for _, start, end, _, _ in blocks for line in before[start:end])
    added = tuple(line for _, _, _, start, end in blocks for line in after[start:end])
    function = [name for name, lines in functions_of(source).items() if line in lines]
    kind = operator.removeprefix("core/").partition("_")[0]
    return Mutant(
        path, f"{path}: {function[-1] if function else '<module>'}", kind, blocks[0][1] + 1, mutated, removed, added
    )


def _program(source: str) -> str | None:
    """What runs of a module; None if it cannot run.

    Left out are annotations, imports for type checkers, and arguments that change nothing.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    return ast.dump(_Stripper().visit(tree))


class _Stripper(ast.NodeTransformer):
    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST | None:
        return None if node.arg in _NO_BEHAVIOUR else self.generic_visit(node)


def diff_of(mutant: Mutant) -> Iterator[str]:
    """The changed lines, as a patch has them."""
    yield from (f"-{line}" for line in mutant.removed)
    yield from (f"+{line}" for line in mutant.added)
