"""CEL that puts back default tolerations: an update of a claim or template without those that were added to it.

Specs are immutable, so the API server would refuse the author's own manifest.
"""

from __future__ import annotations

from typing import Final

from webhook.api.meta import OWN_GROUP
from webhook.policy.vap.cel import literal

DEFAULTED: Final = f"{OWN_GROUP}/defaulted-tolerations"
"""The annotation of `admission.claim_view`."""
_TEMPLATES: Final = 'request.resource.resource == "resourceclaimtemplates"'

SECONDS_MOST: Final = 2**53
"""CEL turns larger numbers into texts on their way into a patch, and no API server takes those."""
_COPY: Final = """\
{?"key": t.?key, ?"operator": t.?operator, ?"value": t.?value, ?"effect": t.?effect,
    ?"tolerationSeconds": t.?tolerationSeconds}"""
"""An entry of a list as a value that a patch can have; a part of an object is none."""
_POINTER: Final = f"/metadata/annotations/{DEFAULTED.replace('/', '~1')}"


def noting(expression: str) -> str:
    """An expression with the annotation's key and place put in."""
    return expression.replace("NOTE_KEY", literal(DEFAULTED)).replace("NOTE_POINTER", literal(_POINTER))


def requests_in(value: str, suffix: str = "") -> dict[str, str]:
    """Variables about the requests of `object` or `oldObject`: for each of them what is asked for, and where."""
    devices, requests, choices, places = (f"{name}{suffix}" for name in ("devices", "requests", "choices", "places"))
    return {
        devices: f"{_TEMPLATES} ? dyn({value}).spec.spec.devices : dyn({value}).spec.devices",
        requests: f"has(variables.{devices}.requests) ? variables.{devices}.requests : []",
        choices: (
            f"variables.{requests}.map(r, has(r.exactly) ? [r.exactly]\n"
            "  : has(r.firstAvailable) && size(r.firstAvailable) > 0 ? r.firstAvailable\n"
            "  : has(r.deviceClassName) ? [r] : [])"  # v1beta1
        ),
        places: (
            f'variables.{requests}.map(r, has(r.exactly) ? ["/exactly"]\n'
            "  : has(r.firstAvailable) && size(r.firstAvailable) > 0\n"
            '  ? r.firstAvailable.transformList(k, each, "/firstAvailable/" + string(k)) : [""])'
        ),
        "root": f'({_TEMPLATES} ? "/spec/spec" : "/spec") + "/devices/requests/"',
    }


KEPT_VARIABLES: Final = {
    **requests_in("object"),
    **requests_in("oldObject", "Before"),
    "stored": f"""\
variables.choices.transformList(i, choice, choice.transformList(k, asked,
  i < size(variables.choicesBefore) && k < size(variables.choicesBefore[i])
  && variables.places[i][k] == variables.placesBefore[i][k]
  && has(variables.choicesBefore[i][k].tolerations)
  && !variables.choicesBefore[i][k].tolerations.exists(t, has(t.tolerationSeconds)
    && (t.tolerationSeconds > {SECONDS_MOST} || t.tolerationSeconds < -{SECONDS_MOST}))
  ? variables.choicesBefore[i][k].tolerations.map(t, {_COPY}) : []))""",
    "present": f"""\
variables.choices.map(choice, choice.map(asked, has(asked.tolerations)
  ? asked.tolerations.map(t, {_COPY}) : []))""",
}
KEPT_CONDITIONS: Final = {
    "not-being-deleted": "!has(oldObject.metadata.deletionTimestamp)",
    "spec-differs": "object.spec != oldObject.spec",
    "was-given-defaults": (
        f"has(oldObject.metadata.annotations) && {literal(DEFAULTED)} in oldObject.metadata.annotations"
    ),
}
KEPT_MUTATION: Final = noting("""\
variables.present.transformList(i, choice, choice.transformList(k, own,
  size(own) < size(variables.stored[i][k]) && variables.stored[i][k].slice(0, size(own)) == own,
  size(own) > 0
  ? variables.stored[i][k].slice(size(own), size(variables.stored[i][k])).map(added, JSONPatch{op: "add",
      path: variables.root + string(i) + variables.places[i][k] + "/tolerations/-", value: added})
  : [JSONPatch{op: "add", path: variables.root + string(i) + variables.places[i][k] + "/tolerations",
      value: variables.stored[i][k]}])).flatten().flatten()
+ (has(object.metadata.annotations)
  ? [JSONPatch{op: "add", path: NOTE_POINTER,
      value: oldObject.metadata.annotations[NOTE_KEY]}]
  : [JSONPatch{op: "add", path: "/metadata/annotations",
      value: {NOTE_KEY: oldObject.metadata.annotations[NOTE_KEY]}}])""")
