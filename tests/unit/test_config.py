"""Flags and environment to settings: what they come to, and what is said when they make no sense."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from webhook.api.meta import NamespacedName
from webhook.certificates.settings import FileSettings, SelfManagedSettings, TLSVersion
from webhook.cluster.settings import ClusterSettings
from webhook.config.serve import ServeSettings, parse_serve
from webhook.config.settings import ConfigError
from webhook.server.settings import Address
from webhook.telemetry.logs import LogFormat

ADDRESSES = 'must be "host:port", ":port", "[address]:port", or "0" for none'
DELAY = "must be a number of seconds between 0 and 3600"
TOGETHER = "may not be given together with"
NEEDED = ("--standalone", "--cert-dir=/certs")
DEFAULTS = ServeSettings(
    address=Address(host="127.0.0.1", port=9443),
    certificates=FileSettings(certificate_file=Path("/certs/tls.crt"), key_file=Path("/certs/tls.key")),
    health_address=Address(host="127.0.0.1", port=8081),
    metrics_address=Address(host="127.0.0.1", port=8080),
    shutdown_delay_seconds=0.0,
    cluster=None,
    policy_file=None,
    policy_config_map=None,
    eviction_lease=None,
    log_format=LogFormat.JSON,
    verbose=False,
)


def parse(*arguments: str, environment: Mapping[str, str] | None = None) -> ServeSettings:
    return parse_serve("device-taint-webhook", arguments, environment or {})


def faults(*arguments: str, environment: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse(*arguments, environment=environment)
    return str(raised.value).splitlines()


def test_defaults() -> None:
    assert parse(*NEEDED) == DEFAULTS


def test_every_flag_is_heard() -> None:
    settings = parse(
        "--standalone",
        "--bind-address=192.0.2.1",
        "--port=443",
        "--tls-cert-file=a.crt",
        "--tls-private-key-file=b.key",
        "--client-ca-file=ca.crt",
        "--client-names=kube-apiserver, api.example.com",
        "--tls-min-version=VersionTLS13",
        "--tls-cipher-suites=TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "--health-probe-bind-address=[::1]:1",
        "--metrics-bind-address=0",
        "--shutdown-delay=2.5",
        "--policy-file=policy.yaml",
        "--log-format=text",
        "-v",
    )
    assert settings == ServeSettings(
        address=Address(host="192.0.2.1", port=443),
        certificates=FileSettings(
            certificate_file=Path("a.crt"),
            key_file=Path("b.key"),
            client_ca_file=Path("ca.crt"),
            cipher_suites=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",),
        ),
        health_address=Address(host="::1", port=1),
        metrics_address=None,
        shutdown_delay_seconds=2.5,
        cluster=None,
        policy_file=Path("policy.yaml"),
        policy_config_map=None,
        eviction_lease=None,
        log_format=LogFormat.TEXT,
        verbose=True,
        client_names=("kube-apiserver", "api.example.com"),
        tls_min_version=TLSVersion.TLS13,
    )


def test_client_certificates_are_those_of_api_servers_unless_other_names_are_given() -> None:
    """R2."""
    assert parse(*NEEDED, "--client-ca-file=ca.crt").client_names == ("kube-apiserver",)
    assert parse("--self-managed-certificates", "--client-ca-file=ca.crt").client_names == ("kube-apiserver",)
    assert parse(*NEEDED).client_names == ()


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--client-names=a",), "--client-ca-file: Required value: must come with --client-names"),
        (
            ("--client-ca-file=ca.crt", "--client-names=a,"),
            '--client-names: Invalid value: "a,": must be names, separated by commas',
        ),
        (
            ("--tls-min-version=TLS1.3",),
            '--tls-min-version: Unsupported value: "TLS1.3": supported values: "VersionTLS12", "VersionTLS13"',
        ),
    ],
)
def test_flags_about_callers_that_make_no_sense_are_refused(arguments: tuple[str, ...], fault: str) -> None:
    assert faults(*NEEDED, *arguments) == [fault]


def test_process_without_a_cluster_is_reached_from_this_machine_alone_unless_an_address_is_given() -> None:
    def hosts(*arguments: str, **environment: str) -> list[str]:
        found = parse("--cert-dir=/certs", *arguments, environment=environment)
        return [each.host for each in (found.address, found.health_address, found.metrics_address) if each is not None]

    assert hosts() == ["", "", ""]
    assert hosts("--standalone", "--port=1") == hosts(DEVICE_TAINT_WEBHOOK_STANDALONE="yes") == ["127.0.0.1"] * 3
    assert hosts("--standalone", "--metrics-bind-address=:8080") == ["127.0.0.1", "127.0.0.1", ""]
    assert hosts("--standalone", "--bind-address=::", DEVICE_TAINT_WEBHOOK_HEALTH_PROBE_BIND_ADDRESS="a:1") == [
        "::",
        "a",
        "127.0.0.1",
    ]
    assert hosts("--standalone", DEVICE_TAINT_WEBHOOK_BIND_ADDRESS="") == ["", "127.0.0.1", "127.0.0.1"]


def test_environment_stands_in_for_flags_and_flags_win() -> None:
    environment = {
        "DEVICE_TAINT_WEBHOOK_STANDALONE": "true",
        "DEVICE_TAINT_WEBHOOK_CERT_DIR": "/certs",
        "DEVICE_TAINT_WEBHOOK_PORT": "1",
        "DEVICE_TAINT_WEBHOOK_HEALTH_PROBE_BIND_ADDRESS": "localhost:2",
        "DEVICE_TAINT_WEBHOOK_VERBOSE": "1",
        "PORT": "3",
    }
    settings = parse("--port=4", environment=environment)
    assert (settings.address.port, settings.health_address) == (4, Address(host="localhost", port=2))
    assert settings.verbose
    assert parse(environment=environment).address.port == 1


@pytest.mark.parametrize("text", ["false", "0", "no", "OFF", ""])
def test_switches_can_be_off_in_the_environment(text: str) -> None:
    assert not parse(*NEEDED, environment={"DEVICE_TAINT_WEBHOOK_VERBOSE": text}).verbose


@pytest.mark.parametrize(
    ("argument", "fault"),
    [
        ("--port=-1", "--port: Invalid value: -1: must be between 0 and 65535"),
        ("--port=65536", "--port: Invalid value: 65536: must be between 0 and 65535"),
        ("--port=https", '--port: Invalid value: "https": must be between 0 and 65535'),
        ("--port=٤٤٣", '--port: Invalid value: "٤٤٣": must be between 0 and 65535'),
        ("--port=--5", '--port: Invalid value: "--5": must be between 0 and 65535'),
        ("--log-format=xml", '--log-format: Unsupported value: "xml": supported values: "json", "text"'),
        ("--shutdown-delay=-1", f"--shutdown-delay: Invalid value: -1: {DELAY}"),
        ("--shutdown-delay=nan", f'--shutdown-delay: Invalid value: "nan": {DELAY}'),
        ("--shutdown-delay=soon", f'--shutdown-delay: Invalid value: "soon": {DELAY}'),
        ("--client-ca-file=", '--client-ca-file: Invalid value: "": must be a path'),
        ("--metrics-bind-address=8080", f"--metrics-bind-address: Invalid value: 8080: {ADDRESSES}"),
        ("--metrics-bind-address=::1:80", f'--metrics-bind-address: Invalid value: "::1:80": {ADDRESSES}'),
        ("--metrics-bind-address=host:", f'--metrics-bind-address: Invalid value: "host:": {ADDRESSES}'),
        ("--metrics-bind-address=:x", '--metrics-bind-address: Invalid value: ":x": must be between 0 and 65535'),
        ("--polcy-file=x", "unknown flag --polcy-file; did you mean --policy-file?"),
        ("--por=1", "unknown flag --por; did you mean --port?"),
        ("file", "unrecognized arguments: file"),
    ],
)
def test_flag_that_makes_no_sense_is_named_with_what_would_be_right(argument: str, fault: str) -> None:
    assert faults(*NEEDED, argument) == [fault]


def test_suites_that_are_not_supported_are_named_with_those_that_are() -> None:
    """M16."""
    [fault] = faults(*NEEDED, "--tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_RSA_WITH_RC4_128_SHA")
    said = "TLS_RSA_WITH_RC4_128_SHA is not among the supported suites: TLS_AES_128_GCM_SHA256, "
    assert fault.startswith("--tls-cipher-suites: Invalid value: ")
    assert said in fault


def test_suites_without_one_of_tls_1_2_are_for_tls_1_3_only() -> None:
    """M16: else no client of TLS 1.2 could connect, where the flags say that it may."""
    suites = "--tls-cipher-suites=TLS_AES_256_GCM_SHA384"
    [fault] = faults(*NEEDED, suites)
    assert fault.endswith(
        '"TLS_AES_256_GCM_SHA384": must have a suite of TLS 1.2, unless --tls-min-version=VersionTLS13'
    )
    settings = parse(*NEEDED, suites, "--tls-min-version=VersionTLS13")
    assert settings.certificates == DEFAULTS.certificates


SERVICE_LINKS = {
    "DEVICE_TAINT_WEBHOOK_SERVICE_HOST": "10.96.7.7",
    "DEVICE_TAINT_WEBHOOK_SERVICE_PORT": "443",
    "DEVICE_TAINT_WEBHOOK_SERVICE_PORT_HTTPS": "443",
    "DEVICE_TAINT_WEBHOOK_PORT": "tcp://10.96.7.7:443",
    "DEVICE_TAINT_WEBHOOK_PORT_443_TCP": "tcp://10.96.7.7:443",
    "DEVICE_TAINT_WEBHOOK_PORT_443_TCP_PROTO": "tcp",
    "DEVICE_TAINT_WEBHOOK_PORT_443_TCP_PORT": "443",
    "DEVICE_TAINT_WEBHOOK_PORT_443_TCP_ADDR": "10.96.7.7",
    "DEVICE_TAINT_WEBHOOK_METRICS_SERVICE_HOST": "10.96.7.8",
    "DEVICE_TAINT_WEBHOOK_METRICS_PORT": "tcp://10.96.7.8:8080",
}


def test_what_a_kubelet_tells_of_the_service_is_no_flag() -> None:
    """L18: in the namespace of the Service each container gets these, unless enableServiceLinks is false."""
    assert parse(*NEEDED, environment=SERVICE_LINKS) == DEFAULTS


def test_variables_that_nothing_reads_are_found_with_what_was_meant() -> None:
    """L18."""
    environment = {
        **SERVICE_LINKS,
        "DEVICE_TAINT_WEBHOOK_NAMESPACE": "x",
        "DEVICE_TAINT_WEBHOOK_LOG_FORMAT": "text",
        "DEVICE_TAINT_WEBHOOK_LOGFORMAT": "text",
        "DEVICE_TAINT_WEBHOOK_COLOUR": "blue",
        "OTHER_LOGFORMAT": "text",
    }
    assert parse(*NEEDED, environment=environment).unknown_variables == {
        "DEVICE_TAINT_WEBHOOK_COLOUR": "",
        "DEVICE_TAINT_WEBHOOK_LOGFORMAT": "DEVICE_TAINT_WEBHOOK_LOG_FORMAT",
    }


def test_variable_that_makes_no_sense_is_named_as_such() -> None:
    environment = {"DEVICE_TAINT_WEBHOOK_PORT": "x", "DEVICE_TAINT_WEBHOOK_STANDALONE": "perhaps"}
    assert faults("--cert-dir=/certs", environment=environment) == [
        'DEVICE_TAINT_WEBHOOK_STANDALONE: Invalid value: "perhaps": must be true or false',
        'DEVICE_TAINT_WEBHOOK_PORT: Invalid value: "x": must be between 0 and 65535',
    ]


def test_number_of_more_digits_than_are_read_makes_no_sense() -> None:
    (fault,) = faults("--cert-dir=/certs", environment={"DEVICE_TAINT_WEBHOOK_PORT": "1" * 5000})
    assert fault.startswith('DEVICE_TAINT_WEBHOOK_PORT: Invalid value: "111')
    assert fault.endswith('11": must be between 0 and 65535')


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (
            (),
            "--cert-dir: Required value: or --tls-cert-file and --tls-private-key-file,"  # noqa: ISC004 -- one line
            " or --self-managed-certificates; see certs/README.md",
        ),
        (("--tls-cert-file=a",), "--tls-private-key-file: Required value: must come with --tls-cert-file"),
        (("--tls-private-key-file=a",), "--tls-cert-file: Required value: must come with --tls-private-key-file"),
        (
            ("--cert-dir=a", "--tls-cert-file=b"),
            f'--cert-dir: Invalid value: "a": {TOGETHER} --tls-cert-file and its key',
        ),
    ],
)
def test_certificate_is_given_in_one_of_two_ways(arguments: tuple[str, ...], fault: str) -> None:
    assert faults("--standalone", *arguments) == [fault]


SELF_MANAGED = SelfManagedSettings(
    secret=("device-taint-webhook", "device-taint-webhook-ca"),
    validating_configuration="device-taint-webhook",
    mutating_configuration="device-taint-webhook",
    names=(
        "device-taint-webhook.device-taint-webhook.svc",
        "device-taint-webhook.device-taint-webhook.svc.cluster.local",
        "device-taint-webhook.device-taint-webhook",
        "device-taint-webhook",
    ),
)


def test_self_managed_certificates_need_no_further_flag() -> None:
    settings = parse("--self-managed-certificates")
    assert (settings.certificates, settings.cluster) == (SELF_MANAGED, ClusterSettings())
    assert (SELF_MANAGED.poll_seconds, SELF_MANAGED.settle) == (10, timedelta(minutes=10))


def test_every_flag_of_self_managed_certificates_is_heard() -> None:
    settings = parse(
        "--self-managed-certificates",
        "--ca-secret=a/b",
        "--validating-webhook-configuration=v",
        "--mutating-webhook-configuration=m",
        "--service=ns/svc",
        "--certificate-names=webhook.example.com, 192.0.2.7,::1",
        "--ca-lifetime=2h",
        "--certificate-lifetime=15m",
        "--client-ca-file=ca.crt",
    )
    assert settings.certificates == SelfManagedSettings(
        secret=("a", "b"),
        validating_configuration="v",
        mutating_configuration="m",
        names=(
            *("svc.ns.svc", "svc.ns.svc.cluster.local", "svc.ns", "svc"),
            *("webhook.example.com", "192.0.2.7", "::1"),
        ),
        client_ca_file=Path("ca.crt"),
        ca_lifetime=timedelta(hours=2),
        leaf_lifetime=timedelta(minutes=15),
    )
    assert isinstance(settings.certificates, SelfManagedSettings)
    assert (settings.certificates.poll_seconds, settings.certificates.settle) == (10, timedelta(minutes=6))


def test_short_lived_ca_has_certificates_of_a_quarter_of_its_life() -> None:
    certificates = parse("--self-managed-certificates", "--ca-lifetime=2m").certificates
    assert isinstance(certificates, SelfManagedSettings)
    assert certificates.leaf_lifetime == timedelta(seconds=30)
    assert (certificates.poll_seconds, certificates.settle) == (1, timedelta(seconds=6))


LIFETIME = 'must be a whole number with a unit, such as "90m", "24h" or "365d", from 10s to ten years'


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--ca-lifetime=year",), f'--ca-lifetime: Invalid value: "year": {LIFETIME}'),
        (("--ca-lifetime=9s",), f'--ca-lifetime: Invalid value: "9s": {LIFETIME}'),
        (("--ca-lifetime=999999999d",), f'--ca-lifetime: Invalid value: "999999999d": {LIFETIME}'),
        (("--ca-lifetime=3654d",), f'--ca-lifetime: Invalid value: "3654d": {LIFETIME}'),
        (
            ("--ca-lifetime=1h", "--certificate-lifetime=16m"),
            '--certificate-lifetime: Invalid value: "960s": must be at most a quarter of --ca-lifetime',
        ),
        (("--service=svc",), '--service: Invalid value: "svc": must be "namespace/name"'),
        (("--service=a/b.c",), '--service: Invalid value: "a/b.c": must be "namespace/name" of a Service'),
        (
            ("--certificate-names=a,,b",),
            '--certificate-names: Invalid value: "a,,b": must be DNS names and IP addresses, separated by commas',
        ),
        (
            ("--mutating-webhook-configuration=",),
            '--mutating-webhook-configuration: Invalid value: "": must be the name of an object',
        ),
        (("--cert-dir=a",), f'--cert-dir: Invalid value: "a": {TOGETHER} --self-managed-certificates'),
        (("--tls-cert-file=a",), f'--tls-cert-file: Invalid value: "a": {TOGETHER} --self-managed-certificates'),
        (("--standalone",), f"--self-managed-certificates: Invalid value: true: {TOGETHER} --standalone"),
    ],
)
def test_self_managed_certificates_that_make_no_sense_are_refused(arguments: tuple[str, ...], fault: str) -> None:
    assert faults("--self-managed-certificates", *arguments) == [fault]


def test_flags_of_self_managed_certificates_are_refused_beside_files() -> None:
    assert faults("--cert-dir=/certs", "--ca-secret=a/b", "--ca-lifetime=1h") == [
        "--self-managed-certificates: Required value: must come with --ca-secret",
        "--self-managed-certificates: Required value: must come with --ca-lifetime",
    ]


def test_all_faults_are_told_at_once() -> None:
    assert [fault.partition(":")[0] for fault in faults("--standalone", "--port=x", "--log-format=x")] == [
        "--port",
        "--log-format",
        "--cert-dir",
    ]


def test_without_standalone_the_policy_is_an_object_of_the_cluster() -> None:
    settings = parse("--cert-dir=/certs", "--kubeconfig=kube")
    assert settings.cluster == ClusterSettings(kubeconfig=Path("kube"))
    assert str(settings.policy_config_map) == "device-taint-webhook/device-taint-webhook-policy"
    assert settings.policy_file is None


def test_policy_of_the_cluster_can_have_another_name() -> None:
    assert parse("--cert-dir=/certs", "--policy-configmap=a/b").policy_config_map == NamespacedName("a", "b")


def test_file_stands_in_for_the_policy_of_the_cluster() -> None:
    assert parse("--cert-dir=/certs", "--policy-file=p").policy_config_map is None


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (
            ("--policy-file=p", "--policy-configmap=a/b"),
            f'--policy-file: Invalid value: "p": {TOGETHER} --policy-configmap',
        ),
        (("--standalone", "--kubeconfig=k"), f'--kubeconfig: Invalid value: "k": {TOGETHER} --standalone'),
        *(
            (
                ("--standalone", f"--{flag}"),
                f"--{flag}: Invalid value: true: may not be given together with --standalone",
            )
            for flag in ("watch-pods", "watch-patches", "slice-attributes")
        ),
        (("--standalone", "--patch-account=ops"), f'--patch-account: Invalid value: "ops": {TOGETHER} --standalone'),
        (("--policy-configmap=b",), '--policy-configmap: Invalid value: "b": must be "namespace/name"'),
    ],
)
def test_sources_that_exclude_each_other_are_refused(arguments: tuple[str, ...], fault: str) -> None:
    assert faults("--cert-dir=/certs", *arguments) == [fault]


def test_pods_are_followed_only_if_asked_for() -> None:
    assert not parse("--cert-dir=/certs").watch_pods
    assert parse("--cert-dir=/certs", "--watch-pods").watch_pods


@pytest.mark.parametrize(
    ("arguments", "watched", "account", "changed"),
    [
        ((), False, "", False),
        (("--watch-patches",), True, "", False),
        (("--patch-account=ops:bot",), True, "ops:bot", False),
        (("--patch-account=bot", "--namespace=here"), True, "system:serviceaccount:here:bot", False),
        (("--slice-attributes",), True, "", True),
    ],
)
def test_patches_are_followed_if_something_needs_them_and_slices_are_changed_only_if_asked_for(
    arguments: tuple[str, ...], *, watched: bool, account: str, changed: bool
) -> None:
    settings = parse("--cert-dir=/certs", *arguments)
    assert (settings.watch_patches, settings.patch_account, settings.slice_attributes) == (watched, account, changed)


def test_help_names_every_flag_and_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse("--help")
    told = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert ended.value.code == 0
    for flag in ("--standalone", "--port N", "--cert-dir D", "--shutdown-delay S", "-v, --verbose"):
        assert flag in told
    assert "(default 9443)" in told
    assert "DEVICE_TAINT_WEBHOOK_PORT" in told


@pytest.mark.parametrize(
    ("address", "text"),
    [(Address(host="a", port=1), "a:1"), (Address(port=1), ":1"), (Address(host="::1", port=1), "[::1]:1")],
)
def test_address_reads_as_it_is_written(address: Address, text: str) -> None:
    assert str(address) == text
