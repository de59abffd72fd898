"""When a claim makes its pods go: taints, selectors and tolerations (E-5 to E-14)."""

from typing import Final

from tests.apiserver.eviction.scenario import KEY, Claim, Due, Pod, Scenario, holding
from tests.apiserver.eviction.steps import Marked, Publish, Taint
from tests.apiserver.eviction.table.texts import NOT_STARTED, ONE_GONE, ONE_PENDING_ONE_GONE, OTHER, TWO_GONE

AN_HOUR: Final = "*:NoExecute:3600"
FOR_EVER: Final = "*:NoExecute"

TAINTS: Final = (
    # --- which taints: E-5 to E-8 ----------------------------------------------------------------
    Scenario(
        name="a rule hits a device that nobody publishes",
        shows="E-5 E-7 E-8 E-30 E-31 E-33 E-34",
        steps=(Taint(),),
        evicted={"a": Due()},
        conditions={"r": ONE_GONE},
    ),
    Scenario(
        name="a taint in a slice hits the device of that name, and no other",
        shows="E-5 E-7 E-8",
        pods=(Pod("a"), Pod("b")),
        steps=(Publish({"a-0": (Marked("s"),), "b-0": ()}),),
        evicted={"a": Due("s")},
    ),
    Scenario(
        name="a taint in a slice of an older generation does not count, a rule does",
        shows="E-5",
        pods=(Pod("a"), Pod("b")),
        steps=(
            Publish({"a-0": (), "b-0": ()}, "new", 2),
            Publish({"a-0": (Marked("s"),), "b-0": (Marked("t"),)}, "old", 1),
            Taint(selects={"driver": "", "device": "b-0"}),
        ),
        evicted={"b": Due()},
        conditions={"r": ONE_GONE},
    ),
    Scenario(
        name="a rule selects by driver, pool and device",
        shows="E-6",
        pods=(Pod("a"), Pod("b")),
        steps=(Taint(selects={"driver": "", "pool": "pool", "device": "a-0"}),),
        evicted={"a": Due()},
        conditions={"r": ONE_GONE},
    ),
    Scenario(
        name="a rule selects by pool alone",
        shows="E-6",
        steps=(Taint(selects={"pool": "pool"}),),
        evicted={"a": Due()},
    ),
    Scenario(
        name="a rule selects by device alone",
        shows="E-6",
        pods=(Pod("a"), Pod("b")),
        steps=(Taint(selects={"device": "b-0"}),),
        evicted={"b": Due()},
    ),
    Scenario(
        name="a rule of which one field differs, or without a selector, hits nobody",
        shows="E-6",
        steps=(
            Taint("p", selects={"driver": "", "pool": "other", "device": "a-0"}),
            Taint("q", selects={"driver": "another.example.com", "pool": "pool", "device": "a-0"}),
            Taint("r", selects=None),
        ),
        conditions={"p": NOT_STARTED, "q": NOT_STARTED, "r": NOT_STARTED},
    ),
    Scenario(
        name="a rule with an empty selector hits every device",
        shows="E-6",
        alone=True,
        pods=(holding("tolerant", FOR_EVER), Pod("a")),
        steps=(Taint(selects={}),),
        evicted={"a": Due()},
    ),
    Scenario(
        name="only NoExecute makes pods go",
        shows="E-7",
        steps=(
            Taint("n", effect="NoSchedule"),
            Taint("o", effect="None"),
            Publish({"a-0": (Marked("s", "NoSchedule"), Marked("t", "None"))}),
        ),
        conditions={"n": OTHER},
    ),
    Scenario(
        name="time counts from timeAdded, also if that is long ago",
        shows="E-8 E-10",
        pods=(holding("a", "*:NoExecute:3604"), holding("b", "*:NoExecute:30")),
        steps=(Taint(ago=3600),),
        evicted={"a": Due("r", 3604), "b": Due("r", 30)},
        conditions={"r": TWO_GONE},
    ),
    Scenario(
        name="a timeAdded that is still to come is waited for",
        shows="E-8",
        steps=(Taint(ago=-5), Publish({"a-0": (Marked("s", ago=-7),)})),
        evicted={"a": Due()},
    ),
    # --- tolerations: E-9, E-10 ------------------------------------------------------------------
    Scenario(
        name="a toleration of the taint without seconds keeps a pod, others do not",
        shows="E-9 E-10",
        pods=(
            holding("key", f"{KEY}:NoExecute"),
            holding("every-key", FOR_EVER),
            holding("value", f"{KEY}=fan:NoExecute"),
            holding("other-key", "example.com/fine:NoExecute"),
            holding("other-value", f"{KEY}=disk:NoExecute"),
            holding("other-effect", f"{KEY}:NoSchedule"),
        ),
        steps=(Taint(value="fan"),),
        evicted={"other-key": Due(), "other-value": Due(), "other-effect": Due()},
        conditions={"r": "False Completed: 3 pods evicted since starting the controller."},
    ),
    Scenario(
        name="a toleration without effect",
        shows="E-9",
        pods=(holding("a", KEY), holding("b", "*")),
        steps=(Taint(),),
        conditions={"r": NOT_STARTED},
        in_tree={"a": Due(), "b": Due()},
        in_tree_conditions={"r": TWO_GONE},
        since_1_38={"r": NOT_STARTED},
        why="it protects from us, as the KEP has it",
    ),
    Scenario(
        name="the smallest seconds count, none win over all, below zero is zero",
        shows="E-10",
        pods=(
            holding("smallest", f"{KEY}:NoExecute:3600", "*:NoExecute:5"),
            holding("for-ever", f"{KEY}:NoExecute:3", FOR_EVER),
            holding("zero", f"{KEY}:NoExecute:0"),
            holding("negative", f"{KEY}:NoExecute:-5"),
            holding("hour", AN_HOUR),
        ),
        steps=(Taint(),),
        evicted={"smallest": Due("r", 5), "zero": Due(), "negative": Due()},
        conditions={
            "r": "True PodsPendingEviction: 1 pod needs to be evicted in 1 namespace. "
            "3 pods evicted since starting the controller."
        },
    ),
    Scenario(
        name="seconds that overflow",
        shows="E-10",
        pods=(holding("most", f"{KEY}:NoExecute:9223372036"), holding("a", f"{KEY}:NoExecute:9223372037"), Pod("now")),
        steps=(Taint(),),
        evicted={"now": Due()},
        in_tree={"a": Due(), "now": Due()},
        conditions={
            "r": "True PodsPendingEviction: 2 pods need to be evicted in 1 namespace. "
            "1 pod evicted since starting the controller."
        },
        in_tree_conditions={
            "r": "True PodsPendingEviction: 1 pod needs to be evicted in 1 namespace. "
            "2 pods evicted since starting the controller."
        },
        why="in nanoseconds they are more than 64 bits hold, and lie in the past then",
    ),
    # --- several devices and taints: E-11 to E-14 ------------------------------------------------
    Scenario(
        name="of several devices of a claim the earliest counts",
        shows="E-11",
        pods=(Pod("a", (Claim(devices={"one": (AN_HOUR,), "two": ("*:NoExecute:4",), "three": (FOR_EVER,)}),)),),
        steps=(Taint(),),
        evicted={"a": Due("r", 4)},
        conditions={"r": ONE_GONE},
    ),
    Scenario(
        name="of several taints of a device the earliest counts, and all that are not ignored are reasons",
        shows="E-11 E-33",
        pods=(holding("a", f"{KEY}:NoExecute:3600", "example.com/second:NoExecute:4", "example.com/third:NoExecute"),),
        steps=(
            Taint("p"),
            Taint("q", key="example.com/second"),
            Taint("s", key="example.com/third"),
            Publish({"a-0": (Marked("t"),)}),
        ),
        evicted={"a": Due("q", 4)},
        conditions={"p": ONE_GONE, "q": ONE_GONE, "s": NOT_STARTED},
    ),
    Scenario(
        name="two rules for the same device with the same key and effect are two reasons for one eviction",
        shows="E-11 E-33",
        pods=(holding("a", "*:NoExecute:4"),),
        steps=(
            Taint("p", selects={"driver": "", "pool": "pool", "device": "a-0"}),
            Taint("q", selects={"driver": "", "pool": "pool", "device": "a-0"}),
        ),
        evicted={"a": Due("p", 4)},
        conditions={"p": ONE_GONE, "q": ONE_GONE},
    ),
    Scenario(
        name="a taint without timeAdded is given one by the API server",
        shows="E-12",
        pods=(holding("a", "*:NoExecute:3"),),
        steps=(Publish({"a-0": (Marked("s", ago=None),)}),),
        evicted={"a": Due("s", 3)},
    ),
    Scenario(
        name="shared claims and those with adminAccess are like all others",
        shows="E-13 E-18",
        pods=(
            Pod("a", (Claim(name="shared"),)),
            Pod("b", (Claim(name="shared"),)),
            Pod("c", (Claim(admin=True),)),
            Pod("d", (Claim((FOR_EVER,), admin=True),)),
        ),
        steps=(Taint(),),
        evicted={"a": Due(), "b": Due(), "c": Due()},
        conditions={"r": "False Completed: 3 pods evicted since starting the controller."},
    ),
    Scenario(
        name="two devices of one pod under one rule are one eviction",
        shows="E-11 E-33",
        pods=(Pod("a", (Claim(), Claim())), holding("later", AN_HOUR)),
        steps=(Taint(),),
        evicted={"a": Due()},
        conditions={"r": ONE_PENDING_ONE_GONE},
    ),
)
