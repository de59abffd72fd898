"""Flags that `check` and `explain` share: the policy, the request and what the cluster contains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.commands.shared.flags import add_cluster, add_kubernetes_version
from webhook.config.namespace import own_namespace, policy_config_map
from webhook.config.texts import as_class_drivers, as_group, as_labels, as_namespace, as_namespaced, as_time
from webhook.validation.releases import NEWEST

if TYPE_CHECKING:
    import argparse


def add_terms(parser: argparse.ArgumentParser) -> None:
    """Adds flags on the request (who, when, where) and on what the cluster contains."""
    add = parser.add_argument
    add(
        "--old",
        action="append",
        default=[],
        metavar="FILE",
        help="objects as stored in the cluster (kubectl get -o yaml): the same object in FILE is checked as an update",
    )
    add("--user", default="", metavar="U", help="who sends the request")
    add("--group", type=as_group, action="append", default=[], metavar="G", help="a group of the user; repeatable")
    add(
        "-n",
        "--namespace",
        type=as_namespace,
        default="default",
        metavar="NS",
        help="namespace of claims and templates that do not set one",
    )
    add(
        "--namespace-labels",
        type=as_labels,
        metavar="K=V,...",
        help="labels of all namespaces for which FILE has no Namespace; without it their labels are unknown",
    )
    add(
        "--device-class",
        type=as_class_drivers,
        action="append",
        default=[],
        metavar="NAME=DRIVER,...",
        help="drivers of a class for which FILE has no DeviceClass; repeatable; without it they are unknown",
    )
    add(
        "--time",
        type=as_time,
        metavar="T",
        help="when the request is sent (RFC 3339), for exceptions; default now",
    )
    add_kubernetes_version(parser, f"the release whose versions and rules apply; default 1.{NEWEST.minor}")


def add_policy(parser: argparse.ArgumentParser, more: str = "") -> None:
    """The policy: a file, or what a cluster has. `more` ends the help of the first."""
    add = parser.add_argument
    add("--policy", metavar="F", help=f"a DeviceTaintPolicy, or the ConfigMap that holds it{more}")
    add(
        "--policy-configmap",
        type=as_namespaced,
        metavar="NS/NAME",
        help=f"the ConfigMap with a cluster's policy, instead of a file; usually {policy_config_map(own_namespace())}",
    )
    add_cluster(parser)
