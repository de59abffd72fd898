"""The story: what is typed, and what must come of it. Told twice, with and without a control plane.

The files are in story/. Nothing here is printed as a program's output: outputs come from the programs, and a step
whose output lacks what stands here ends the demo.
"""

from __future__ import annotations

from dataclasses import dataclass

REVIEW = "POST "
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command, as typed, or one review, as `POST /path OPERATION file`."""

    command: str
    code: int = 0
    """Exit code; of a review the status code, 200 if it was allowed."""
    says: tuple[str, ...] = ()
    """What must stand in the output."""
    never: tuple[str, ...] = ()
    """What must not."""
    next_second: bool = False
    """Runs when a new second has begun: times in Kubernetes have no fractions."""
    new: str = ""
    """A regular expression; what it finds differs from what it found in earlier steps."""

    @property
    def typed(self) -> bool:
        """A user would type it; reviews are sent by programs."""
        return not self.command.startswith(REVIEW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A sentence, a few steps, and what to see in them."""

    title: str
    steps: tuple[Step, ...]
    remark: str = ""
    asked: bool | None = None
    """Whether the API server asks our validating webhook meanwhile, by its own count; None: does not matter."""
    logged: str = ""
    """What our server must have logged meanwhile."""


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

_CHECK = Chapter(
    title="`check` finds all of it beforehand: in the files, line by line, without a cluster.",
    steps=(
        Step(
            command="device-taint-webhook check .",
            code=1,
            says=(
                *_BROKEN,
                *_CARELESS,
                *_BAD_DATA,
                "broken-claim.yaml:15:",
                "careless-claim.yaml:20:",
                "bad-data.yaml:7:",
                "half-tolerant.yaml:13:",
                "[DT001]",
                "6 errors, 1 warning",
            ),
            never=("good-claim.yaml", "broken-gpu.yaml", "broken-gpu-evict.yaml"),
        ),
    ),
    remark="Exit code 1 fails a CI job; -o junit and -o json are for its reports.",
)
_PASSES = "A good claim passes: its pods stay an hour on a GPU that goes into maintenance."
_REFUSED = (
    'A toleration without key and "operator: Exists", and a list of 17: the API\'s documents forbid both, and so do we.'
)
_MARKED = "A rule that marks a broken GPU gets timeAdded, from which pods' tolerationSeconds count."
_RENEWED = "A change of the effect renews timeAdded: who tolerates NoExecute for an hour has that hour from now on."
_ADVICE = "A slip in an annotation is refused; what is valid but hardly meant gets a warning."
_ADVICE_REMARK = "A warning refuses nothing. docs/admission.md explains each code."

_SHOW_TIME = "kubectl get devicetaintrule gpu-7 -o jsonpath='{.spec.taint.timeAdded}'"

BEFORE = Chapter(
    title="Before the webhook is registered, this API server takes a claim that the API's documents forbid:",
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
        remark="Its own list: our validating webhook is asked only about objects that the server finds valid.",
        asked=False,
    ),
    Chapter(
        title=_REFUSED,
        steps=(Step(command="kubectl apply -f careless-claim.yaml", code=1, says=_CARELESS),),
        remark=(
            "The very claim that the server took above. All that is wrong is told at once, with what would be right, "
            "in the form of the server's own answers."
        ),
        asked=True,
    ),
    Chapter(
        title=_MARKED,
        steps=(
            Step(command="kubectl apply -f broken-gpu.yaml", says=("gpu-7 created",)),
            Step(command=_SHOW_TIME, new=_TIME),
        ),
        remark="The file has no time: the server fills it in, and our mutating webhook would if it did not.",
        asked=True,
    ),
    Chapter(
        title=_RENEWED,
        steps=(
            Step(command="kubectl apply -f broken-gpu-evict.yaml", says=("gpu-7 configured",), next_second=True),
            Step(command=_SHOW_TIME, new=_TIME),
        ),
        remark="Set by our mutating webhook, on every release; API servers before 1.35 would keep the old time.",
        asked=True,
        logged='"patched":["/spec/taint/timeAdded"]',
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
    _CHECK,
)

STANDALONE = (
    Chapter(
        title=_PASSES,
        steps=(Step(command="POST /validate CREATE good-claim.yaml", code=200, says=("allowed",), never=("Warning",)),),
    ),
    Chapter(
        title='Broken fields, such as effect "Evict", are refused in the API server\'s own words.',
        steps=(Step(command="POST /validate CREATE broken-claim.yaml", code=422, says=_BROKEN),),
        remark="In a cluster the server itself refuses them and our validating webhook is not asked.",
    ),
    Chapter(
        title=_REFUSED,
        steps=(Step(command="POST /validate CREATE careless-claim.yaml", code=422, says=_CARELESS),),
        remark="API servers take this claim. All that is wrong is told at once, with what would be right.",
    ),
    Chapter(
        title=_MARKED,
        steps=(
            Step(
                command="POST /mutate CREATE broken-gpu.yaml",
                code=200,
                says=('"path": "/spec/taint/timeAdded"',),
                new=_TIME,
            ),
        ),
    ),
    Chapter(
        title=_RENEWED,
        steps=(
            Step(
                command="POST /mutate UPDATE broken-gpu-evict.yaml",
                code=200,
                says=('"path": "/spec/taint/timeAdded"',),
                next_second=True,
                new=_TIME,
            ),
        ),
    ),
    Chapter(
        title=_ADVICE,
        steps=(
            Step(command="POST /validate CREATE bad-data.yaml", code=422, says=_BAD_DATA),
            Step(
                command="POST /validate CREATE half-tolerant.yaml",
                code=200,
                says=("allowed", *_HALF_TOLERANT),
            ),
        ),
        remark=_ADVICE_REMARK,
    ),
    _CHECK,
)
