"""docs/kubectl.md: its commands through the real kubectl, by a user with the ClusterRole of the page.

And those of docs/cheat-sheet.md, by an admin.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.evicting import EvictProcess
from tests.apiserver.pages.fleet import DRIVER, NAMES, NAMESPACE, NODE, RULES, Fleet
from tests.apiserver.pages.following import Reader, blocks
from tests.apiserver.pages.shell import LABELLED
from tests.apiserver.policy.stage import POLICY_MAP, make_config_map, make_policy
from tests.controlplane.client import path
from tests.controlplane.processes import wait_until
from tests.controlplane.webhook_process import ROOT

pytestmark = pytest.mark.whole

PAGE: Final = "docs/kubectl.md"
SHEET: Final = "docs/cheat-sheet.md"
WALKED: Final = {
    PAGE: {
        *("Preview", "Taint", "List", "Untaint", "Drain", "Status", "Explain"),
        *("Test a closed device", "From a saved cluster"),
    },
    SHEET: {"Turn it off", "Look", "Act"},
}
"""The sections whose commands the tests below run."""
USER: Final = "dana"
SLICES: Final = path("resource.k8s.io/v1", "resourceslices")
PODS: Final = path("v1", "pods", namespace=NAMESPACE)
UNDO: Final = f"kubectl dtaint untaint --node={NODE} devicetaint.io/drain:NoSchedule-"
HOLD: Final = "devicetaint.io/hold"
HELD: Final = "pod ml/train-0 is held: hold: checkpoint until noon\n"
WORKER: Final = path("apps/v1", "deployments", namespace="device-taint-webhook", name="device-taint-webhook-evict")
POOL: Final = f"{DRIVER}/{NODE}"
_TEXT: Final = re.compile(r"v1 devices=[0-9a-z=,. -]+ of=[a-z2-7]{16}")
_VARIES: Final = (
    (_TEXT, "TEXT"),
    (re.compile(r"[0-9-]{10}T[0-9:]{8}Z"), "TIME"),
    (re.compile(r"(?<= )[0-9]+[smh](?:[0-9]+s)?(?= )"), "AGE"),
    (re.compile(r"train-[01](-gpu-[a-z0-9]{5}\b)?"), "train-N"),
    (re.compile(r"https://[0-9.:]+"), "URL"),
    (re.compile(r" +"), " "),
)
_DEVICE: Final = (re.compile(r"gpu-[01]"), "gpu-N")
"""Which of the two a pod gets is up to the scheduler."""
_NEWS: Final = re.compile(
    r"[0-9]+ pods? to evict(, [0-9]+ terminating)?|(evicting )?pod ml/train-N( evicted| is held: hold: .*)?"
)
"""Between two looks pods may come a long way, so which of these lines there are is a matter of luck."""


class Typist:
    """Runs commands of the page as the user, with the texts of refusals in place of those that stand there."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.kubeconfig: Path = reader.plane.kubeconfig_of(USER)
        self.text = ""

    def run(self, command: str, codes: Collection[int] = (0, 1)) -> str:
        printed = self.reader.run(_TEXT.sub(self.text, command), codes=codes, KUBECONFIG=str(self.kubeconfig))
        found = _TEXT.search(printed)
        self.text = found[0] if found else self.text
        return printed

    def follow(self, heading: str, *varies: tuple[re.Pattern[str], str], seconds: float = 0) -> None:
        """Each command of a section prints what the page says, at once or within a time."""
        for command, said in commands(heading):
            end = time.monotonic() + seconds
            while same(printed := self.run(command), *varies) != same(said, *varies):
                assert time.monotonic() < end, f"$ {command}\n{printed}"

    def allow(self) -> None:
        """The ClusterRole of the page."""
        (role,) = map(yaml.safe_load, blocks(PAGE, "Permissions", "yaml"))
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role["metadata"]["name"]}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
        binding = {**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}
        del binding["rules"]
        self.reader.apply(role, binding)


def commands(heading: str) -> Iterator[tuple[str, str]]:
    """The commands of a section, each with what the page says that it prints."""
    for block in blocks(PAGE, heading):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, said = part.partition("\n")
            yield command, said


_CONDITION = re.compile(r"\S+ reports ")


def same(text: str, *varies: tuple[re.Pattern[str], str]) -> str:
    """The text without what differs from run to run: conditions stand as two writers happened to come."""
    for pattern, instead in (*_VARIES, *varies):
        text = pattern.sub(instead, text)
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(
        [*(line for line in lines if not _CONDITION.match(line)), *sorted(filter(_CONDITION.match, lines))]
    )


@pytest.fixture
def typist(reader: Reader, fleet: Fleet) -> Iterator[Typist]:
    """The webhook is installed and running, without a worker; the policy allows a rule to hit one pod."""
    del fleet
    reader.deploy()
    _set_link_taint(reader, [{"key": "hw.example.com/link", "value": "degraded", "effect": "None"}])
    with reader.pod_of_serve():
        _use_limit(reader, 1)
        yield Typist(reader)
    reader.client.delete(RULES)
    _set_link_taint(reader, [])
    for kind in ("clusterroles", "clusterrolebindings"):
        reader.client.delete(path("rbac.authorization.k8s.io/v1", kind, name="device-tainter"))


def _use_limit(reader: Reader, pods: int) -> None:
    """A policy with this limit, in use."""
    policy = make_policy(impact={"limits": [{"pods": pods}]})
    _ = reader.client.apply(POLICY_MAP, make_config_map(json.dumps(policy)), field_manager="admin").object
    rule = {
        "metadata": {"name": "probe"},
        "spec": {
            "deviceSelector": {"driver": DRIVER, "pool": NODE},
            "taint": {"key": "example.com/p", "effect": "NoExecute"},
        },
    }
    word = "limit is 1 pod" if pods == 1 else ""

    def asked() -> str:
        return str(reader.client.create(f"{RULES}?dryRun=All", rule).message)

    wait_until(lambda: word in asked() if word else "limit is" not in asked(), f"the limit is {pods}", seconds=240)


def _set_link_taint(reader: Reader, taints: list[dict[str, str]]) -> None:
    devices = [{"name": "gpu-0"}, {"name": "gpu-1", **({"taints": taints} if taints else {})}]
    _ = reader.client.patch(f"{SLICES}/{NODE}", {"spec": {"devices": devices}}).object


@pytest.mark.parametrize("page", [PAGE, SHEET])
def test_each_section_with_commands_is_walked(page: str) -> None:
    headings = re.findall(r"^##+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert {heading for heading in headings if blocks(page, heading)} == WALKED[page]


def test_verbs_print_what_the_page_says(typist: Typist) -> None:
    """Preview, taint with warnings and confirmation, list, untaint: each through `kubectl dtaint`."""
    refused = typist.run("kubectl dtaint list", codes={1})
    assert refused.startswith(
        f'Error from server (Forbidden): resourceslices.resource.k8s.io is forbidden: User "{USER}"'
    )
    refused = typist.run(f"kubectl dtaint taint {POOL}/gpu-0 example.com/ecc:NoSchedule", codes={1})
    assert refused.startswith(
        'Error from server (Forbidden): devicetaintrules.resource.k8s.io is forbidden: User "dana"'
    )
    typist.allow()
    wait_until(lambda: "forbidden" not in typist.run("kubectl dtaint list"), "the role is in force", seconds=60)
    (rule,) = blocks(PAGE, "Preview", "yaml")
    typist.reader.write("rule.yaml", rule)
    typist.follow("Preview", _DEVICE)
    for heading in ("Taint", "List", "Untaint"):
        typist.follow(heading)
    assert typist.reader.client.get(RULES).items == []

    save, ask = blocks(PAGE, "From a saved cluster")
    typist.run(save, codes={0})
    preview, status, explain = ask.splitlines()
    ((_, said),) = commands("Preview")
    printed = typist.run(preview, codes={0})
    said = same(said, _DEVICE).removesuffix("dry run: accepted as it is")
    assert same(printed, _DEVICE).startswith(said)
    assert "no dry run: a dump does not tell who would write the rule" in printed
    assert "no DeviceTaintRule, and no NoExecute taint in slices" in typist.run(status, codes={0})
    assert typist.run(explain, codes={0}).startswith("pod ml/train-0 on node node-7: ")


def test_a_dry_run_of_the_server_shows_its_warnings_and_writes_nothing(typist: Typist) -> None:
    typist.allow()
    printed = typist.run(f"kubectl dtaint taint --dry-run=server {POOL}/gpu-0 example.com/ecc:NoExecute", codes={0})
    assert (
        "Warning: spec.deviceSelector: selects 1 device in 1 pool; evicts 1 pod in 1 namespace, all at once" in printed
    )
    assert printed.endswith("(server dry run)\n")
    assert typist.reader.client.get(RULES).items == []


def test_drain_empties_the_devices_of_a_node(typist: Typist, fleet: Fleet) -> None:
    """It waits for a hold until its time is over, leaves the taint when interrupted, and goes on when asked again.

    Meanwhile status and explain say so.
    """
    reader = typist.reader
    typist.allow()
    _use_limit(reader, 50)
    _ = reader.client.patch(f"{PODS}/train-0", {"metadata": {"annotations": {HOLD: "checkpoint until noon"}}}).object
    ((command, said),) = commands("Drain")
    with EvictProcess(reader.plane, "delegated", "--leader-elect", policy=None) as worker:
        worker.wait_working()
        begun = reader.start(command, KUBECONFIG=str(typist.kubeconfig))
        printed = _until(begun, HELD)
        for heading in ("Status", "Explain"):
            typist.follow(heading, _DEVICE, seconds=60)

        again = typist.run(f"kubectl dtaint drain {NODE} --timeout 10s", codes={1})
        assert again.startswith(f"{POOL} already tainted by devicetaintrule.resource.k8s.io/")
        assert f"error: not drained: not empty within 10 s\nThe taint stays. To take it back: {UNDO}\n" in again
        _interrupt(typist)
        assert fleet.running() == {"train-0"}

        _ = reader.client.patch(f"{PODS}/train-0", {"metadata": {"annotations": {HOLD: None}}}).object
        printed += reader.finish(begun)
        _compare(same(printed).splitlines(), same(said).splitlines())
        assert fleet.running() == set()
        assert "deleted" in typist.run(UNDO, codes={0})


def test_commands_of_the_cheat_sheet_do_what_it_says(typist: Typist, fleet: Fleet) -> None:
    reader = typist.reader
    _use_limit(reader, 50)
    kustomization = (reader.folder / "deploy/kustomization.yaml").read_text()
    component = "components: [../manifests/components/evict-delegated]\n"
    reader.write("deploy/kustomization.yaml", f"{kustomization}{component}")
    reader.run("kubectl apply -k deploy")
    (rule,) = blocks(PAGE, "Preview", "yaml")
    reader.write("rule.yaml", rule)
    doctor, list_, status, explain = blocks(SHEET, "Look")
    close, open_, drain, hold, preview = blocks(SHEET, "Act")
    unregister, stop = blocks(SHEET, "Turn it off")

    assert "versions: " in reader.run(doctor, codes={0, 1})
    assert "evicted   1 pod\n" in reader.run(preview)
    assert " tainted by " in reader.run(close)
    assert "OPS-7" in reader.run(list_)
    reader.run(hold)
    with EvictProcess(reader.plane, "delegated", "--leader-elect", policy=None) as worker:
        worker.wait_working()
        begun = reader.start(drain)
        _until(begun, HELD)
        assert re.search(r"^ml/train-0 .* hold: checkpoint until noon$", reader.run(status), re.MULTILINE)
        assert "waits for hold: checkpoint until noon" in reader.run(explain)
        reader.run(stop)
        assert reader.client.get(WORKER).object["spec"]["replicas"] == 0
        _ = reader.client.patch(f"{PODS}/train-0", {"metadata": {"annotations": {HOLD: None}}}).object
        *_, last = reader.finish(begun).splitlines()
    assert fleet.running() == set()
    assert " deleted" in reader.run(last.removeprefix("When the work is done: "))
    assert " untainted: " in reader.run(open_)
    reader.run(unregister)
    kinds = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
    assert reader.run(f"kubectl get {kinds} {LABELLED} -o name") == ""


def test_a_test_pod_gets_the_closed_device_and_no_other_pod_does(reader: Reader, fleet: Fleet) -> None:
    """The first goal of KEP-5055, with the page's sample policy (G-7); the page's image is never run."""
    heading = "Test a closed device"
    use_policy, close, begin, end = blocks(PAGE, heading)
    devices = [{"name": f"gpu-{n}", "attributes": {"uuid": {"string": f"GPU-{n or '7f3a'}"}}} for n in (0, 1)]
    _ = reader.client.patch(f"{SLICES}/{NODE}", {"spec": {"devices": devices}}).object
    (documents,) = blocks(PAGE, heading, "yaml")
    reader.write("test.yaml", documents)
    claim, _pod = yaml.safe_load_all(documents)
    outside = {**claim, "metadata": {"name": "outside"}}
    reader.deploy()
    try:
        with reader.pod_of_serve():
            reader.run(use_policy)
            claims = path("resource.k8s.io/v1", "resourceclaims", namespace=NAMESPACE)
            wait_until(lambda: reader.client.create(claims, outside, dry_run=True).code == 403, "the policy refuses")
            reader.run(close)
            (user,) = (_user(each) for each in reader.client.get(claims).items if _device(each) == "gpu-0")
            _ = reader.client.delete(f"{PODS}/{user}").object
            other = reader.client.get(f"{PODS}/{next(iter(NAMES - {user}))}").object["spec"]
            late = {"metadata": {"name": "late"}, "spec": {"containers": other["containers"]}}
            late["spec"] |= {"resourceClaims": other["resourceClaims"], "terminationGracePeriodSeconds": 0}
            _ = reader.client.create(PODS, late).object
            wait_until(
                lambda: "cannot allocate all claims" in _why_not(reader, "late"), "another pod waits", seconds=120
            )

            reader.run(begin)
            tested = reader.client.get(path("resource.k8s.io/v1", "resourceclaims", namespace="device-tests")).items
            assert [_device(each) for each in tested] == ["gpu-0"]
            assert "cannot allocate all claims" in _why_not(reader, "late")

            reader.run(end)
            wait_until(lambda: "late" in fleet.running(), "the other pod gets the device", seconds=240)
    finally:
        reader.client.delete(RULES)
        reader.client.delete(path("v1", "namespaces", name="device-tests"))
        _ = reader.client.patch(
            f"{SLICES}/{NODE}", {"spec": {"devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]}}
        ).object


def _device(claim: dict[str, Any]) -> str:
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    return str(result["device"])


def _user(claim: dict[str, Any]) -> str:
    (consumer,) = claim["status"]["reservedFor"]
    return str(consumer["name"])


def _why_not(reader: Reader, pod: str) -> str:
    """Why the scheduler has not placed it."""
    conditions = reader.client.get(f"{PODS}/{pod}").object["status"].get("conditions", [])
    return "".join(
        each["message"] for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False"
    )


def _until(running: subprocess.Popen[str], line: str) -> str:
    """What it prints up to this line."""
    assert running.stdout is not None
    printed = ""
    while not printed.endswith(line):
        read = running.stdout.readline()
        assert read, printed
        printed += read
    return printed


def _interrupt(typist: Typist) -> None:
    """Ctrl-C leaves the taint, and says how to take it back."""
    # What a shell starts in the background ignores SIGINT, these tests among it, and so would the command.
    command = f"exec env --default-signal=INT kubectl dtaint drain {NODE}"
    going = typist.reader.start(command, KUBECONFIG=str(typist.kubeconfig))
    _until(going, "1 pod to evict\n")
    going.send_signal(signal.SIGINT)
    printed = typist.reader.finish(going, codes={130}, seconds=120)
    assert f"interrupted: the taint stays, and the worker goes on. To take it back: {UNDO}\n" in printed


def _compare(printed: list[str], said: list[str]) -> None:
    """The same at the beginning and at the end; of the pods, lines of the same kind."""
    first = next(at for at, line in enumerate(said) if " tainted by " in line) + 1
    assert (printed[:first], printed[-2:]) == (said[:first], said[-2:])
    for lines in (printed, said):
        assert [line for line in lines[first:-2] if not _NEWS.fullmatch(line)] == []
