"""The whole story, on a control plane: what is typed, and what must come of it. tour.py has the short one.

The files are in story/. Nothing here is printed as a program's output: outputs come from the programs, and a step
whose output lacks what stands here ends the demo.
"""

from __future__ import annotations

from tests.demo.eviction import EVICTION
from tests.demo.impact import IMPACT
from tests.demo.patches import PATCHES
from tests.demo.scenes import Chapter, Step
from tests.demo.softening import SOFTENING

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"

_BROKEN = (
    'tolerations[0].value: Invalid value: "soon": must be empty',
    'tolerations[0].effect: Unsupported value: "Evict"',
    'tolerations[1].operator: Unsupported value: "In"',
)
_CARELESS = (
    'spec.devices.requests[0].exactly.tolerations[0].operator: Invalid value: "Equal": must be "Exists"',
    "or name a key",
    "spec.devices.requests[1].exactly.tolerations: Too many: 17: must have at most 16 items",
)
_BAD_DATA = ("metadata.annotations[devicetaint.io/data]: Invalid value", "must be a JSON object")
_HALF_TOLERANT = ("Warning: spec.devices.requests[0].exactly.tolerations[0].effect: is empty", "[DT001]")

_PASSES = "A valid claim passes: its pods may keep a GPU that goes into maintenance for an hour."
_REFUSED = 'A toleration with neither key nor "operator: Exists", and a list of 17: the API documentation forbids both.'
_MARKED = "A rule that taints a broken GPU gets timeAdded, from which tolerationSeconds count."
_RENEWED = "Changing the effect renews timeAdded: pods that tolerate NoExecute for an hour get the full hour."
_ADVICE = "A mistake in an annotation is refused; a valid but unlikely value gets a warning."
_ADVICE_REMARK = "A warning never refuses anything. docs/admission.md explains each code."

_POLICY = "A policy says who may tolerate what. It lives in a ConfigMap and takes effect within a second."
_SHOW_RULES = Step(command="grep -A 15 default: policy.yaml", says=("no-work-on-broken-gpus", "research-may-wait"))
_IN_USE = '"msg":"policy in use"'
_PLACES = "Namespace research may tolerate maintenance for an hour; namespace production may not."
_NOT_IN_PRODUCTION = (
    'in namespace "production" a toleration of key "gpu.example.com/maintenance", NoSchedule',
    "(rule default)",
    "ask for less, or your cluster's admins for a rule",
)
_WILDCARD = "A toleration of every key includes broken GPUs, so the rule on broken GPUs refuses it."
_NOT_EVERYTHING = (
    "spec.devices.requests[0].exactly.tolerations[0]",
    "a toleration of every key, NoExecute, for ever: a broken GPU gives wrong results (rule no-work-on-broken-gpus)",
)
_EXCEPTIONS = "An exception suspends rules until it expires. One expires in three days, the other has expired."
_SHOW_EXCEPTIONS = Step(command="grep -A 12 exceptions: policy.yaml", says=("lab-tests-a-broken-gpu", "bench"))
_ENDS_SOON = ("allowed by an exception until", "rule no-work-on-broken-gpus will refuse it then")
_HAS_ENDED = ("a broken GPU gives wrong results (rule no-work-on-broken-gpus)",)
_EXCEPTIONS_REMARK = (
    "In its last week, everyone who relies on an exception is warned; admins get an Event and a metric."
)
_GENERATED = "A claim made from a template is judged by the author of the template: here an admin."
_GENERATED_REMARK = (
    "Our mutating webhook wrote the author into the template, the API server made sure that it is true, and the "
    "controller copied it. The controller itself may tolerate nothing."
)
_SLIPS = (
    'data[policy.yaml].rules[0].action: Unsupported value: "permit": supported values: "allow"',
    'data[policy.yaml].rules[0].match.namespace: Forbidden: unknown field, did you mean "namespaces"?',
    "data[policy.yaml].exceptions[0].expiresAt: Required value",
)
_BROKEN_POLICY = "A policy with mistakes is refused; the current one stays in use."
_BROKEN_POLICY_REMARK = "Even if it were stored while the webhook is down, it would not replace the last good one."
_CHECK = Chapter(
    title="`check` finds all of this in the files, line by line, before they reach a cluster.",
    steps=(
        Step(
            command="device-taint-webhook check .",
            code=1,
            says=(
                *_BROKEN,
                *_CARELESS,
                *_BAD_DATA,
                *_SLIPS,
                "broken-claim.yaml:15:",
                "broken-policy.yaml:14:",
                "careless-claim.yaml:20:",
                "bad-data.yaml:7:",
                "half-tolerant.yaml:13:",
                "[DT001]",
                "[DT011]",
                " errors, 4 warnings",
            ),
            never=("good-claim.yaml", "broken-gpu.yaml", "broken-gpu-evict.yaml"),
        ),
        Step(
            command="device-taint-webhook check --policy policy.yaml --user mila -n research wildcard-claim.yaml",
            code=1,
            says=(
                "wildcard-claim.yaml:13:",
                "a toleration of every key, NoExecute, for ever",
                "(rule no-work-on-broken-gpus)",
            ),
        ),
    ),
    remark="Exit code 1 fails a CI job; -o junit and -o json are for reports.",
)
_WARN = "If a policy goes wrong, one edit makes it warn instead of refuse."
_TO_WARN = Step(command="sed -i.bak 's/mode: enforce/mode: warn/' policy.yaml")
_WARN_REMARK = "`mode: off` silences it. Invalid fields are refused in every mode."

_SHOW_TIME = "kubectl get devicetaintrule gpu-7 -o jsonpath='{.spec.taint.timeAdded}'"
_SHOW_AUTHOR = (
    "kubectl get resourceclaims -n bench -l test=burn-in "
    r"-o jsonpath='{.items[0].metadata.annotations.devicetaint\.io/requested-by}'"
)

BEFORE = Chapter(
    title="Before the webhook is registered, this API server accepts a claim that the API documentation forbids:",
    steps=(
        Step(
            command="kubectl apply --dry-run=server -f careless-claim.yaml",
            says=("resourceclaim.resource.k8s.io/careless created (server dry run)",),
            never=("Warning",),
        ),
    ),
)

IN_A_CLUSTER = (
    Chapter(
        title=_PASSES,
        steps=(Step(command="kubectl apply -f good-claim.yaml", says=("training created",), never=("Warning",)),),
        asked=True,
    ),
    Chapter(
        title='Broken fields, such as effect "Evict", are refused by the API server itself.',
        steps=(Step(command="kubectl apply -f broken-claim.yaml", code=1, says=_BROKEN),),
        remark="API servers call a validating webhook only for objects that they find valid themselves.",
        asked=False,
    ),
    Chapter(
        title=_REFUSED,
        steps=(Step(command="kubectl apply -f careless-claim.yaml", code=1, says=_CARELESS),),
        remark=(
            "The server accepted this same claim above. The refusal lists all mistakes at once, with the fixes, in the "
            "form of the server's own responses."
        ),
        asked=True,
    ),
    Chapter(
        title=_MARKED,
        steps=(
            Step(command="kubectl apply -f broken-gpu.yaml", says=("gpu-7 created",)),
            Step(command=_SHOW_TIME, new=_TIME),
        ),
        remark="The file has no time: the server fills it in; if it did not, our mutating webhook would.",
        asked=True,
    ),
    Chapter(
        title=_RENEWED,
        steps=(
            Step(
                command="kubectl apply -f broken-gpu-evict.yaml",
                says=("gpu-7 configured",),
                next_second=True,
                logged='"patched":["/spec/taint/timeAdded"]',
            ),
            Step(command=_SHOW_TIME, new=_TIME),
        ),
        remark="Our mutating webhook sets it on every release; API servers before 1.36 would keep the old time.",
        asked=True,
    ),
    Chapter(
        title=_ADVICE,
        steps=(
            Step(command="kubectl apply -f bad-data.yaml", code=1, says=_BAD_DATA),
            Step(command="kubectl apply -f half-tolerant.yaml", says=(*_HALF_TOLERANT, "half-tolerant created")),
        ),
        remark=_ADVICE_REMARK,
        asked=True,
    ),
    *IMPACT,
    *EVICTION,
    *SOFTENING,
    *PATCHES,
    Chapter(
        title=_POLICY,
        steps=(
            _SHOW_RULES,
            Step(command="kubectl apply -f policy.yaml", says=("policy created",), never=("Warning",), logged=_IN_USE),
        ),
        asked=True,
    ),
    Chapter(
        title=_PLACES,
        steps=(
            Step(command="kubectl apply -f namespaces.yaml", says=("namespace/research created",)),
            Step(
                command="kubectl apply -n research -f good-claim.yaml", says=("training created",), never=("Warning",)
            ),
            Step(command="kubectl apply -n production -f good-claim.yaml", code=1, says=_NOT_IN_PRODUCTION),
        ),
        asked=True,
    ),
    Chapter(
        title=_WILDCARD,
        steps=(Step(command="kubectl apply -n research -f wildcard-claim.yaml", code=1, says=_NOT_EVERYTHING),),
        asked=True,
    ),
    Chapter(
        title=_EXCEPTIONS,
        steps=(
            _SHOW_EXCEPTIONS,
            Step(command="kubectl apply -n lab -f broken-gpu-claim.yaml", says=("Warning", *_ENDS_SOON, "created")),
            Step(command="kubectl apply -n bench -f broken-gpu-claim.yaml", code=1, says=_HAS_ENDED),
        ),
        remark=_EXCEPTIONS_REMARK,
        asked=True,
    ),
    Chapter(
        title=_GENERATED,
        steps=(
            Step(command="kubectl apply -n bench -f burn-in.yaml", says=("burn-in created",), never=("Warning",)),
            Step(
                command="kubectl wait -n bench --for=create resourceclaim -l test=burn-in --timeout=4m",
                says=("condition met",),
            ),
            Step(command=_SHOW_AUTHOR, says=('"username":"test-admin"', '"system:masters"')),
        ),
        remark=_GENERATED_REMARK,
        asked=True,
    ),
    Chapter(
        title=_BROKEN_POLICY,
        steps=(Step(command="kubectl apply -f broken-policy.yaml", code=1, says=_SLIPS),),
        remark=_BROKEN_POLICY_REMARK,
        asked=True,
    ),
    _CHECK,
    Chapter(
        title=_WARN,
        steps=(
            _TO_WARN,
            Step(command="kubectl apply -f policy.yaml", says=("policy configured",), logged=_IN_USE),
            Step(
                command="kubectl apply -n production -f good-claim.yaml",
                says=("Warning", "(rule default)", "training created"),
            ),
        ),
        remark=_WARN_REMARK,
        asked=True,
    ),
)
