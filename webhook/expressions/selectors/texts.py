"""Functions on texts in selectors.

Source: cel-go ext/strings.go, common/types; k8s.io/apiserver/pkg/cel/library/regex.go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from webhook.api.remembered import remembered
from webhook.expressions.selectors import call_costs as costs
from webhook.expressions.selectors.call_costs import Estimate, Function, Operands, Range, counted
from webhook.expressions.selectors.faults import Charge
from webhook.expressions.selectors.syntax import Constant
from webhook.expressions.selectors.values import CHARACTERS, MAX_UINT, no_overload
from webhook.expressions.values import EvaluationError, PatternError, compiled

# Of RE2's program and caches: for any pattern, for each of its instructions, and at most.
_MEMORY_BYTES: Final = 1 << 16
_INSTRUCTION_BYTES: Final = 32
_MEMORY_MAX_BYTES: Final = 1 << 20
_PATTERN_STEPS: Final = 1500
"""To compile a pattern that a selector keeps, which takes 64 KiB. An instruction takes one more, and 32 bytes."""
_COMPUTED_STEPS: Final = 100
"""The same for a pattern that is computed, and not kept by a selector."""
_INSTRUCTIONS_MAX: Final = 1 << 16
"""RE2 is not asked for a pattern of as many without its classes: it lets no other thread run, and takes up to 20 ms."""
_FOUND_STEPS: Final = 10
"""For each place that is found."""
_MATCHED: Final = 32
"""Characters, for each instruction of a pattern, that are searched in a step. Most patterns need far less."""
_ATOM: Final = re.compile(
    r"\\[pPx](?:\{[^}]{0,64}\}|.)|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*+\]?"
    r"|\{(?P<least>\d{1,4})(?:,(?P<most>\d{0,4}))?\}|.",
    re.DOTALL,
)
_CLASS: Final = re.compile(r"\\[pP]")
_CLASS_INSTRUCTIONS: Final = 1300
"""At most, of a class of characters of Unicode."""
_CLASSES_MAX: Final = 16
"""RE2 reads all of them, 0.4 ms each, before it says that they are too large."""
_OPTIONAL: Final = 100
"""Optional parts; each takes an instruction's time for each other one."""
_ANY_BYTE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\C")
"""`\\C`, which RE2 takes and Go does not."""
_UNKNOWN_CLASS: Final = re.compile(r": \\[pP]\{.*\w.*\}$")
"""What RE2 says of a class that it does not know."""
_SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_QUOTED: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\",
    '"': '\\"',
}  # fmt: skip


# --- patterns -----------------------------------------------------------------------------------

PATTERNS: Final = {"matches": 1, "find": 1, "findAll": 1}
"""Functions that take a pattern, and which operand it is."""


class PatternFault(Enum):
    """Why a pattern has no program."""

    ILLEGAL = "Illegal regex"
    """No API server takes it either."""
    TOO_LARGE = "a pattern of this size; use a smaller one, or several"
    """Go may take it, as it needs less memory for classes of characters."""
    UNKNOWN_CLASS = r"a class of characters of this name; use a short one, such as \p{L}, or that of a script"
    """Go may take it: from 1.25, it has more names than RE2, in any case."""


def instructions(pattern: str, of_class: int = _CLASS_INSTRUCTIONS) -> int:
    """How many RE2's program for a pattern has at most, with the time to make it; no more than 65,536 are counted."""
    groups, last, optional = [0], 0, 0
    for match in _ATOM.finditer(pattern):
        atom = match.group()
        if match["least"] is not None:
            least, most = int(match["least"]), int(match["most"] or 0)
            count, optional = max(least, most, 1), optional + max(most - least, 0)
            groups[-1] += last * (count - 1)
            last *= count
        elif atom == "(":
            groups.append(2)
        elif atom == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        else:
            optional += atom == "?"
            last = (3 if atom.isascii() and atom != "." and not {*atom} & {"\\", "^"} else 8) * len(atom)
            last += of_class * len(_CLASS.findall(atom))
            groups[-1] += last
        last = min(last, _INSTRUCTIONS_MAX)
    return min(sum(groups) + optional**2 // _OPTIONAL + 8, _INSTRUCTIONS_MAX)


def charge_pattern(charge: Charge, pattern: str, steps: int = _PATTERN_STEPS) -> None:
    """For a pattern that will be compiled."""
    charge(len(pattern))
    charge(steps + instructions(pattern))


@remembered(16, 10 * 1024)
def compiled_pattern(pattern: str) -> Any:
    """RE2's program for a pattern, or a PatternFault. Selectors keep the programs of their own patterns."""
    if _ANY_BYTE.search(pattern):
        return PatternFault.ILLEGAL
    if len(_CLASS.findall(pattern)) > _CLASSES_MAX or instructions(pattern, 0) == _INSTRUCTIONS_MAX:
        return PatternFault.TOO_LARGE
    try:
        return compiled(pattern, min(_MEMORY_BYTES + _INSTRUCTION_BYTES * instructions(pattern), _MEMORY_MAX_BYTES))
    except PatternError as error:
        if error.too_large:
            return PatternFault.TOO_LARGE
        return PatternFault.UNKNOWN_CLASS if _UNKNOWN_CLASS.search(str(error)) else PatternFault.ILLEGAL


def _program(charge: Charge, pattern: Any) -> Any:
    """That of a text that is a pattern; a program stands for itself."""
    if not isinstance(pattern, str):
        return pattern
    charge_pattern(charge, pattern, _COMPUTED_STEPS)
    program = compiled_pattern(pattern)
    if program is PatternFault.ILLEGAL:
        raise EvaluationError(program.value)
    if isinstance(program, PatternFault):
        raise EvaluationError(f"not supported here: {program.value}")
    return program


def _searched(text: str) -> str:
    """A text as RE2 takes it: lone surrogates, which no API server stores, cannot be encoded."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _search(charge: Charge, text: str, pattern: Any) -> Any:
    program = _program(charge, pattern)
    charge(len(text) * program.programsize // _MATCHED)
    return program.search(_searched(text))


def _matches(charge: Charge, text: str, pattern: Any) -> bool:
    return _search(charge, text, pattern) is not None


def _find(charge: Charge, text: str, pattern: Any) -> str:
    match = _search(charge, text, pattern)
    return "" if match is None else str(match.group())


def _find_all(charge: Charge, text: str, pattern: Any, most: int = -1) -> list[str]:
    found: list[str] = []
    end = -1
    program = _program(charge, pattern)
    charge(len(text) * program.programsize // _MATCHED)
    for match in program.finditer(_searched(text)):
        if len(found) == most:
            break
        charge(_FOUND_STEPS + (len(text) - match.start()) * program.programsize // _MATCHED)
        if match.start() == match.end() == end:
            continue  # nothing, right after something
        end = match.end()
        found.append(match.group())
    return found


def searching(function: Callable[..., Any], program: Any) -> Callable[..., Any]:
    """The function of `matches` and its kin for a pattern that was compiled with the selector."""

    def run(charge: Charge, text: Any, pattern: str, *limits: Any) -> Any:
        if not isinstance(text, str) or not all(type(limit) is int for limit in limits):
            raise no_overload(text, pattern, *limits)
        return function(charge, text, program, *limits)

    return run


# --- positions ----------------------------------------------------------------------------------


def _out_of_range(position: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {position}")


def _char_at(text: str, position: int) -> str:
    if not 0 <= position <= len(text):
        raise _out_of_range(position)
    return text[position : position + 1]


def _charge_search(charge: Charge, text: str, part: str) -> None:
    """For a look at each place of a text where a part of it may be."""
    charge(len(text) * len(part) // CHARACTERS**2)


def _contains(charge: Charge, text: str, part: str) -> bool:
    _charge_search(charge, text, part)
    return part in text


def _index_of(charge: Charge, text: str, part: str, start: int = 0) -> int:
    _charge_search(charge, text, part)
    if start < 0:
        raise _out_of_range(start)
    if not part:
        return min(start, len(text))
    return text.find(part, start)


def _last_index_of(charge: Charge, text: str, part: str) -> int:
    _charge_search(charge, text, part)
    return text.rfind(part)


def _last_from(charge: Charge, text: str, part: str, start: int) -> int:
    _charge_search(charge, text, part)
    if start < 0:
        raise _out_of_range(start)
    if not part:
        return min(start, len(text))
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for position in (start, len(text) if end is None else end):
        if not 0 <= position <= len(text):
            raise _out_of_range(position)
    return text[start:end]


# --- parts --------------------------------------------------------------------------------------


def _ascii(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(change(character) if character.isascii() else character for character in text)


def _replace(charge: Charge, text: str, old: str, new: str, most: int = -1) -> str:
    _charge_search(charge, text, old)
    count = text.count(old)
    charge((count if most < 0 else min(most, count)) * len(new) // CHARACTERS)
    return text.replace(old, new, max(most, -1))


def _split(charge: Charge, text: str, separator: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    _charge_search(charge, text, separator)
    charge(len(text) // (len(separator) or 1))
    if not separator:
        pieces = list(text)
        if 0 < most < len(pieces):
            return [*pieces[: most - 1], "".join(pieces[most - 1 :])]
        return pieces
    return text.split(separator, most - 1 if most > 0 else -1)


def _join(charge: Charge, parts: list[Any], separator: str = "") -> str:
    charge(len(parts))
    for part in parts:
        if not isinstance(part, str):
            raise EvaluationError("join: invalid input")
    charge((sum(map(len, parts)) + len(separator) * len(parts)) // CHARACTERS)
    return separator.join(parts)


def _quote(text: str) -> str:
    return f'"{"".join(_QUOTED.get(character, character) for character in text)}"'


# --- costs --------------------------------------------------------------------------------------


def _join_cost(given: Operands) -> Estimate:
    target = given[0]
    size = target.size.times(target.entries or costs.UNKNOWN) if target.type.of else costs.NONE
    if len(given) > 1:
        between = Range(max(target.size.least - 1, 0), max(target.size.most - 1, 0))
        size = size.plus(given[1].size.times(between))
    return Estimate(size.scaled(costs.TRAVERSAL), size)


def _split_cost(given: Operands) -> Estimate:
    size = given[0].size
    most = size.most
    if len(given) > 2 and isinstance(given[2].node, Constant):
        most = given[2].node.value % 2**64
    return Estimate(size.scaled(2 * costs.TRAVERSAL), Range(0, most))


def _replace_cost(given: Operands) -> Estimate:
    size, old, new = (each.size for each in given[:3])
    return Estimate(size.scaled(2 * costs.TRAVERSAL), _replaced(size, old, new))


def _replaced(size: Range, old: Range, new: Range) -> Range:
    """The size of a text in which one part is replaced by another."""
    if old.least == 0:
        most, kept_most = min(size.most + 1, MAX_UINT), size.most
    elif new.most <= old.least:
        most, kept_most = 0, size.most
    else:
        most, kept_most = math.ceil(float(size.most) / float(old.least)), 0
    if old.most == 0:
        least, kept_least = min(size.least + 1, MAX_UINT), size.least
    elif old.most <= new.least:
        least, kept_least = 0, size.least
    else:
        least, kept_least = math.ceil(float(size.least) / float(old.most)), 0
    return Range(least, min(most, MAX_UINT)).times(new).plus(Range(kept_least, kept_most))


def _find_cost(given: Operands) -> Estimate:
    size = given[0].size
    return Estimate(_match_cost(given).cost, Range(0, size.most))


def _match_cost(given: Operands) -> Estimate:
    return Estimate(given[0].size.plus(costs.ONE).scaled(costs.TRAVERSAL).times(given[1].size.scaled(costs.PATTERN)))


def _contain_cost(given: Operands) -> Estimate:
    return Estimate(given[0].size.scaled(costs.TRAVERSAL).times(given[1].size.scaled(costs.TRAVERSAL)))


def _quote_cost(given: Operands) -> Estimate:
    size = given[0].size
    return Estimate(size.scaled(costs.TRAVERSAL), Range((size.least + 2) % 2**64, (size.most * 2 + 2) % 2**64))


TEXTS: Final = (
    Function("charAt string_char_at_int string.(int) -> string", _char_at),
    counted("contains contains_string string.(string) -> bool", _contains, _contain_cost),
    Function("endsWith ends_with_string string.(string) -> bool", str.endswith, costs.look(1)),
    counted("find string_find_string string.(string) -> string", _find, _find_cost),
    counted("findAll string_find_all_string string.(string) -> list(string)", _find_all, _find_cost),
    counted("findAll string_find_all_string_int string.(string, int) -> list(string)", _find_all, _find_cost),
    counted("indexOf string_index_of_string string.(string) -> int", _index_of, costs.aggregate),
    counted("indexOf string_index_of_string_int string.(string, int) -> int", _index_of, costs.aggregate),
    counted("join list_join list(string).() -> string", _join, _join_cost),
    counted("join list_join_string list(string).(string) -> string", _join, _join_cost),
    counted("lastIndexOf string_last_index_of_string string.(string) -> int", _last_index_of, costs.aggregate),
    counted("lastIndexOf string_last_index_of_string_int string.(string, int) -> int", _last_from, costs.aggregate),
    Function("lowerAscii string_lower_ascii string.() -> string", _ascii(str.lower), costs.keep),
    counted("matches matches (string, string) -> bool", _matches, _match_cost),
    counted("matches matches_string string.(string) -> bool", _matches, _match_cost),
    counted("replace string_replace_string_string string.(string, string) -> string", _replace, _replace_cost),
    counted("replace string_replace_string_string_int string.(string, string, int) -> string", _replace, _replace_cost),
    counted("split string_split_string string.(string) -> list(string)", _split, _split_cost),
    counted("split string_split_string_int string.(string, int) -> list(string)", _split, _split_cost),
    Function("startsWith starts_with_string string.(string) -> bool", str.startswith, costs.look(1)),
    Function("strings.quote strings_quote (string) -> string", _quote, _quote_cost),
    Function("substring string_substring_int string.(int) -> string", _substring, costs.keep),
    Function("substring string_substring_int_int string.(int, int) -> string", _substring, costs.keep),
    Function("trim string_trim string.() -> string", lambda text: text.strip(_SPACES), costs.keep),
    Function("upperAscii string_upper_ascii string.() -> string", _ascii(str.upper), costs.keep),
)
