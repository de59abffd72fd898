"""What a restart of the evictor changes: nothing but the numbers that it has counted (E-27)."""

from typing import Final

from tests.apiserver.eviction.scenario import Due, Pod, Scenario, holding
from tests.apiserver.eviction.steps import Admit, Delete, Gone, Pass, Says, Taint, Untaint
from tests.apiserver.eviction.table.taints import AN_HOUR
from tests.apiserver.eviction.table.texts import ONE_GONE, ONE_PENDING, ONE_PENDING_ONE_GONE

RESTARTS: Final = (
    Scenario(
        name="a restart makes no toleration longer or shorter",
        shows="E-27",
        pods=(holding("a", "*:NoExecute:45"), holding("later", AN_HOUR), Pod("now")),
        steps=(Taint(), Gone()),
        after=(Pass(Due("r", 45), 0),),
        evicted={"now": Due(), "a": Due("r", 45)},
        conditions={"r": ONE_PENDING_ONE_GONE},
    ),
    Scenario(
        name="who becomes due during a restart goes after it",
        shows="E-27",
        pods=(holding("a", "*:NoExecute:1"), Pod("now")),
        steps=(Taint("p", selects={"device": "now-0"}), Gone()),
        while_down=(Taint(selects={"device": "a-0"}),),
        evicted={"now": Due("p"), "a": Due("r", 1)},
        conditions={"r": ONE_GONE},
    ),
    Scenario(
        name="what ends during a restart is not known after it",
        shows="E-27",
        pods=(holding("later", AN_HOUR), holding("other", AN_HOUR), Pod("now")),
        steps=(Taint("p", selects={"device": "other-0"}), Taint(), Gone()),
        while_down=(Untaint("r"), Delete("other")),
        after=(Admit(holding("another", AN_HOUR)), Taint("q", selects={"device": "another-0"})),
        evicted={"now": Due("r")},
        conditions={"p": "False NotStarted", "q": ONE_PENDING},
    ),
    Scenario(
        name="numbers begin anew with a restart",
        shows="E-27",
        pods=(holding("later", AN_HOUR), Pod("now")),
        steps=(Taint(), Gone(), Says(ONE_PENDING_ONE_GONE)),
        while_down=(Delete("later"),),
        after=(Admit(holding("another", AN_HOUR)),),
        evicted={"now": Due()},
        conditions={"r": ONE_PENDING},
    ),
)
