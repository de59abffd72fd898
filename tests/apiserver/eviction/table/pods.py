"""Which pods a claim concerns (E-15 to E-21)."""

from typing import Final

from tests.apiserver.eviction.scenario import GROUP, NOBODY, Claim, Due, Pod, Scenario, holding
from tests.apiserver.eviction.steps import Admit, Bind, Budget, Delete, Gone, Taint, Tell
from tests.apiserver.eviction.table.taints import AN_HOUR, FOR_EVER
from tests.apiserver.eviction.table.texts import NOT_STARTED, ONE_GONE, THREE_GONE, TWO_GONE
from tests.controlplane.versions import FACTS

PODS: Final = (
    Scenario(
        name="a pod without a node stays until it has one",
        shows="E-15 E-25",
        pods=(Pod("never", scheduled=False), Pod("a", scheduled=False)),
        steps=(Taint(), Admit(Pod("now")), Bind("a")),
        evicted={"now": Due(), "a": Due()},
        conditions={"r": TWO_GONE},
    ),
    Scenario(
        name="a claim from a template goes by the pod's status",
        shows="E-16 E-17 E-25",
        pods=(
            Pod("told", (Claim(generated=True),)),
            Pod("not-yet", (Claim(generated=True, told=False),)),
            Pod("not-needed", (Claim(generated=True, needed=False),)),
            Pod("later-told", (Claim(generated=True, told=False),)),
        ),
        steps=(Taint(), Tell("later-told")),
        evicted={"told": Due(), "later-told": Due()},
        conditions={"r": TWO_GONE},
    ),
    Scenario(
        name="a claim from a template that was made for another pod is left alone, unless it is named directly",
        shows="E-17",
        pods=(
            Pod("a", (Claim(generated=True, made_for=NOBODY),)),
            Pod("direct", (Claim(generated=True, name="made"),)),
            Pod("user", (Claim(name="made"),)),
        ),
        steps=(Taint(),),
        evicted={"direct": Due(), "user": Due()},
        conditions={"r": TWO_GONE},
    ),
    Scenario(
        name="extended resources",
        shows="E-16",
        pods=(
            Pod("a", (Claim(extended=True),)),
            Pod("both", (Claim((FOR_EVER,)), Claim(extended=True))),
            Pod("now", (Claim(), Claim(extended=True))),
        ),
        steps=(Taint(),),
        evicted={"a": Due(), "both": Due(), "now": Due()},
        in_tree=None if FACTS.extended_evicted else {"now": Due()},
        conditions={"r": "False Completed: 3 pods evicted since starting the controller."},
        in_tree_conditions=None if FACTS.extended_evicted else {"r": ONE_GONE},
        since_1_38={"r": "False Completed: 3 pods evicted since starting the controller."},
        why="the in-tree controller does not read extendedResourceClaimStatus before 1.37.2",
    ),
    Scenario(
        name="a claim with no more than the annotation of those for extended resources protects no pod",
        shows="E-16",
        pods=(Pod("named", (Claim(marked=True),)), Pod("made", (Claim(generated=True, marked=True),))),
        steps=(Taint(),),
        evicted={"named": Due(), "made": Due()},
        conditions={"r": TWO_GONE},
    ),
    Scenario(
        name="a claim that is not allocated, or reserved for somebody else, makes nobody go",
        shows="E-5 E-18",
        pods=(
            Pod("idle", (Claim(allocated=False),)),
            Pod("stranger", (Claim(reserved_for="11111111-2222-3333-4444-555555555555"),)),
            Pod("a"),
        ),
        steps=(Taint(),),
        evicted={"a": Due()},
        conditions={"r": ONE_GONE},
    ),
    Scenario(
        name="a claim that is reserved for a group makes its pods go",
        shows="E-17 E-18",
        pods=(
            Pod("member", (Claim(name="common", reserved_for=GROUP),), group=GROUP),
            Pod("other-group", (Claim(name="common", reserved_for=GROUP),), group="others"),
            Pod("no-group", (Claim(name="common", reserved_for=GROUP),)),
            Pod("made", (Claim(generated=True, made_for=GROUP, reserved_for=GROUP),), group=GROUP),
            Pod("made-for-others", (Claim(generated=True, made_for=GROUP, reserved_for=GROUP),), group="others"),
        ),
        steps=(Taint(),),
        evicted={"member": Due(), "made": Due()},
        conditions={"r": TWO_GONE},
    ),
    Scenario(
        name="a claim made for a group makes a pod of it go that it is reserved for itself",
        shows="E-17 E-18",
        pods=(Pod("a", (Claim(generated=True, made_for=GROUP),), group=GROUP), Pod("now")),
        steps=(Taint(),),
        evicted={"a": Due(), "now": Due()},
        conditions={"r": TWO_GONE},
    ),
    Scenario(
        name="a claim that names other consumers before the pod makes it go all the same",
        shows="E-18",
        pods=(
            Pod("widget", (Claim(behind=("widgets.example.com/widgets/w",)),)),
            Pod("group", (Claim(behind=("scheduling.k8s.io/podgroups/others",)),)),
            Pod("three", (Claim(behind=("scheduling.k8s.io/podgroups/others", "example.com/pods/three")),)),
            Pod("stranger", (Claim(behind=("widgets.example.com/widgets/w",), reserved_for="another"),)),
        ),
        steps=(Taint(),),
        evicted={"widget": Due(), "group": Due(), "three": Due()},
        conditions={"r": THREE_GONE},
    ),
    Scenario(
        name="a pod that has run to its end",
        shows="E-19",
        pods=(Pod("done", phase="Succeeded"), Pod("failed", phase="Failed"), Pod("waiting", phase="Pending")),
        steps=(Taint(),),
        evicted={"waiting": Due()},
        in_tree={"done": Due(), "failed": Due(), "waiting": Due()},
        conditions={"r": ONE_GONE},
        in_tree_conditions={"r": "False Completed: 3 pods evicted since starting the controller."},
        why="it uses its devices no more, so we leave it alone",
    ),
    Scenario(
        name="a pod that is being deleted is not deleted again",
        shows="E-19 E-29",
        pods=(Pod("a", grace_seconds=300), Pod("later")),
        steps=(
            Delete("a"),
            # Evicted only after the news of the deletion, which the same watch brings.
            Admit(Pod("now")),
            Taint("p", selects={"device": "now-0"}),
            Gone(),
            Taint(),
        ),
        evicted={"now": Due("p"), "later": Due()},
        conditions={"p": ONE_GONE, "r": ONE_GONE},
        in_tree_conditions={"p": ONE_GONE, "r": TWO_GONE},
        since_1_38={"p": ONE_GONE, "r": ONE_GONE},
        why="before 1.38 the in-tree controller counts it as evicted",
    ),
    Scenario(
        name="of several claims the earliest counts, and the reasons of all",
        shows="E-20 E-33",
        pods=(Pod("a", (Claim(("*:NoExecute:20",)), Claim((AN_HOUR,)), Claim((FOR_EVER,)))),),
        steps=(
            Taint("p", selects={"device": "a-0"}),
            Taint("q", selects={"device": "a-1"}),
            Taint("s", selects={"device": "a-2"}),
        ),
        evicted={"a": Due("p", 20)},
        conditions={"p": ONE_GONE, "q": ONE_GONE, "s": NOT_STARTED},
    ),
    Scenario(
        name="the later claim's taint may be the earlier one",
        shows="E-20",
        pods=(Pod("a", (Claim((AN_HOUR,)), Claim(("*:NoExecute:20",)))),),
        steps=(Taint("p", selects={"device": "a-1"}), Taint("q", selects={"device": "a-0"})),
        evicted={"a": Due("p", 20)},
        conditions={"p": ONE_GONE, "q": ONE_GONE},
    ),
    Scenario(
        name="pods of DaemonSets, critical pods and those with a budget go like all others",
        shows="E-21",
        pods=(
            Pod("daemon", owner="DaemonSet"),
            Pod("critical", priority_class="system-node-critical"),
            holding("later", AN_HOUR),
            Pod("plain"),
        ),
        steps=(Budget(), Taint()),
        evicted={"daemon": Due(), "critical": Due(), "plain": Due()},
        conditions={
            "r": "True PodsPendingEviction: 1 pod needs to be evicted in 1 namespace. "
            "3 pods evicted since starting the controller."
        },
    ),
)
