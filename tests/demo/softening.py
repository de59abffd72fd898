"""The chapters of a health operator whose rules are softened, and of gangs. They need a control plane."""

from __future__ import annotations

from tests.demo.scenes import Chapter, Step

_OPERATOR = (
    "A health operator creates NoExecute rules and never retries. The policy softens its rules and refuses none. It "
    "makes the pods of each Job a gang, which is evicted together."
)
_OPERATOR_REMARK = (
    "Refused, a rule protects the pods, but its GPU stays in service and new pods are placed on it. `grace` is time "
    "for the rules on the other ranks of a gang to arrive."
)
_JOBS = (
    "Two training jobs fill a server with eight GPUs. Each has four ranks and stops if one is missing. The disruption "
    "budget lets four pods be away."
)
JOBS_WHOLE = Step(
    command="kubectl wait -n models --for=jsonpath='{.status.ready}'=4 job/speech job/vision --timeout=4m",
    says=("speech condition met", "vision condition met"),
)
_GANGS = ("4 of 4 pods of Job models/speech", "4 of 4 pods of Job models/vision")
_JOBS_REMARK = "`preview` names the gangs that a rule for the whole server would break, and who finds no other GPU."
_NO_PLACE = (
    "For people the policy says `pendingPods: 0`: a rule is refused while evicted pods would find no other device."
)
_PENDING = "8 of 8 pods find no other device: 8 need server.example.com, 0 free"
_ASK = "kubectl apply --dry-run=server -f hot-server.yaml"
_NO_PLACE_REMARK = "With the spare server all find a GPU, so the rule could pass. It was a dry run, and is not stored."
_HOT = "The fans of the server fail. Eight NoExecute rules arrive at once, for more pods than the limit."
_APPLY = "kubectl apply -f hot-gpus.yaml --as=system:serviceaccount:health:operator"
_LEAVING = (
    "kubectl get events -n models --field-selector reason=Evicted --watch "
    "-o custom-columns=TIME:.metadata.creationTimestamp,EVICTED:.involvedObject.name"
)
ONE_JOB_AFTER_THE_OTHER = (
    r"EVICTED\n\S+ +(\w+)-\S+(?:\n\S+ +\1-\S+){2}\n(\S+) +\1-\S+"  # four of a job, the last at some second
    r"\n(?!\2)\S+ +(?!\1)(\w+)-\S+(?:\n\S+ +\3-\S+){3}\n?$"  # then, at another one, four of another job
)
_EMPTIED = (
    "kubectl get devicetaintrules -l reason=heat -o custom-columns=NAME:.metadata.name,EFFECT:.spec.taint.effect,"
    """'EVICTION:.status.conditions[?(@.type=="devicetaint.io/Eviction")].message'"""
)
_HOT_REMARK = (
    "The GPUs are closed at once. The in-tree controller deletes nothing; our worker evicts the ranks of one job "
    "together, and those of the other when the first is whole again on the spare server, as their budget demands."
)
_BUILT_IN = '"msg":"policy deleted: the built-in policy is in use"'
_IN_USE = '"msg":"policy in use"'

SOFTENING = (
    Chapter(
        title=_OPERATOR,
        steps=(
            Step(
                command="grep -A 7 limits: health-operator.yaml",
                says=("action: soften", "soften: always", "gang: owner"),
            ),
            Step(command="kubectl apply -f health-operator.yaml", says=("policy created",), logged=_IN_USE),
        ),
        remark=_OPERATOR_REMARK,
    ),
    Chapter(
        title=_JOBS,
        steps=(
            Step(command="kubectl apply -f jobs.yaml", says=("speech created", "vision created"), never=("Warning",)),
            JOBS_WHOLE,
            Step(
                command="device-taint-webhook preview hot-server.yaml --kubeconfig admin.kubeconfig",
                says=("8 pods", *_GANGS, _PENDING, "8 pods can never come back while the taint stands"),
            ),
        ),
        remark=_JOBS_REMARK,
    ),
    Chapter(
        title=_NO_PLACE,
        steps=(
            Step(command=_ASK, code=1, ripe="8 of 8", says=(f"{_PENDING}, and the limit is 0 such pods",)),
            Step(command="kubectl apply -f spare-server.yaml", says=("server-2 created",)),
            Step(
                command=_ASK,
                says=("evicts 8 pods in 1 namespace", "hot-server created (server dry run)"),
                never=("find no other device",),
                again=True,
            ),
        ),
        remark=_NO_PLACE_REMARK,
        asked=True,
    ),
    Chapter(
        title=_HOT,
        steps=(
            Step(
                command=_APPLY,
                ripe="NoExecute became NoSchedule",
                says=("NoExecute became NoSchedule with annotation devicetaint.io/evict", "hot-gpu-7 created"),
                never=("Forbidden", "no eviction worker"),
            ),
            Step(command=_LEAVING, until=ONE_JOB_AFTER_THE_OTHER),
            Step(
                command=_EMPTIED,
                says=tuple(f"hot-gpu-{number}   NoSchedule   1 pod evicted\n" for number in range(8)),
                again=True,
            ),
            JOBS_WHOLE,
            Step(
                command="kubectl delete -f hot-gpus.yaml -f health-operator.yaml",
                says=('hot-gpu-7" deleted', 'policy" deleted'),
                logged=_BUILT_IN,
            ),
        ),
        remark=_HOT_REMARK,
        asked=True,
    ),
)
