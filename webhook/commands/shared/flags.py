"""Flags that several verbs share, and rules on their combination."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from msgspec import structs

from webhook.api.names import EXEMPT_NAMESPACES
from webhook.api.servers import UNKNOWN, ServerFacts, facts_of, parse_version
from webhook.commands.verbs import CLUSTER_FLAGS
from webhook.config import texts
from webhook.config.command_line import program
from webhook.files import STDIN
from webhook.validation.releases import NEWEST, RELEASES, Release, release_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine, Iterable, Iterator
    from typing import Any

    from webhook.cluster.client.credentials import Credentials
    from webhook.cluster.client.rest import Cluster
    from webhook.files.report import Report

_Answer = TypeVar("_Answer")
INTERVAL_SECONDS: Final = 2
"""Between two looks, unless a flag says otherwise."""


class KubernetesVersion(NamedTuple):
    """A version of the servers: the rules for fields, and what those servers do."""

    release: Release
    facts: ServerFacts


NOT_SAID: Final = KubernetesVersion(NEWEST, UNKNOWN)
"""Where no version is given."""


def add_kubernetes_version(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Add `--kubernetes-version`, None unless it is given."""
    text = f"{help_text}; 1.{min(RELEASES)} to 1.{max(RELEASES)}, or a patch release of these"
    parser.add_argument("--kubernetes-version", type=_kubernetes_version, metavar="1.N", help=text)


def _kubernetes_version(word: str) -> KubernetesVersion:
    """Read `1.34`, `v1.34.2`. A newer release than this version knows is judged as the newest it knows."""
    found = parse_version(word)
    oldest = min(RELEASES)
    if found is None or found[0].minor < oldest:
        raise ValueError(f"must be 1.{oldest} or later, such as 1.{NEWEST.minor}")
    facts = facts_of([word])
    release = RELEASES[found[0].minor] if found[0].minor < NEWEST.minor else release_of(facts)
    if found[0].minor > max(RELEASES):
        sys.stderr.write(f"note: {word} is newer than all known releases: what is known of 1.{max(RELEASES)} is used\n")
    # No server has spoken yet, so none has warned.
    return KubernetesVersion(release, structs.replace(facts, warns_of_empty=False))


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add `--kubeconfig`, `--context`, `--as`, `--as-uid`, `--as-group`: which cluster, and as which user."""
    text = "kubeconfig of the cluster; default: $KUBECONFIG, else ~/.kube/config, else a pod's service account"
    parser.add_argument("--kubeconfig", metavar="F", help=text)
    parser.add_argument("--context", metavar="C", help="context of the kubeconfig; default: its current context")
    parser.add_argument(
        "--as", dest="as_user", metavar="USER", help="user to act as (impersonate); default: as in the kubeconfig"
    )
    parser.add_argument("--as-uid", metavar="UID", help="UID to act with; comes with --as")
    parser.add_argument(
        "--as-group", action="append", metavar="G", help="group to act with; comes with --as, and may be repeated"
    )


def given_cluster_flags(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the flags of `add_cluster` that were given, each with its value."""
    for name, flag in CLUSTER_FLAGS.items():
        value = getattr(options, name)
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                yield flag, each


def refuse_cluster_beside_dump(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse flags that choose a cluster together with `--dump`, which replaces it. Exits as argparse does."""
    for flag, _ in given_cluster_flags(options) if options.dump else ():
        parser.error(f"--dump and {flag} may not be given together")


def credentials_of(options: argparse.Namespace) -> Credentials:
    """Return how to get to the cluster of the flags, or else kubectl's. Mistakes show at the first request."""
    from webhook.cluster.client.credentials import Impersonation, find_credentials  # noqa: PLC0415

    groups = tuple(filter(None, options.as_group or ()))
    impersonation = Impersonation(options.as_user or "", options.as_uid or "", groups)
    return find_credentials(options.kubeconfig, options.context, environment=os.environ, impersonation=impersonation)


def ask_cluster(options: argparse.Namespace, question: Callable[[Cluster], Coroutine[Any, Any, _Answer]]) -> _Answer:
    """Return the answer of the cluster that the flags name. Raises what the question does."""
    import asyncio  # noqa: PLC0415

    from webhook.cluster.client.rest import Cluster  # noqa: PLC0415

    async def ask() -> _Answer:
        async with Cluster(credentials_of(options)) as cluster:
            return await question(cluster)

    return asyncio.run(ask())


def add_color(parser: argparse.ArgumentParser) -> None:
    """Add `--color`, for commands that print text."""
    text = "color in text output; auto: on a terminal unless NO_COLOR is set, and wherever FORCE_COLOR is set"
    parser.add_argument("--color", choices=("always", "auto", "never"), default="auto", help=text)


def add_policy_config_map(parser: argparse.ArgumentParser) -> None:
    """Add `--policy-configmap`: where a cluster has the policy."""
    usual = texts.policy_config_map(texts.own_namespace())
    text = f"the ConfigMap with the policy; default {usual}"
    parser.add_argument("--policy-configmap", type=texts.as_namespaced, default=usual, metavar="NS/NAME", help=text)


def add_namespace_of_installation(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--namespace`, for verbs that look for the webhook itself; `what` says so in the help."""
    usual = texts.own_namespace()
    parser.add_argument(
        "-n", "--namespace", type=texts.as_namespace, default=usual, metavar="NS", help=f"{what}; default {usual}"
    )


def add_exempt_namespaces(parser: argparse.ArgumentParser) -> None:
    """Add `--exempt-namespaces`, for verbs that judge claims as the registered webhook does."""
    names = ",".join(EXEMPT_NAMESPACES)
    text = f"namespaces whose claims and templates the webhook is not asked about; default {names}"
    parser.add_argument(
        "--exempt-namespaces", type=texts.as_namespaces, default=EXEMPT_NAMESPACES, metavar="NS,...", help=text
    )


def add_output(parser: argparse.ArgumentParser, formats: Iterable[str], default: str = "text") -> None:
    """Add `--output`."""
    parser.add_argument("-o", "--output", choices=sorted(formats), default=default, help=f"default {default}")


def add_interval(parser: argparse.ArgumentParser, of_what: str = "") -> None:
    """Add `--interval`, None unless it is given."""
    text = f"seconds between two looks{of_what}; default {INTERVAL_SECONDS}"
    parser.add_argument("--interval", type=texts.as_count, metavar="S", help=text)


def refuse_stdin_twice(names: Iterable[str | None], parser: argparse.ArgumentParser) -> None:
    """Exit as argparse does if more than one input is standard input."""
    if list(names).count(STDIN) > 1:
        parser.error(f"only one input can be standard input ({STDIN})")


def add_allow_empty(parser: argparse.ArgumentParser) -> None:
    """Add `--allow-empty`: whether empty input is no error."""
    parser.add_argument("--allow-empty", action="store_true", help="exit with 0 even if there was nothing to check")


def add_warnings_as_errors(parser: argparse.ArgumentParser) -> None:
    """Add `--warnings-as-errors`, as in kubectl."""
    parser.add_argument("--warnings-as-errors", action="store_true", help="exit with 1 on warnings, too")


def add_skip_others(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--skip-others`, for hooks that name every file of a commit; `what` says which are others."""
    text = f"skip {what} although they are named, and exit with 0 if there are no others"
    parser.add_argument("--skip-others", action="store_true", help=text)


def refuse_empty(report: Report, verb: str, *, allow_empty: bool, skips_others: bool = False) -> None:
    """Make empty input an error of the report unless that is allowed; say so on standard error.

    `skips_others`: the verb has the flag --skip-others.
    """
    if report.exit_code or report.judged or allow_empty:
        return
    from webhook.api.messages import counted  # noqa: PLC0415

    left_out = report.skipped.total()
    skipped = f", and {counted(left_out, 'object')} {'was' if left_out == 1 else 'were'} skipped" if left_out else ""
    flag = "--skip-others" if skipped and skips_others else "--allow-empty"
    report.nothing_checked = f"nothing was checked{skipped}; pass {flag} if that is expected"
    sys.stderr.write(f"{program(verb)}: {report.nothing_checked}\n")


def add_terms(parser: argparse.ArgumentParser) -> None:
    """Add flags on the request (who, when, where) and on what the cluster contains."""
    add = parser.add_argument
    text = "objects as stored in the cluster (kubectl get -o yaml): the same object in FILE is checked as an update"
    add("--old", action="append", default=[], metavar="FILE", help=text)
    add("--user", default="", metavar="U", help="who sends the request")
    add(
        "--group", type=texts.as_group, action="append", default=[], metavar="G", help="a group of the user; repeatable"
    )
    text = "namespace of claims and templates that do not set one; those of another are refused; default default"
    add("-n", "--namespace", type=texts.as_namespace, metavar="NS", help=text)
    text = "labels of all namespaces for which FILE has no Namespace; without it their labels are unknown"
    add("--namespace-labels", type=texts.as_labels, metavar="K=V,...", help=text)
    text = "drivers of a class for which FILE has no DeviceClass; repeatable; without it they are unknown"
    add(
        "--device-class", type=texts.as_class_drivers, action="append", default=[], metavar="NAME=DRIVER,...", help=text
    )
    text = "when the request is sent (RFC 3339), for exceptions; default now"
    add("--time", type=texts.as_time, metavar="T", help=text)
    add_kubernetes_version(parser, f"the release whose versions and rules apply; default 1.{NEWEST.minor}")


def add_policy(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add the flags of the policy: a file, or what a cluster has. `more` ends the help of the first."""
    add = parser.add_argument
    add("--policy", metavar="F", help=f"a DeviceTaintPolicy, or the ConfigMap that holds it{more}")
    usual = texts.policy_config_map(texts.own_namespace())
    text = f"the ConfigMap with a cluster's policy, instead of a file; usually {usual}"
    add("--policy-configmap", type=texts.as_namespaced, metavar="NS/NAME", help=text)
    add_cluster(parser)


def use_color(choice: str = "auto") -> bool:
    """Tell whether to use colors: as `--color` says, else by NO_COLOR, then FORCE_COLOR, else if this is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()
