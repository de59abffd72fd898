"""Command lines that make no sense: exit code 2 and a sentence, before a file is read or a cluster is asked."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import pytest

from webhook import cli

GPU: Final = "gpu.example.com/node-0/gpu-0"
TOGETHER: Final = "may not be given together"
FOR_A_POLICY: Final = "has no effect without --policy"
FOR_A_CLUSTER: Final = "must come with --policy-configmap"
A_TIME: Final = "must be a time like"
ONE_INPUT: Final = "only one input can be standard input (-)"
A_NAMESPACE: Final = "must be the name of a namespace"
NAMESPACED: Final = 'must be "namespace/name"'
A_CLASS: Final = "must be a class and its drivers"
A_TAINT: Final = "a taint such as key=value:NoSchedule is required"
DOCTOR: Final = "usage: device-taint-webhook doctor"
DRAIN: Final = "usage: device-taint-webhook drain"
WRONG: Final = {
    "audit --dump a --kubeconfig b": f"--dump and --kubeconfig {TOGETHER}",
    "audit --dump a --context b": f"--dump and --context {TOGETHER}",
    "audit --dump a --time x": f"'x' {A_TIME}",
    "audit --dump a --time 0001-01-01T00:00:00Z": "must be a time between 1970 and 9000",
    "audit --dump a --policy-configmap x": f"'x' {NAMESPACED}",
    "audit --dump - --policy -": ONE_INPUT,
    "audit --dump - --candidate -": ONE_INPUT,
    "check": "required: FILE|DIR|-",
    "check -o xml x": "'xml' must be one of github, gitlab, json, junit, sarif, text, yaml, or FORMAT=FILE",
    "check -o json -o yaml x": "more than one format for standard output; -o FORMAT=FILE writes one to a file",
    "check -o json=x -o sarif=x x": "two reports in x",
    "check -o json= x": "names no file after the equals sign",
    "check -o sariff=x x": "must be one of github,",
    "check --kubernetes-version 1.32 x": "'1.32' must be 1.33 or later, such as 1.37",
    "check --kubernetes-version latest x": "'latest' must be 1.33 or later",
    "check --unknown x": "unknown flag --unknown\nusage: device-taint-webhook check [FLAGS] FILE|DIR|- (--help",
    "check --time tomorrow x": f"'tomorrow' {A_TIME}",
    "check --namespace-labels tier x": "'tier' must be labels such as",
    "check --device-class gpu x": f"'gpu' {A_CLASS}",
    "check --device-class gpu= x": f"'gpu=' {A_CLASS}",
    "check --policy a --policy-configmap a/b": f"--policy and --policy-configmap {TOGETHER}",
    "check --context a x": f"--context {FOR_A_CLUSTER}",
    "check --kubeconfig a --policy x": f"--kubeconfig {FOR_A_CLUSTER}",
    "check --policy-configmap a x": f"'a' {NAMESPACED}",
    "check --policy a --policy b x": "argument --policy: given more than once",
    "check -n a --namespace b x": "argument -n/--namespace: given more than once",
    "check --user mila x": f"--user {FOR_A_POLICY}",
    "check --group ml x": f"--group {FOR_A_POLICY}",
    "check --namespace-labels a=b x": f"--namespace-labels {FOR_A_POLICY}",
    "check --device-class a=b x": f"--device-class {FOR_A_POLICY}",
    "check --policy a --group ml x": "--group needs --user",
    "check --policy a --user mila --group '' x": "argument --group: '' must be the name of a group",
    "check -n UPPER_x x": f"'UPPER_x' {A_NAMESPACE}",
    "check -n '' x": f"'' {A_NAMESPACE}",
    f"check -n {'a' * 64} x": A_NAMESPACE,
    "check -n web- x": A_NAMESPACE,
    "check --select=DT9 x": 'no code begins with "DT9"\n',
    "check --select=DT0O1 x": 'no code begins with "DT0O1"\n',
    "check --ignore=XDT021 x": 'no code begins with "XDT021"\n',
    "check --ignore=DT001,E501 x": 'no code begins with "E501"',
    "check --ignore= x": 'no code begins with ""',
    "check - --policy -": ONE_INPUT,
    "check - --old -": ONE_INPUT,
    "doctor --wait=-1": DOCTOR,
    "doctor --wait soon": DOCTOR,
    "doctor --wait nan": DOCTOR,
    "doctor -o yaml": DOCTOR,
    "doctor x": DOCTOR,
    "drain": DRAIN,
    "drain node-0 gpu.example.com/node-0": DRAIN,
    "drain node-0 -l a=b": DRAIN,
    "drain gpu.example.com/node-0/GPU": DRAIN,
    "drain node-0 --key a:b=c": DRAIN,
    "drain node-0 --key a=b": DRAIN,
    "explain c.yaml": "--policy or --policy-configmap is required",
    "explain c.yaml --policy p --policy-configmap a/b": TOGETHER,
    "explain c.yaml --policy p --context a": f"--context {FOR_A_CLUSTER}",
    "explain c.yaml --policy p --as-uid a": f"--as-uid {FOR_A_CLUSTER}",
    "explain c.yaml --policy p --group g": "--group needs --user",
    "explain - --policy -": ONE_INPUT,
    "explain DT001 c.yaml": "codes and files cannot be explained together",
    "explain DT999": "unknown code DT999",
    "export-vap": "one POLICY is required",
    "export-vap a.yaml --policy a.yaml": "POLICY and --policy are the same: give one",
    "list a=b:NoSchedule": "a=b:NoSchedule is no device such as",
    "list --interval 3": "--interval has no effect without --watch",
    "preview a --dump b --kubeconfig c": f"--dump and --kubeconfig {TOGETHER}",
    "preview a --dump b --context c": f"--dump and --context {TOGETHER}",
    "preview --dump b": "the following arguments are required: FILE|-",
    "preview - --dump -": ONE_INPUT,
    "preview a --dump b --limit -1": "'-1' must be a whole number; 0 for all",
    "preview a --dump b --time x": f"'x' {A_TIME}",
    "schema rule": "invalid choice: 'rule'",
    "status --watch --dump d": f"--watch and --dump {TOGETHER}",
    "status --interval 3": "--interval has no effect without --watch",
    "status --time 2026-06-01T12:00:00Z": "--time has no effect without --dump",
    "status --watch --interval 0": "argument --interval: '0' must be between 1 and",
    "status --dump d --context c": f"--dump and --context {TOGETHER}",
    "status --dump d --as jane": f"--dump and --as {TOGETHER}",
    "status --dump d --as-group ml": f"--dump and --as-group {TOGETHER}",
    "status --dump - --policy -": ONE_INPUT,
    "taint": A_TAINT,
    f"taint {GPU}": A_TAINT,
    "taint k:NoSchedule": "a device such as gpu.example.com/node-7/gpu-0 is required, or --node",
    f"taint {GPU} k:NoShedule": "invalid taint effect: 'NoShedule'; device taints have NoSchedule, NoExecute, None",
    f"taint {GPU} k=a:NoSchedule k=b:NoSchedule": "duplicated taints with the same key and effect",
    f"taint {GPU} ecc-": f"ecc- removes a taint: run device-taint-webhook untaint {GPU} ecc-",
    f"taint {GPU} k:NoExecute --evict": "--evict goes with effect NoSchedule, not NoExecute",
    "taint GPU k:None": "'GPU' must be DRIVER, DRIVER/POOL or DRIVER/POOL/DEVICE",
    f"taint {GPU} k:None --node node-0": "with --node or --selector only drivers can be named",
    "taint --node a -l b k:None": f"--node and --selector {TOGETHER}",
    f"taint {GPU} k:None --for soon": "'soon' must be a whole number with a unit",
    f"taint {GPU} k:None --dry-run all": "invalid choice: 'all'",
    "test": "required: SUITE|DIR",
    "test --run ( x": "'(' must be a regular expression",
    "test -o x y": "-o",
    "untaint": "a device such as",
    f"untaint {GPU}": "a taint such as key- or key:NoSchedule- is required",
    f"untaint {GPU} ecc:Bad-": "invalid taint effect: 'Bad'",
    f"untaint {GPU} :NoSchedule-": "must be a taint to remove",
}
MISSPELT: Final = {
    "check --polcy p.yaml x": "unknown flag --polcy; did you mean --policy?",
    "check --outptu=json x": "unknown flag --outptu; did you mean --output?",
    "export-vap --polcy p.yaml": "unknown flag --polcy; did you mean --policy?",
    "preview x --dmp d": "unknown flag --dmp; did you mean --dump?",
    "doctor --cannary": "unknown flag --cannary; did you mean --canary?",
    "doctor --zzz": "unknown flag --zzz\n",
}


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks a cluster or reads a file would say that there is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "nowhere")


@pytest.mark.parametrize(("line", "complaint"), WRONG.items(), ids=WRONG)
def test_what_makes_no_sense_is_refused_with_a_sentence(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(shlex.split(line)) == 2
    said = capsys.readouterr()
    assert (said.out, complaint in said.err) == ("", True), said.err


@pytest.mark.parametrize(("line", "hint"), MISSPELT.items(), ids=MISSPELT)
def test_misspelt_flag_gets_a_hint_and_two_lines(line: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(shlex.split(line)) == 2
    said = capsys.readouterr().err
    assert (hint in said, len(said.splitlines()), "usage: device-taint-webhook " in said) == (True, 2, True)
