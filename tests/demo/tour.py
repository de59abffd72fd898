"""The short tour: six scenes on a cluster, and three that need files only. `ALL=1 make demo` tells the whole story."""

from __future__ import annotations

from tests.demo.impact import CONFIRMED, FLEET, REFUSED
from tests.demo.scenes import Chapter, Step
from tests.demo.softening import JOBS_WHOLE, ONE_JOB_AFTER_THE_OTHER

_FOR_ALL = "kubectl apply --dry-run=server -f all-gpus.yaml"
_IN_USE = '"msg":"policy in use"'
_CARELESS = (
    'spec.devices.requests[0].exactly.tolerations[0].operator: Invalid value: "Equal": must be "Exists"',
    "spec.devices.requests[1].exactly.tolerations: Too many: 17",
)
_NOT_EVERYTHING = ('in namespace "research" a toleration of every key, NoExecute, for ever', "(rule default)")
_EVICTED = (
    "kubectl get events -n models --field-selector reason=Evicted --sort-by=.metadata.creationTimestamp "
    "-o custom-columns=TIME:.metadata.creationTimestamp,EVICTED:.involvedObject.name"
)
_CHECK = "device-taint-webhook check --policy team-policy.yaml --user ann -n research wildcard-claim.yaml"
_RULES = "kubectl get devicetaintrules -l devicetaint.io/patch -o name"

_TYPO = "A toleration with neither key nor operator: API servers accept it, the webhook explains it."
_EVERY_DEVICE = "A maintenance rule whose selector is empty: the webhook refuses it, and says what it would hit."
_MAY_NOT = "A policy says who may tolerate what. Research may wait for maintenance, but not tolerate all."

ALONE = (
    Chapter(
        title=_TYPO,
        steps=(Step(command="device-taint-webhook check careless-claim.yaml", code=1, says=(*_CARELESS, "2 errors")),),
    ),
    Chapter(
        title="A maintenance rule whose selector is empty. `preview` says what it would hit, here in a dump.",
        steps=(
            Step(
                command="device-taint-webhook preview all-gpus.yaml --dump dump.json",
                says=(
                    "8 in 2 pools",
                    "training/train-0",
                    "no toleration",
                    "after 1 h",
                    'confirm-impact: "v1 devices=8 claims=6 pods=6',
                ),
            ),
        ),
    ),
    Chapter(
        title=_MAY_NOT,
        steps=(
            Step(
                command=_CHECK,
                code=1,
                says=('no rule allows "ann"', *_NOT_EVERYTHING),
            ),
        ),
    ),
)

WITHOUT_IT = Chapter(
    title="Without the webhook, a rule for every device of the cluster is accepted:",
    steps=(Step(command=_FOR_ALL, says=("all-gpus created (server dry run)",)),),
)

_JOBS = (
    Step(command="kubectl delete -f all-gpus.yaml", says=("deleted",)),
    Step(command="kubectl apply -f team-policy.yaml", says=("policy created",), logged=_IN_USE),
    Step(command="kubectl apply -f namespaces.yaml -f jobs.yaml -f cards.yaml", says=("speech created",)),
    JOBS_WHOLE,
    Step(
        command="kubectl wait -n models --for=jsonpath='{.status.disruptionsAllowed}'=4 pdb/ranks --timeout=4m",
        says=("met",),
    ),
    Step(command="kubectl rollout status -n ml statefulset/chat --timeout=4m", says=("complete",)),
    Step(command="kubectl apply -f spare-server.yaml", says=("server-2 created",)),
)
TOUR = (
    Chapter(
        title=_TYPO,
        steps=(Step(command="kubectl apply -f careless-claim.yaml", code=1, says=_CARELESS),),
        asked=True,
    ),
    Chapter(
        title=_EVERY_DEVICE,
        setting="two nodes with four GPUs each, and six pods that use them",
        scene=FLEET,
        steps=(REFUSED,),
        asked=True,
    ),
    Chapter(
        title="If you mean it, the text in the refusal confirms this rule and this impact, and nothing else.",
        steps=(
            *CONFIRMED,
            Step(
                command="kubectl get pods -n training",
                says=("serve-0", "serve-1"),
                never=("train-",),
                again=True,
            ),
        ),
        remark="The in-tree controller deleted four pods at once; the two that tolerate it for an hour stayed.",
        asked=True,
    ),
    Chapter(
        title="A server with two training jobs is drained. Four of their eight pods may be away at a time.",
        setting="a server with eight GPUs, two jobs with four ranks each, a spare server, and other GPUs",
        scene=_JOBS,
        steps=(
            Step(
                command="kubectl dtaint drain server.example.com/server-1 --interval 10",
                says=("drained: no allocation holds a device",),
            ),
            # Our worker writes Events a moment after it evicts.
            Step(command=_EVICTED, matches=ONE_JOB_AFTER_THE_OTHER, unseen=True, again=True),
        ),
        remark="Each job left whole: the second when the first ran again, as the disruption budget demands.",
        asked=True,
    ),
    Chapter(
        title=_MAY_NOT,
        steps=(
            Step(command="kubectl apply -n research -f good-claim.yaml", says=("created",), never=("Warning",)),
            Step(command="kubectl apply -n research -f wildcard-claim.yaml", code=1, says=_NOT_EVERYTHING),
        ),
        asked=True,
    ),
    Chapter(
        title="Large GPUs with firmware before 1.1.0 are broken. A patch selects them by class and CEL.",
        steps=(
            Step(command="grep -e Class -e cel: old-firmware.yaml", says=("deviceClassName: large", "1.1.0")),
            Step(
                command="kubectl apply -f old-firmware.yaml",
                ripe="selects 3 devices in 2 pools",
                says=("selects 3 devices in 2 pools; evicts 3 pods in 1 namespace", "old-firmware created"),
            ),
            Step(command=_RULES, matches=r"^(?:\S+/old-firmware-\w+\s+){3}$", again=True, unseen=True),
        ),
        remark="Each of the three has a DeviceTaintRule of its own now.",
        asked=True,
    ),
)
