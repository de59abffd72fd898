"""Functions on texts in selectors.

Source: cel-go ext/strings.go, common/types; k8s.io/apiserver/pkg/cel/library/regex.go.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from webhook.api.remembered import remembered
from webhook.expressions.values import EvaluationError, PatternError, compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PATTERN_MEMORY_BYTES: Final = 1 << 20  # of RE2's program and caches
_ANY_BYTE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\C")
"""`\\C`, which RE2 takes and Go does not."""
_SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_QUOTED: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\",
    '"': '\\"',
}  # fmt: skip


# --- patterns -----------------------------------------------------------------------------------


class PatternFault(Enum):
    """Why a pattern has no program."""

    ILLEGAL = "Illegal regex"
    """No API server takes it either."""
    TOO_LARGE = "a pattern of this size; use a smaller one, or several"
    """Go may take it, as it needs less memory for classes of characters."""


@remembered(128, 10 * 1024)
def compiled_pattern(pattern: str) -> Any:
    """RE2's program for a pattern, or a PatternFault. The programs that are kept take up to 128 MiB (ADR 20)."""
    if _ANY_BYTE.search(pattern):
        return PatternFault.ILLEGAL
    try:
        return compiled(pattern, _PATTERN_MEMORY_BYTES)
    except PatternError as error:
        return PatternFault.TOO_LARGE if error.too_large else PatternFault.ILLEGAL


def _program(pattern: str) -> Any:
    program = compiled_pattern(pattern)
    if program is PatternFault.TOO_LARGE:
        raise EvaluationError(f"not supported here: {program.value}")
    if program is PatternFault.ILLEGAL:
        raise EvaluationError(program.value)
    return program


def _searched(text: str) -> str:
    """A text as RE2 takes it: lone surrogates, which no API server stores, cannot be encoded."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _matches(text: str, pattern: str) -> bool:
    return _program(pattern).search(_searched(text)) is not None


def _find(text: str, pattern: str) -> str:
    match = _program(pattern).search(_searched(text))
    return "" if match is None else str(match.group())


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    found: list[str] = []
    end = -1
    for match in _program(pattern).finditer(_searched(text)):
        if len(found) == most:
            break
        if match.start() == match.end() == end:
            continue  # nothing, right after something
        end = match.end()
        found.append(match.group())
    return found


# --- positions ----------------------------------------------------------------------------------


def _out_of_range(position: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {position}")


def _char_at(text: str, position: int) -> str:
    if not 0 <= position <= len(text):
        raise _out_of_range(position)
    return text[position : position + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise _out_of_range(start)
    if not part:
        return min(start, len(text))
    return text.find(part, start)


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def _last_index_from(text: str, part: str, start: int) -> int:
    if start < 0:
        raise _out_of_range(start)
    if not part:
        return min(start, len(text))
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def _substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text[start:]


def _substring_to(text: str, start: int, end: int) -> str:
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for position in (start, end):
        if not 0 <= position <= len(text):
            raise _out_of_range(position)
    return text[start:end]


# --- parts --------------------------------------------------------------------------------------


def _ascii(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(change(character) if character.isascii() else character for character in text)


def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    return text.replace(old, new, max(most, -1))


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    if not separator:
        pieces = list(text)
        if 0 < most < len(pieces):
            return [*pieces[: most - 1], "".join(pieces[most - 1 :])]
        return pieces
    return text.split(separator, most - 1 if most > 0 else -1)


def _join(parts: list[Any], separator: str = "") -> str:
    for part in parts:
        if not isinstance(part, str):
            raise EvaluationError("join: invalid input")
    return separator.join(parts)


def _quote(text: str) -> str:
    return f'"{"".join(_QUOTED.get(character, character) for character in text)}"'


TEXTS: Final[Mapping[str, Callable[..., Any]]] = {
    "contains_string": lambda text, part: part in text,
    "starts_with_string": str.startswith,
    "ends_with_string": str.endswith,
    "matches": _matches,
    "matches_string": _matches,
    "string_find_string": _find,
    "string_find_all_string": _find_all,
    "string_find_all_string_int": _find_all,
    "string_char_at_int": _char_at,
    "string_index_of_string": _index_of,
    "string_index_of_string_int": _index_of,
    "string_last_index_of_string": _last_index_of,
    "string_last_index_of_string_int": _last_index_from,
    "string_lower_ascii": _ascii(str.lower),
    "string_upper_ascii": _ascii(str.upper),
    "string_replace_string_string": _replace,
    "string_replace_string_string_int": _replace,
    "string_split_string": _split,
    "string_split_string_int": _split,
    "string_substring_int": _substring,
    "string_substring_int_int": _substring_to,
    "string_trim": lambda text: text.strip(_SPACES),
    "list_join": _join,
    "list_join_string": _join,
    "strings_quote": _quote,
}
"""By overload."""
