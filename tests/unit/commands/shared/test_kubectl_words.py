"""Devices, taints, confirmations and ages as they are written on a command line."""

from __future__ import annotations

import json
import shlex

import pytest

from webhook.api.rules import DeviceSelector
from webhook.commands.list import human_duration
from webhook.commands.shared.device_selection import split_nodes
from webhook.commands.shared.tainting import (
    DryRun,
    TaintOrder,
    TaintResult,
    as_confirmation,
    confirming_text,
    texts_by_rule,
)
from webhook.commands.shared.words import (
    NODES,
    RULES,
    DeviceAddress,
    TaintPattern,
    TaintSpec,
    WantedRule,
    as_device_address,
    as_taint_pattern,
    as_taint_spec,
    as_taint_specs,
    name_in,
    split_words,
)
from webhook.validation.formats import dns1123_subdomain

DRIVER = "gpu.example.com"
DEVICE = DeviceAddress(DRIVER, "node-7", "gpu-0")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (DRIVER, DeviceAddress(DRIVER)),
        (f"{DRIVER}/node-7", DeviceAddress(DRIVER, "node-7")),
        (f"{DRIVER}/node-7/gpu-0", DEVICE),
        (f"{DRIVER}/rack-1/node-7/gpu-0", DeviceAddress(DRIVER, "rack-1/node-7", "gpu-0")),
        (f"{DRIVER}/rack-1/node-7/", DeviceAddress(DRIVER, "rack-1/node-7")),
    ],
)
def test_address_is_read_and_written_alike(text: str, address: DeviceAddress) -> None:
    assert as_device_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "/", "gpu_x", "GPU", "NoSchedule", "Pod/x", f"{DRIVER}//gpu-0", f"{DRIVER}/node-7/gpu.0", f"{DRIVER}/a/b//"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be DRIVER, DRIVER/POOL or DRIVER/POOL/DEVICE"):
        as_device_address(text)


def test_address_covers_and_selects_what_it_names() -> None:
    assert DEVICE.selector == DeviceSelector(DRIVER, "node-7", "gpu-0")
    assert DeviceAddress(DRIVER).selector == DeviceSelector(DRIVER)
    assert DeviceAddress(DRIVER).covers(*DEVICE)
    assert not DeviceAddress(DRIVER, "node-6").covers(*DEVICE)
    assert not DEVICE.covers(DRIVER, "node-7", "gpu-1")
    assert not DEVICE.covers("nic.example.com", "node-7", "gpu-0")


# --- taints -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("example.com/ecc=double-bit:NoSchedule", TaintSpec("example.com/ecc", "double-bit", "NoSchedule")),
        ("ecc:NoExecute", TaintSpec("ecc", "", "NoExecute")),
        ("ecc:None", TaintSpec("ecc", "", "None")),
        ("Example.com_ecc=X.y-1:None", TaintSpec("Example.com_ecc", "X.y-1", "None")),
    ],
)
def test_taint_is_read_and_written_alike(text: str, taint: TaintSpec) -> None:
    assert as_taint_spec(text) == taint
    assert str(taint) == text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ecc:noschedule", "invalid taint effect: 'noschedule'; did you mean NoSchedule?"),
        ("ecc:PreferNoSchedule", "device taints have NoSchedule, NoExecute, None"),
        ("ecc:", "invalid taint effect: ''; device taints have"),
        ("ecc", "must be a taint such as"),
        ("ecc=x", "must be a taint such as"),
        ("=x:NoSchedule", "key: name part must be non-empty"),
        ("a/b/c:NoSchedule", "must be a taint such as"),
        ("ecc=-x:NoSchedule", "value: a valid label must "),
        (":NoSchedule", "must be a taint such as"),
        ("a=b=c:NoSchedule", "must be a taint such as"),
        ("a:b=c:NoSchedule", "invalid taint effect: 'b=c:NoSchedule'"),
    ],
)
def test_what_is_no_taint_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        as_taint_spec(text)
    assert complaint in str(caught.value)


def test_device_has_one_taint_with_a_key_and_an_effect() -> None:
    assert len(as_taint_specs(["ecc:NoSchedule", "ecc:NoExecute", "ecc=x:None"])) == 3
    for second in ("ecc:NoSchedule", "ecc=x:NoSchedule", "ecc=:NoSchedule"):
        with pytest.raises(ValueError, match="duplicated taints with the same key and effect"):
            as_taint_specs(["ecc:NoSchedule", second])


@pytest.mark.parametrize(
    "text", ["ecc=x-", "ecc=-", "ecc:-", "ecc:x-", "-", "ecc--", "a=b=c:NoSchedule-", ":NoSchedule-"]
)
def test_what_names_no_taint_to_remove_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a taint to remove|invalid taint effect"):
        as_taint_pattern(text)


@pytest.mark.parametrize("text", ["ecc-", "ecc"])
def test_pattern_without_an_effect_matches_each(text: str) -> None:
    pattern = as_taint_pattern(text)
    assert pattern == TaintPattern("ecc")
    assert pattern.matches("ecc", "None")
    assert not pattern.matches("other", "None")


@pytest.mark.parametrize("text", ["ecc:NoSchedule-", "ecc:NoSchedule", "ecc=:NoSchedule-", "ecc=x:NoSchedule-"])
def test_pattern_with_an_effect_matches_that_one(text: str) -> None:
    pattern = as_taint_pattern(text)
    assert (str(pattern), pattern.matches("ecc", "NoSchedule")) == ("ecc:NoSchedule", True)
    assert not pattern.matches("ecc", "NoExecute")


def test_words_are_devices_or_taints_by_their_marks() -> None:
    words = [f"{DRIVER}/node-7/gpu-0", "example.com/ecc=x:None", DRIVER, "example.com/a-", "b:NoExecute"]
    assert split_words(words) == ([DEVICE, DeviceAddress(DRIVER)], [words[1], words[3], words[4]])


# --- names of rules -----------------------------------------------------------------------------


def test_name_of_a_rule_can_be_read_and_stays_the_same() -> None:
    wanted = WantedRule(DEVICE, TaintSpec("example.com/ECC_errors", "x", "NoSchedule"))
    assert wanted.name == WantedRule(DEVICE, TaintSpec("example.com/ECC_errors", "y", "NoSchedule")).name
    assert wanted.name.startswith("node-7-gpu-0-ecc-errors-noschedule-")


@pytest.mark.parametrize(
    "address",
    [
        DeviceAddress(DRIVER),
        DeviceAddress(DRIVER, "a.-b", "x"),
        DeviceAddress(DRIVER, "rack-1/node-7"),
        DeviceAddress(DRIVER, ".".join(["p" * 60] * 4), "d" * 63),
    ],
)
@pytest.mark.parametrize("key", ["ecc", "example.com/-ecc.", "example.com/" + "k" * 63, "a_._b"])
def test_every_name_is_one_that_a_server_takes(address: DeviceAddress, key: str) -> None:
    name = WantedRule(address, TaintSpec(key, "", "NoExecute")).name
    assert list(dns1123_subdomain(name)) == []


def test_rules_for_different_taints_have_different_names() -> None:
    keys, effects = ("a.com/x", "b.com/x", "x"), ("None", "NoExecute")
    addresses = (DEVICE, DeviceAddress("nic.example.com", *DEVICE[1:]), DeviceAddress(DRIVER, "node-7-gpu-0"))
    names = {
        WantedRule(each, TaintSpec(key, "", effect)).name for each in addresses for key in keys for effect in effects
    }
    assert len(names) == 18


# --- confirmations ------------------------------------------------------------------------------

TEXT = "v1 devices=4 claims=4 pods=4 namespaces=1 of=abcdefgh234567yz"
OTHER = "v1 devices=9 claims=9 pods=9 namespaces=1 protected=kube-system done=7 of=abcdefgh234567yz"


SAID = 'narrow the selector, or {} set annotation devicetaint.io/confirm-impact to "{}" (rule impact)'


def confirming(program: str, words: list[str], texts: dict[str, str], *refusals: str) -> str:
    """The text for a command whose rules are refused with these messages, and those that have other texts."""
    wanted = [WantedRule(DEVICE, TaintSpec(f"k{number}", "", "None")) for number, _ in enumerate(refusals)]
    refused = [
        TaintResult(each, "tainted", each.name, {}, refusal="no", message=message)
        for each, message in zip(wanted, refusals, strict=True)
    ]
    rules = (*wanted, *[WantedRule(DEVICE, TaintSpec(name, "", "None")) for name in texts])
    return confirming_text(refused, TaintOrder(rules, {}, texts, DryRun.NONE, "refuse"), program, words)


def test_texts_go_to_their_rules() -> None:
    assert as_confirmation(TEXT) == ("", TEXT)
    assert as_confirmation(f"a-rule={TEXT}") == ("a-rule", TEXT)
    assert texts_by_rule([("", TEXT)], ["a"]) == {"a": TEXT}
    assert texts_by_rule([("b", OTHER), ("a", TEXT)], ["a", "b"]) == {"a": TEXT, "b": OTHER}
    with pytest.raises(ValueError, match=r"needs RULE=TEXT, since there are several rules: a, b"):
        texts_by_rule([("", TEXT)], ["a", "b"])
    with pytest.raises(ValueError, match="this command writes no such rule, but a"):
        texts_by_rule([("c", TEXT)], ["a"])


@pytest.mark.parametrize("text", ["yes", "", "a=", "a=yes", "v1", "v1.1.2", "=", "a=v1.1.2"])
def test_anything_else_is_no_confirmation(text: str) -> None:
    with pytest.raises(ValueError, match="must be the text that a refusal contains"):
        as_confirmation(text)


@pytest.mark.parametrize("text", [TEXT, OTHER])
def test_text_is_found_in_a_refusal(text: str) -> None:
    said = SAID.format("to go ahead,", text)
    for message in (said, json.dumps(said)):
        assert confirming("x", ["k"], {}, message) == (
            f"To confirm exactly this impact, run:\n\n  x k '--confirm={text}'\n"
        )
    another = SAID.format("to go ahead, one of the policy's confirmers must", text)
    assert "have one of the policy's confirmers run:" in confirming("x", ["k"], {}, another)
    assert confirming("x", ["k"], {}, "an empty selector is every device") == ""
    assert confirming("x", ["k"], {}, said, "an empty selector is every device") == ""


def test_command_that_confirms_is_the_same_without_dry_run_and_old_texts() -> None:
    words = shlex.split(f"a.b/c --all k=it\\'s:None --dry-run server '--confirm={OTHER}' -ojson -o yaml --for 2h")
    text = confirming("kubectl dtaint taint", words, {}, SAID.format("", TEXT))
    command = f"""kubectl dtaint taint a.b/c --all 'k=it'"'"'s:None' --for 2h '--confirm={TEXT}'"""
    assert text == f"To confirm exactly this impact, run:\n\n  {command}\n"


def test_command_that_confirms_several_rules_names_them_and_keeps_other_texts() -> None:
    text = confirming("x", ["k:None"], {"q": OTHER}, SAID.format("", TEXT))
    name = WantedRule(DEVICE, TaintSpec("k0", "", "None")).name
    assert text.endswith(f"run:\n\n  x k:None '--confirm=q={OTHER}' '--confirm={name}={TEXT}'\n")


# --- ages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        # k8s.io/apimachinery/pkg/util/duration, TestHumanDurationBoundaries
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (1, "1s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (599, "9m59s"),
        (600, "10m"),
        (601, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600 - 1, "7h59m"),
        (8 * 3600, "8h"),
        (8 * 3600 + 3599, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (8 * 86400 + 23 * 3600, "8d"),
        (2 * 365 * 86400 - 1, "729d"),
        (2 * 365 * 86400, "2y"),
        (2 * 365 * 86400 + 86400, "2y1d"),
        (8 * 365 * 86400, "8y"),
    ],
)
def test_ages_are_kubectls(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("word", "node", "rule"),
    [
        *[(f"{each}/x", "x", "") for each in ("node", "nodes", "no", "Node", "NODES", "nodes.v1", "nodes.v1.")],
        *[(f"devicetaintrule{each}/x", "", "x") for each in ("", "s", ".resource.k8s.io", "s.v1beta2.resource.k8s.io")],
        *[(each, "", "") for each in ("x", "node", "node/", "node/a/b", "gpu.example.com/x", "nodes.example.com/x")],
    ],
)
def test_names_are_read_as_kubectl_writes_them(word: str, node: str, rule: str) -> None:
    assert (name_in(word, NODES), name_in(word, RULES)) == (node, rule)


def test_nodes_are_taken_from_among_other_words() -> None:
    assert split_nodes(["nic.io", "node/a", "k:None"]) == (["nic.io", "k:None"], ["a"])
    assert split_nodes(["nodes", "a", "no/b", "k=v:None", "k-"]) == (["k=v:None", "k-"], ["a", "b"])
    assert split_nodes(["nodes"]) == (["nodes"], [])
