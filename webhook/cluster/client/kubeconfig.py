"""Kubeconfig files: which ones count, how they merge, and one context of them. As kubectl does it.

Nothing here calls a cluster or a plugin. Source: k8s.io/client-go/tools/clientcmd, loader.go and validation.go.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from webhook.cluster.client.errors import NoCredentials

_LISTS: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}
"""The lists of a kubeconfig, and the key of an entry that holds its value."""
_FILES: Final = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
    "contexts": (),
}
"""Fields that name files, relative to the kubeconfig that has them."""
_SHOWN: Final = 10


class Merged(NamedTuple):
    """Several files merged: `clusters`, `contexts` and `users` by name, and the current context's name."""

    current: str
    entries: Mapping[str, Mapping[str, Mapping[str, Any]]]


def merged(paths: Sequence[str]) -> Merged:
    """Merges the files: of two values for one thing, that of the earlier file counts.

    Relative file names come out absolute. Raises NoCredentials for a file that cannot be read or is no kubeconfig.
    """
    current = ""
    entries: dict[str, dict[str, Mapping[str, Any]]] = {name: {} for name in _LISTS}
    for path in paths:
        content = _content(path)
        current = current or _text(content, "current-context", path)
        for name in _LISTS:
            for key, entry in _named(content, name, path):
                entries[name].setdefault(key, entry)
    return Merged(current, entries)


def context_of(config: Merged, name: str | None, where: str) -> dict[str, Any]:
    """A kubeconfig with one context, its cluster and its user, which all exist. Raises NoCredentials.

    `name` None takes the current context; `where` names the files in errors.
    """
    contexts = config.entries["contexts"]
    name = name or config.current
    if not name:
        raise NoCredentials(f"{where}: no current-context is set; choose one with --context{_listed(contexts)}")
    context = contexts.get(name)
    if context is None:
        raise NoCredentials(f'{where}: there is no context "{name}"{_listed(contexts)}')
    named: dict[str, Any] = {**context}
    chosen: dict[str, Any] = {"current-context": name, "contexts": [{"name": name, "context": named}]}
    for names, what in (("clusters", "cluster"), ("users", "user")):
        wanted = _text(context, what, where)
        found = config.entries[names].get(wanted)
        if found is None and (wanted or what == "cluster"):
            raise NoCredentials(f'{where}: context "{name}" names the {what} "{wanted}", which does not exist')
        _check_contents(found or {}, _FILES[names], f'{where}: {what} "{wanted}"')
        named[what] = wanted or "none"  # the loader needs a user, also if it has no fields
        chosen[names] = [{"name": named[what], what: found or {}}]
    if not _text(chosen["clusters"][0]["cluster"], "server", where):
        raise NoCredentials(f'{where}: the cluster of context "{name}" has no server')
    return chosen


def _check_contents(entry: Mapping[str, Any], fields: Iterable[str], where: str) -> None:
    """Checks that the files an entry names exist, and that its inline data is base64. Raises NoCredentials."""
    for name in fields:
        data = entry.get(f"{name}-data")
        if data:
            try:
                base64.b64decode("".join(str(data).split()), validate=True)  # lines are allowed, as in Go
            except (binascii.Error, ValueError):
                raise NoCredentials(f"{where}: {name}-data is not base64") from None
        elif entry.get(name) and not Path(str(entry[name])).is_file():
            raise NoCredentials(f"{where}: {name}: {entry[name]}: no such file")


def _listed(names: Iterable[str]) -> str:
    known = sorted(names)
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return f"; there are {', '.join(known[:_SHOWN])}{more}" if known else ""


def _content(path: str) -> Mapping[str, Any]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NoCredentials(f"{path}: no such file") from None
    except OSError as error:
        raise NoCredentials(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise NoCredentials(f"{path}: not UTF-8") from None
    try:
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise NoCredentials(f"{path}: not YAML: {place}{error.problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: a date that is none
        raise NoCredentials(f"{path}: not YAML: {str(error).partition(chr(10))[0]}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise NoCredentials(f"{path}: not a kubeconfig: must be an object")
    return content


def _text(value: Mapping[str, Any], name: str, where: str) -> str:
    found = value.get(name)
    if found is not None and not isinstance(found, str):
        raise NoCredentials(f"{where}: not a kubeconfig: {name} must be a string")
    return found or ""


def _named(content: Mapping[str, Any], name: str, path: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The entries of one of the lists, with file names made absolute."""
    found = content.get(name)
    if found is not None and not isinstance(found, list):
        raise NoCredentials(f"{path}: not a kubeconfig: {name} must be a list")
    for index, each in enumerate(found or ()):
        value = each.get(_LISTS[name]) if isinstance(each, dict) else None
        if not isinstance(each, dict) or not isinstance(each.get("name"), str) or not isinstance(value, dict | None):
            detail = f"must have a name and a {_LISTS[name]}"
            raise NoCredentials(f"{path}: not a kubeconfig: {name}[{index}] {detail}")
        yield each["name"], _absolute(value or {}, _FILES[name], path)


def _absolute(entry: Mapping[str, Any], fields: Iterable[str], path: str) -> Mapping[str, Any]:
    """The entry with absolute file names, including that of a plugin given as a path."""
    folder = Path(path).absolute().parent
    made = {name: str(folder / entry[name]) for name in fields if isinstance(entry.get(name), str) and entry[name]}
    plugin = entry.get("exec")
    if isinstance(plugin, dict) and isinstance(plugin.get("command"), str) and os.sep in plugin["command"]:
        made_plugin = {**plugin, "command": str(folder / plugin["command"])}
        return {**entry, **made, "exec": made_plugin}
    return {**entry, **made}
