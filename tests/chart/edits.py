"""Texts of manifests turned into templates of the chart: what is the same for every object, and edits by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_LABELS: Final = re.compile(
    r"^(?P<indent> *)app\.kubernetes\.io/name: device-taint-webhook\n"
    r"(?P=indent)app\.kubernetes\.io/instance: device-taint-webhook\n"
    r"(?P=indent)app\.kubernetes\.io/component: (?P<component>\S+)\n"
    r"(?P=indent)app\.kubernetes\.io/part-of: device-taint-webhook\n"
    r"(?P=indent)app\.kubernetes\.io/managed-by: kustomize\n",
    re.MULTILINE,
)
_OWN_NAMESPACE: Final = re.compile(r"^(\s*(?:- )?)namespace: device-taint-webhook$", re.MULTILINE)
_NAMESPACE: Final = "{{ $.Release.Namespace }}"
_EXEMPT: Final = "{{ prepend $.Values.exemptNamespaces $.Release.Namespace | uniq | toJson }}"


class ChartSourceError(Exception):
    """A manifest no longer has a text that the chart replaces; the message says which."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement: `old` must stand in the manifest once, or, with `after`, anywhere behind that text."""

    old: str
    new: str
    after: str = ""

    def applied(self, text: str, source: str) -> str:
        """The text with the replacement. Raises ChartSourceError."""
        before, anchor, rest = text.partition(self.after) if self.after else ("", "", text)
        found = rest.count(self.old)
        if (self.after and not anchor) or found < 1 or (found > 1 and not self.after):
            where = f" after {self.after!r}" if self.after else ""
            raise ChartSourceError(
                f"{source} has this text {found} times{where}, and tests/chart/sources.py replaces it in the chart: "
                f"{self.old!r}. Change the edit there with the manifest."
            )
        return before + anchor + rest.replace(self.old, self.new, 1)


def wrapped(old: str, condition: str, otherwise: str = "", *, after: str = "") -> Edit:
    """Keeps whole lines only under a condition, and puts others there otherwise."""
    last = f"{{{{- else }}}}\n{otherwise}" if otherwise else ""
    return Edit(old, f"{{{{- if {condition} }}}}\n{old}{last}{{{{- end }}}}\n", after)


def followed(old: str, addition: str, *, after: str = "") -> Edit:
    """Adds lines behind whole lines."""
    return Edit(old, old + addition, after)


def common(text: str) -> str:
    """Labels, namespaces, and namespaces that are left out: the same in every manifest."""

    def labels(found: re.Match[str]) -> str:
        indent = found["indent"]
        call = f'include "device-taint-webhook.labels" (list $ "{found["component"]}")'
        return f"{indent}{{{{- {call} | nindent {len(indent)} }}}}\n"

    text = _LABELS.sub(labels, text)
    text = _OWN_NAMESPACE.sub(rf"\1namespace: {_NAMESPACE}", text)
    text = text.replace("values: [device-taint-webhook, kube-system]", f"values: {_EXEMPT}")
    text = text.replace("system:serviceaccount:device-taint-webhook:", f"system:serviceaccount:{_NAMESPACE}:")
    text = text.replace("values: [device-taint-webhook]", f"values: [{_NAMESPACE}]")
    return text.replace("namespaces: [device-taint-webhook]", f"namespaces: [{_NAMESPACE}]")


def entry_of(patch: str) -> str:
    """A kustomize patch that adds one entry to a webhook configuration, as an item of that list; comments are kept."""
    comments, _, value = patch.partition("- op: add\n  path: /webhooks/-\n  value:\n")
    lines = value.splitlines()
    items = [f"- {lines[0].strip()}", *(line.removeprefix("  ") for line in lines[1:])]
    return comments + "\n".join(items) + "\n"
