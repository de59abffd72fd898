"""The checks of `doctor` on callers and on the policy that protects authors. No I/O."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.api.names import PROGRAM
from webhook.commands.doctor.checks import Check, Status, passed
from webhook.config.flags import ENVIRONMENT_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Json = Mapping[str, Any]

AUTHOR_POLICY: Final = f"{PROGRAM}-authors"
_CONTAINER: Final = "serve"


def callers_check(deployment: Json) -> Check:
    """Whether `serve` authenticates API servers, as far as its Deployment shows."""
    if flag_value(deployment, "client-ca-file"):
        return passed("callers", "only clients with an API server's certificate are accepted")
    if flag_value(deployment, "trust-unauthenticated-callers") in {"", "1", "true", "yes", "on"}:
        return passed(
            "callers", "every client is trusted as an API server: make sure that nothing else can reach the port"
        )
    text = "API servers do not authenticate: template authors are not signed, and impacts cannot be confirmed"
    return Check(
        "callers", Status.WARN, text, "add the component client-certificates, or pick another way in docs/callers.md"
    )


def flag_value(deployment: Json, flag: str, name: str = _CONTAINER) -> str | None:
    """A flag's value in the arguments or the environment of a container; None if it is in neither."""
    for container in _containers(deployment, name):
        for argument in container.get("args") or ():
            given, _, text = str(argument).partition("=")
            if given == f"--{flag}":
                return text
        variable = ENVIRONMENT_PREFIX + flag.upper().replace("-", "_")
        for entry in container.get("env") or ():
            if entry.get("name") == variable:
                return str(entry.get("value") or "false").lower()
    return None


def _containers(deployment: Json, name: str) -> Iterator[Json]:
    pod = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    for container in pod.get("containers") or ():
        if container.get("name") == name:
            yield container


def author_policy_check(policy: Json | None, binding: Json | None) -> Check:
    """Whether API servers refuse templates that name another author, by the policy as shipped."""
    name, advice = "author policy", "apply the overlay again; it has manifests/base/author-policy.yaml"
    found = {"ValidatingAdmissionPolicy": policy, "ValidatingAdmissionPolicyBinding": binding}
    missing = [kind for kind, each in found.items() if each is None]
    if missing:
        text = (
            f"no {' and no '.join(missing)} {AUTHOR_POLICY}: while the webhook is down, a template can name any author"
        )
        return Check(name, Status.WARN, text, advice)
    changed = [
        f"{kind} spec.{field}"
        for kind, each in found.items()
        if each is not None
        for field in _differences(each.get("spec") or {}, shipped()[kind])
    ]
    if changed:
        return Check(
            name,
            Status.WARN,
            f"changed from the manifests, so templates may be able to name any author: {', '.join(changed)}",
            advice,
        )
    return passed(name, "API servers refuse templates that name another author")


def shipped() -> Mapping[str, Json]:
    """The specs of both objects by kind, as manifests/base/author-policy.yaml has them."""
    text = resources.files(__package__).joinpath("author_policy.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, Any]])


def _differences(stored: Json, wanted: Json) -> list[str]:
    """Fields that differ from the manifests, including added ones: those may narrow the policy."""
    return sorted(field for field in {*stored, *wanted} if stored.get(field) != wanted.get(field))
