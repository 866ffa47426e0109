"""The results model: what comparisons return, `results.json` and `samples.json` contain, and reports show.

Since format 2, both files have a checksum. Accuracies are fractions, but the paper's are percentages. Unknown
keys are allowed.
"""

from typing import Annotated, Any, NotRequired, TypedDict

from ttpfl.util.settings_kit import Rule

FORMAT = 2
UNSEALED = 1
"""The format without checksums, which can still be read."""

_MEAN_AND_SD = Rule("[mean] or [mean, sd]", lambda value: isinstance(value, list) and len(value) in (1, 2))
Paper = dict[str, dict[str, Annotated[list[float], _MEAN_AND_SD]]]
"""The paper's accuracies by label and case: a mean, and a standard deviation if known."""

Column = list[float | None]
"""One number per client, in the order of the run's clients; None where unknown."""


class Metrics(TypedDict):
    """The measurements of a method at each client."""

    accuracy: list[float]
    balanced_accuracy: NotRequired[Column]  # mean recall over the client's classes; not in earlier files
    macro_f1: NotRequired[Column]  # mean F1 over the client's and the predicted classes; not in earlier files
    loss: Column  # mean cross-entropy
    ece: Column  # expected calibration error
    entropy: Column  # mean entropy of the predictions
    time: Column  # cost, as `COST` defines it
    extra_bytes: Column  # memory in addition to the model


METRICS = tuple(Metrics.__annotations__)


class Guarded(TypedDict):
    """What a guard knew about each client at the end of its stream, without labels."""

    estimate: Column  # accuracy of the model that answered then
    low: Column  # of the 95 % interval
    high: Column
    plain: Column  # estimated accuracy of the plain model
    alarms: Column  # how often adaptation was stopped
    stopped: Column  # 1 if the plain model answered at the end


GUARDED = tuple(Guarded.__annotations__)


class Measured(Metrics):
    """Measurements, with those of a guard if the method has one."""

    guard: NotRequired[Guarded]


HEADLINES = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "macro_f1": "macro-F1"}
"""Metrics that can be the main one, and their names in texts."""

COST = (
    "The cost of a method is the time it takes for a stream, divided by the time the plain model takes for "
    "the same stream: one thread, the same batches, images channels last in memory."
)
"""The definition, shown with every cost."""


class RoundRecord(TypedDict, total=False):
    """A round; it also has metrics of the source clients, such as `train_loss`."""

    round: int
    target: dict[str, float | None] | None  # metrics of the target clients, if the round was evaluated
    epsilon: float | None  # the privacy spent so far, if there is a bound
    delta: float
    no_bound: str  # why there is no bound


class Made(TypedDict, total=False):
    """Provenance; it also has the versions of other libraries."""

    ttpfl: str
    machine: str
    seconds: dict[str, float]  # wall-clock time of each stage
    stages: dict[str, list[dict[str, Any]]]  # the versions that computed each stage


class Recipe(TypedDict):
    """The recipe of the results."""

    name: str
    title: str
    question: str
    hash: NotRequired[str]
    preset: NotRequired[str | None]
    set: NotRequired[dict[str, Any]]
    command: NotRequired[str]


class Population(TypedDict):
    """The population, and the checks that its data passed."""

    name: str
    digest: str
    classes: list[str]
    source_clients: int
    target_clients: int
    checks: list[str]


class Corruption(TypedDict):
    """The corruption of a client's images."""

    name: str
    severity: int


class Client(TypedDict):
    """A target client; `labels` counts its images by class."""

    id: str
    domain: str | None
    corruption: Corruption | None
    labels: list[int]
    size: int


class Module(TypedDict):
    """A tensor that can move, and its learned rate."""

    name: str
    kind: str
    block: str
    rate: float


class LearnedRates(TypedDict):
    """Learned rates and their history."""

    modules: list[Module]
    history: list[RoundRecord]


class Tuning(TypedDict):
    """Hyper-parameters tried on source clients; `at_edge` lists those chosen at the end of a grid."""

    table: list[dict[str, Any]]
    at_edge: list[str]


class MethodResult(Measured):
    """The results of one method."""

    label: str
    method: str
    config: dict[str, Any]
    tuning: Tuning | None
    rates: LearnedRates | None


class ToyLine(TypedDict):
    """A rate in the toy example and its accuracy in closed form."""

    alpha: float
    closed_form: float


class ToyLearned(TypedDict):
    """The rates learned in the toy example."""

    rates: dict[str, float]
    closed_form: float


class ToyHistograms(TypedDict):
    """Counts by class ("-" and "+") and bin: `before` for "training" and "testing", `after` for each rate."""

    edges: list[float]
    before: dict[str, dict[str, list[int]]]
    after: list[dict[str, list[int]]]


class ToyExample(TypedDict):
    """The result of `ttpfl.experiment.toy.toy`."""

    alphas: list[ToyLine]
    best: ToyLine
    learned: ToyLearned
    histograms: ToyHistograms


class Run(TypedDict):
    """All methods in one case with one seed."""

    case: str
    seed: int
    config: dict[str, Any]
    population: Population
    clients: list[Client]
    training: list[RoundRecord]
    entries: list[MethodResult]
    orders: NotRequired[dict[str, list[MethodResult]]]
    """The entries in further orders of the target clients' streams."""
    headline: NotRequired[str]
    """The main metric, a key of `HEADLINES`; accuracy if missing."""
    setting: NotRequired[dict[str, Any]]
    """Hashes of model and images, and the settings of the streams, in comparisons of a given model."""
    toy: NotRequired[ToyExample]


class Results(TypedDict):
    """`results.json`."""

    format: int
    recipe: Recipe
    made: Made
    paper: Paper
    runs: list[Run]


class Prediction(TypedDict):
    """A predicted class and its confidence."""

    answer: str
    confidence: float


class Image(TypedDict):
    """A sample before and after adaptation.

    An image has a `size` (height and width) and `rgb` (its bytes in base64), a signal the normalised values
    of its `channels`, and a row of a table those of its `features`.
    """

    size: NotRequired[list[int]]
    rgb: NotRequired[str]
    channels: NotRequired[list[list[float]]]
    features: NotRequired[list[float]]
    label: str
    before: Prediction
    after: Prediction


class ClientImages(TypedDict):
    """Some images of a client.

    `size` is the client's number of images, `changed` the number of changed predictions. Both are missing in
    files of earlier versions, which chose changed images first instead of randomly.
    """

    id: str
    size: NotRequired[int]
    changed: NotRequired[int]
    images: list[Image]


class RunImages(TypedDict):
    """Some clients of a run."""

    case: str
    seed: int
    clients: list[ClientImages]


class Samples(TypedDict):
    """`samples.json`; `after` is the label of the adapting entry."""

    format: int
    after: NotRequired[str | None]
    runs: list[RunImages]
