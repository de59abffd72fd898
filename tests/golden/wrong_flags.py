"""Writes wrong_flags.txt, what daemons say about flags and variables: `python -m tests.golden.wrong_flags`.

Each command line is written as for a shell. Those without a fault end before anything is started.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest import mock

from webhook import cli
from webhook.api.names import PROGRAM
from webhook.telemetry import logs

if TYPE_CHECKING:
    from collections.abc import Iterator

WRONG_FLAGS: Final = Path(__file__).with_name("wrong_flags.txt")
COMMANDS: Final = r"""
serve
serve --cert-dir=.
serve --cert-dir=. --port=x --log-format=xml --shutdown-delay=soon --metrics-bind-address=8080
serve --cert-dir=. --port=65536 --port=1
serve --cert-dir= --tls-cert-file= --policy-file= --kubeconfig= --client-ca-file=
serve --cert-dir=missing
serve --tls-cert-file=a.crt
serve --tls-private-key-file=a.key
serve --tls-cert-file= --tls-private-key-file=a.key
serve --cert-dir=. --tls-cert-file=a.crt
serve --cert-dir=. --tls-private-key-file=a.key --tls-cipher-suites=TLS_AES_256_GCM_SHA384
serve --cert-dir=. --tls-cert-file=a.crt --tls-private-key-file=a.key --tls-cipher-suites=TLS_AES_256_GCM_SHA384
serve --tls-cipher-suites=TLS_AES_256_GCM_SHA384
serve --cert-dir=. --tls-cipher-suites=TLS_AES_256_GCM_SHA384,
serve --cert-dir=. --tls-cipher-suites=TLS_AES_256_GCM_SHA384,TLS_RSA_WITH_RC4_128_SHA
serve --cert-dir=. --tls-cipher-suites=TLS_AES_256_GCM_SHA384 --tls-min-version=TLS1.3
serve --cert-dir=. --tls-cipher-suites=TLS_AES_256_GCM_SHA384 --tls-min-version=VersionTLS13
serve --cert-dir=. --ca-secret=a/b --service=a/b --ca-lifetime=1h --certificate-lifetime=1h --certificate-names=a
serve --ca-secret=a/b --mutating-webhook-configuration=m --validating-webhook-configuration=v
serve --cert-dir=. --ca-secret=a --ca-lifetime=1h
serve --self-managed-certificates --cert-dir=. --tls-cert-file=a.crt --tls-private-key-file=a.key
serve --self-managed-certificates --standalone --cert-dir=. --context=c --client-names=n
serve --self-managed-certificates --ca-lifetime=1h --certificate-lifetime=16m
serve --self-managed-certificates --ca-lifetime=1y --certificate-lifetime=91d
serve --self-managed-certificates --certificate-lifetime=92d --tls-cipher-suites=TLS_AES_256_GCM_SHA384
serve --self-managed-certificates --service=a --ca-secret=/b --eviction-lease=a/b/c --policy-configmap=a/
serve --self-managed-certificates --service=a/b.c --certificate-names=a,,b --mutating-webhook-configuration=A
serve --self-managed-certificates --client-ca-file=ca.crt --client-names=a,
serve --cert-dir=. --client-names=a
serve --cert-dir=. --namespace=a/b --policy-file=missing.yaml --policy-configmap=a/b
serve --cert-dir=. --policy-file=missing.yaml
serve --standalone --cert-dir=. --policy-file=missing.yaml --policy-configmap=a/b --kubeconfig=k
serve --standalone --cert-dir=. --eviction-lease=a/b --policy-configmap=a/b --context=c --kubeconfig=k
serve --standalone --cert-dir=. --context=
serve --standalone --cert-dir=. --patch-account= --bind-address=
serve --standalone --cert-dir=. --slice-attributes --patch-account=p --watch-patches --watch-pods --kubeconfig=k
serve --standalone --port=x --log-format=x --client-names=n --ca-secret=a/b
serve --cert-dir=. --polcy-file=x --port=x
serve --cert-dir=. --wxyz
serve --cert-dir=. file other
serve --cert-dir=. --standalone=yes
serve --cert-dir=. --port
serve --cert-dir=. -x
DEVICE_TAINT_WEBHOOK_STANDALONE=perhaps DEVICE_TAINT_WEBHOOK_PORT=x serve --cert-dir=.
DEVICE_TAINT_WEBHOOK_STANDALONE=on DEVICE_TAINT_WEBHOOK_METRICS_BIND_ADDRESS=::1 serve --cert-dir=. --kubeconfig=k
DEVICE_TAINT_WEBHOOK_STANDALONE= DEVICE_TAINT_WEBHOOK_CERT_DIR= serve
DEVICE_TAINT_WEBHOOK_PORT=tcp://10.96.7.7:443 DEVICE_TAINT_WEBHOOK_SERVICE_HOST=10.96.7.7 serve --cert-dir=.
DEVICE_TAINT_WEBHOOK_COLOUR=blue DEVICE_TAINT_WEBHOOK_LOGFORMAT=text DEVICE_TAINT_WEBHOOK_MODE=x serve --cert-dir=.
DEVICE_TAINT_WEBHOOK_COLOUR=blue serve --cert-dir=. --standalone --verbose --log-format=text
DEVICE_TAINT_WEBHOOK_COLOUR=blue serve --port=x
DEVICE_TAINT_WEBHOOK_NAMESPACE=A serve --cert-dir=.
evict
evict --mode=evict --in-tree=maybe --delete-expired --audit-interval=1 --concurrent-evictions=0
evict --in-tree=unknown --mode=replacement --leader-elect-lease=a/b --policy-file=p --policy-configmap=a/b
evict --in-tree=active --mode=replacement --leader-elect-lease=a/b --policy-file=p --policy-configmap=a/b
evict --in-tree=active --mode=delegated --leader-elect --leader-elect-lease=a
evict --kube-api-qps=many --kube-api-burst=10001 --audit-interval=0 --health-probe-bind-address=0
evict --kube-api-qps=inf --kube-api-burst=1.5 --context= --namespace= --kubeconfig=
evict --policy-file=missing.yaml --leader-elect-lease=
evict --mode
evict -v --nonsense --mode=x
DEVICE_TAINT_WEBHOOK_LEADER_ELECT=2 DEVICE_TAINT_WEBHOOK_LEADER_ELECT_LEASE=a/b evict
DEVICE_TAINT_WEBHOOK_NAMESPACE=A DEVICE_TAINT_WEBHOOK_MODES=observe DEVICE_TAINT_WEBHOOK_MODE=x evict
DEVICE_TAINT_WEBHOOK_TLS_MIN_VERSION=x DEVICE_TAINT_WEBHOOK_MODES=observe POD_NAMESPACE=A evict -v
DEVICE_TAINT_WEBHOOK_IN_TREE=unknown DEVICE_TAINT_WEBHOOK_MODE=replacement evict --in-tree=active
patch
patch --rules-per-patch=0 --leader-elect-lease=a/b --policy-file=p --policy-configmap=a/b
patch --rules-per-patch=x --slice-attributes --kube-api-qps=nan --kube-api-burst=-1 --metrics-bind-address=a
patch --policy-file=missing.yaml --policy-file=
patch --policy-file=missing.yaml
patch --mode=observe
patch --leader-elect=true
patch --leader-elect --log-format=text --namespace=a.b
DEVICE_TAINT_WEBHOOK_RULES_PER_PATCHES=1 DEVICE_TAINT_WEBHOOK_SLICE_ATTRIBUTES=perhaps patch
DEVICE_TAINT_WEBHOOK_RULES_PER_PATCHES=1 DEVICE_TAINT_WEBHOOK_PATCH_ACCOUNT=p patch --verbose
DEVICE_TAINT_WEBHOOK_VERBOSE=no DEVICE_TAINT_WEBHOOK_LOG_FORMAT=xml DEVICE_TAINT_WEBHOOK_RULES_PER_PATCH=0 patch
"""
_ASSIGNED: Final = "="


class _Screen(io.StringIO):
    """Standard error, whose `write` can be replaced."""


def wrong_flags() -> str:
    """All of it: each command, the lines that it writes, and its exit code."""
    return "\n".join(_said(each) for each in COMMANDS.strip().splitlines())


def _said(command: str) -> str:
    words = shlex.split(command)
    environment: dict[str, str] = {}
    while _ASSIGNED in words[0]:
        name, _, value = words.pop(0).partition(_ASSIGNED)
        environment[name] = value
    with _screen(environment, words[0]) as screen:
        code = cli.main(words)
    return f"$ {command}\n{screen.getvalue()}exit {code}\n"


@contextlib.contextmanager
def _screen(environment: dict[str, str], verb: str) -> Iterator[io.StringIO]:
    """Catch what is written and logged; nothing is set up or started."""
    screen = _Screen()
    handler = logging.StreamHandler(screen)
    handler.setFormatter(_Untimed())
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(sys, "argv", [PROGRAM]),
        mock.patch.object(logs, "configure"),
        mock.patch.object(logs.log, "handlers", [handler]),
        mock.patch.object(logs.log, "propagate", new=False),
        mock.patch(f"webhook.daemons.{verb}.run_stages", return_value=0),
        contextlib.redirect_stderr(screen),
    ):
        yield screen


class _Untimed(logs.TextFormatter):
    """A line of the log without its time."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its first word."""
        return super().format(record).partition(" ")[2]


def main() -> None:
    """Write the file."""
    WRONG_FLAGS.write_text(wrong_flags())


if __name__ == "__main__":
    main()
