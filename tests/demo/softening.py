"""The chapter of a health operator whose rules are softened. It needs a control plane."""

from __future__ import annotations

from tests.demo.scenes import Chapter, Step

_OPERATOR = (
    "A health operator creates NoExecute rules and never retries. The policy softens its rules, and refuses none."
)
_OPERATOR_REMARK = "Refused, a rule protects the pods, but its GPU stays in service and new pods are placed on it."
_HOT = "The fans of the second rack fail. Eight NoExecute rules arrive at once, for more pods than the limit."
_APPLY = "kubectl apply -f hot-gpus.yaml --as=system:serviceaccount:health:operator"
_STORED = "kubectl get devicetaintrules -l reason=heat -o custom-columns=NAME:.metadata.name,EFFECT:.spec.taint.effect"
_EMPTIED = "kubectl wait devicetaintrules -l reason=heat --for=condition=devicetaint.io/Eviction=False --timeout=8m"
_HOT_REMARK = (
    "The GPUs are closed at once. The in-tree controller deletes nothing; our worker moves the pods to the first rack, "
    "within their disruption budget."
)
_BUILT_IN = '"msg":"no policy found: the built-in policy is in use"'
_IN_USE = '"msg":"policy in use"'

SOFTENING = (
    Chapter(
        title=_OPERATOR,
        steps=(
            Step(command="grep -A 5 limits: health-operator.yaml", says=("action: soften", "soften: always")),
            Step(command="kubectl apply -f health-operator.yaml", says=("policy created",), logged=_IN_USE),
        ),
        remark=_OPERATOR_REMARK,
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
            Step(command=_STORED, says=("hot-gpu-0   NoSchedule", "hot-gpu-7   NoSchedule"), never=("NoExecute",)),
            Step(command=_EMPTIED, says=("hot-gpu-0 condition met", "hot-gpu-7 condition met")),
            Step(command="kubectl rollout status -n rack statefulset/train --timeout=4m", says=("complete",)),
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
