"""Selectors that are made to take long: each value is made of the ones before, by any function there is.

The functions are those of the table, so that a new one joins by itself. A seed gives the same selector each time.
"""

from __future__ import annotations

import random
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from webhook.expressions.selectors.functions import functions
from webhook.expressions.selectors.kinds import CelType, named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.expressions.selectors.functions import Overload

LENGTHS: Final = (1, 30, 300, 2500)
VALUES: Final = 20
"""That a selector gives names to; each nests the rest deeper."""
_UNARY: Final = {"!_": "!", "-_": "-"}
_MADE_BY_MACROS: Final = {
    "cel.@mapInsert": "{0}.transformMap(k, v, v)",
    "@sortByAssociatedKeys": "{0}.sortBy(x, x)",
    "@not_strictly_false": "[{0}].all(x, x)",
    "_?_:_": "({0} ? {1} : {2})",
    "_[_]": "{0}[{1}]",
    "_[?_]": "{0}[?{1}]",
    "_?._": "{0}.?name",
    "@in": "({0} in {1})",
}
"""How the functions are spelled that have no name of their own."""
_PARAMETERS: Final = ("int", "string", "list(int)", "list(list(int))", "map(string, list(int))")
HEAVY_PATTERNS: Final = (
    *("x{0,1000}" * 20, "x{0,1000}a" * 5, "x{0,100}" * 26, "x?" * 3000, "[^a]{0,900}[^b]{0,900}", "x{0,1000}" * 1100),
    *("\\pL" * 3300, "\\PL|" * 2500, "[^\\pL]" * 30, "\\pL*" * 30, "(?i:\\pL)" * 50, "[\\pL\\pN]" * 60),
    *("x{1000}" * 1400, "\\p{" * 3300),
)
"""RE2 takes from 20 ms to some seconds for one, and lets no other thread run meanwhile."""
_PATTERNS: Final = (
    *("(a?){1,90}", "((a*b*)*c)*", "(?i)[^a-z]{50}", "\\\\\\\\pL{3}", "x*", "(.*)(.*)(.*)(.*)y"),
    *(each.replace("\\", "\\\\") for each in HEAVY_PATTERNS if len(each) < 300),
)


def hostile(seed: int) -> str:
    """A selector of at most 10 KiB. Most of those with an even seed can be evaluated."""
    rng = random.Random(seed)
    names = {each.id: name for name, known in functions().by_name.items() for each in known}
    evaluated = [each for each in functions().by_id.values() if each.run is not None]
    overloads = list(functions().by_id.values()) if seed % 2 else evaluated
    values: list[tuple[CelType, str]] = []
    text, room = "", 10_000
    while len(values) < (VALUES if seed % 2 else VALUES // 2):
        overload = rng.choice(overloads)
        made = _call(overload, names[overload.id], values, rng)
        if made is None or len(made[1]) > room // 3:
            continue
        kind, call = made
        name = f"v{len(values)}"
        text += f"cel.bind({name}, {call}, "
        room -= len(call) + len(name) + 14
        values.append((kind, name))
    ends = [f"{name} == {name}" for _, name in rng.sample(values, 3)]
    return f"{text}{' || '.join(ends)}{')' * len(values)}"


def bomb(seed: int) -> str:
    """Each value is of a type that is twice as large as the one before."""
    names = [f"s{seed}x{at}" for at in range(16)]
    start = f"cel.bind({names[0]}, 1, " + "".join(
        f"cel.bind({name}, {{{before}: {before}}}, " for before, name in pairwise(names)
    )
    return f"{start}{names[-1]} == {names[-1]}{')' * len(names)}"


def long(seed: int) -> str:
    """As many parts as 10 KB hold, all of which are right."""
    text = " || ".join(["1 < 2"] * 1100)
    return f"{text} || {seed} < 0"


def towers(seed: int) -> str:
    """Two lists of lists of lists, whose entries are a million."""
    parts = [
        f"cel.bind({name}{at}, [{', '.join([str(seed) if at == 0 else f'{name}{at - 1}'] * 10)}], "
        for name in "ab"
        for at in range(6)
    ]
    return f"{''.join(parts)}a5 == b5{')' * 12}"


def slowest(seed: int) -> tuple[str, str]:
    """Two selectors of which the first takes as long to compile as any that was found, and the second is refused."""
    return long(seed), "1"


def _call(
    overload: Overload, name: str, values: list[tuple[CelType, str]], rng: random.Random
) -> tuple[CelType, str] | None:
    stand_ins = {parameter: named(rng.choice(_PARAMETERS)) for parameter in parameters(overload)}
    given = []
    for kind in (instance(each, stand_ins) for each in overload.arguments):
        known = [text for other, text in values if other == kind]
        # What was made last is the largest.
        given.append(rng.choice(known[-3:]) if known and rng.random() < 0.9 else literal(kind, rng))
    if name == "cel.@mapInsert" and overload.arguments[0].kind != "map":
        return None
    return instance(overload.result, stand_ins), spelled(overload, name, given)


def spelled(overload: Overload, name: str, given: list[str]) -> str:
    """A call of an overload."""
    if name in _MADE_BY_MACROS:
        return _MADE_BY_MACROS[name].format(*given)
    if name in _UNARY:
        return f"({_UNARY[name]}{given[0]})"
    if name.startswith("_"):
        return f"({given[0]} {name.strip('_')} {given[1]})"
    if overload.method:
        return f"{given[0]}.{name}({', '.join(given[1:])})"
    return f"{name}({', '.join(given)})"


def parameters(overload: Overload) -> list[str]:
    """The capital letters in its types."""
    spelt = " ".join(map(str, (*overload.arguments, overload.result)))
    return sorted({*re.findall(r"\b[A-Z]\b", spelt)})


def instance(kind: CelType, stand_ins: Mapping[str, CelType]) -> CelType:
    """A type of a declaration, with types for its parameters."""
    if kind.kind == "parameter":
        return stand_ins.get(kind.name, named("int"))
    return CelType(kind.kind, kind.name, tuple([instance(each, stand_ins) for each in kind.of]))


def literal(kind: CelType, rng: random.Random) -> str:  # noqa: C901, PLR0911, PLR0912 -- one case a sort of type
    """A value of a type, of any size."""
    size = rng.choice(LENGTHS)
    match kind.name:
        case "list":
            entry = literal(kind.of[0], random.Random(1)) if kind.of[0].of else None
            return (
                f"[{', '.join([entry or literal(kind.of[0], random.Random(at)) for at in range(rng.choice((1, 9)))])}]"
            )
        case "map":
            return f"{{{literal(kind.of[0], random.Random(1))}: {literal(kind.of[1], random.Random(1))}}}"
        case "string":
            return f"'{rng.choice(['a' * size, 'ab' * (size // 2), '1' * (size // 9), *_PATTERNS])}'"
        case "bytes":
            return f"b'{'a' * size}'"
        case "int":
            return str(rng.choice((0, 1, 7, size, 2**62)))
        case "uint":
            return f"{size}u"
        case "double":
            return f"{size}.5"
        case "bool":
            return rng.choice(("true", "false", "1 < 2"))
        case "null_type":
            return "null"
        case "optional_type":
            return f"optional.of({literal(kind.of[0], rng)})"
        case "type":
            return "int"
        case "kubernetes.Quantity":
            return f"quantity('{'9' * min(size, 900)}')"
        case "kubernetes.Semver":
            return f"semver('1.2.3-{'.'.join(['a'] * size)}')"
        case _:
            return "dyn(1)"


def value(kind: CelType, size: int) -> Any:  # noqa: C901, PLR0911 -- one case a sort of type
    """A value of a type as it is evaluated: a text, list or map of that size, and so are those within."""
    from fractions import Fraction  # noqa: PLC0415 -- as the next

    from webhook.expressions.selectors import values  # noqa: PLC0415 -- the table alone needs none

    match kind.name:
        case "list":
            return [value(kind.of[0], 3) for _ in range(size)]
        case "map":
            return {f"k{at}": value(kind.of[1], 3) for at in range(size)}
        case "string":
            return "a" * size
        case "bytes":
            return b"a" * size
        case "uint":
            return values.UInt(1)
        case "double":
            return 1.5
        case "bool":
            return True
        case "optional_type":
            return values.Optional(present=True, value=value(kind.of[0], size))
        case "type":
            return values.TypeName("int")
        case "kubernetes.Quantity":
            return values.Quantity(Fraction(1))
        case "kubernetes.Semver":
            return values.Semver(1, 2, 3, ("a",) * size)
        case _:
            return 1
