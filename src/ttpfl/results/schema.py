"""The results model: what a comparison yields, `results.json` and `samples.json` hold, and a report shows.

Since format 2 both files have a checksum, which is verified when they are read.

Accuracies are fractions, but the paper's figures are percent. Keys that are not named here are allowed.
"""

from typing import Any, NotRequired, TypedDict

FORMAT = 2
UNSEALED = 1
"""The format before checksums, which can still be read."""

Column = list[float | None]
"""One number per client, in the order of the run's clients; None where it is not known."""


class Metrics(TypedDict):
    """What is measured of a method at each client."""

    accuracy: list[float]
    loss: Column
    """Mean cross-entropy."""
    ece: Column
    """Expected calibration error: the mean distance of confidence and accuracy."""
    entropy: Column
    """Mean entropy of the predictions."""
    time: Column
    """The cost, as `COST` defines it."""
    extra_bytes: Column
    """Memory beside the model."""


METRICS = tuple(Metrics.__annotations__)


COST = (
    "The cost of a method is the time it takes for a stream, divided by the time the plain model takes for "
    "the same stream: one thread, the same batches, images channels last in memory."
)
"""The definition in words, wherever costs are shown."""


class RoundRecord(TypedDict, total=False):
    """A round; beside these it has figures of the source clients, such as `train_loss`."""

    round: int
    target: dict[str, float | None] | None
    """Figures of the target clients, in rounds that were evaluated."""
    epsilon: float | None
    """Where rates are learned with privacy: what was spent so far; None if there is no bound."""
    delta: float
    no_bound: str
    """Why there is none."""


class Made(TypedDict, total=False):
    """With what the results were made; beside these, versions of other libraries."""

    ttpfl: str
    machine: str
    seconds: dict[str, float]
    """Time on the clock by stage."""
    stages: dict[str, list[dict[str, Any]]]
    """The versions that each stage was computed with."""


class Recipe(TypedDict):
    """What was asked."""

    name: str
    title: str
    question: str
    hash: NotRequired[str]
    preset: NotRequired[str | None]
    set: NotRequired[dict[str, Any]]
    command: NotRequired[str]


class Population(TypedDict):
    """The clients as a whole, and the checks of their data that held."""

    name: str
    digest: str
    classes: list[str]
    source_clients: int
    target_clients: int
    checks: list[str]


class Corruption(TypedDict):
    """What was done to a client's images."""

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
    """One tensor that can move, and its learned rate."""

    name: str
    kind: str
    block: str
    rate: float


class LearnedRates(TypedDict):
    """Rates, and how they were learned."""

    modules: list[Module]
    history: list[RoundRecord]


class Tuning(TypedDict):
    """Hyper-parameters that were tried on source clients; `at_edge` names those chosen at a grid's end."""

    table: list[dict[str, Any]]
    at_edge: list[str]


class MethodResult(Metrics):
    """A method that was compared."""

    label: str
    method: str
    config: dict[str, Any]
    tuning: Tuning | None
    rates: LearnedRates | None


class ToyLine(TypedDict):
    """A rate in the toy example, and the accuracy that it has in closed form."""

    alpha: float
    closed_form: float


class ToyLearned(TypedDict):
    """The rates that were learned there."""

    rates: dict[str, float]
    closed_form: float


class ToyHistograms(TypedDict):
    """Counts of samples by class ("-" and "+"), one for each bin; `after` has them for each rate."""

    edges: list[float]
    before: dict[str, dict[str, list[int]]]
    """Of "training" and "testing"."""
    after: list[dict[str, list[int]]]


class ToyExample(TypedDict):
    """What `ttpfl.experiment.toy.toy` gives."""

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
    setting: NotRequired[dict[str, Any]]
    """Hashes of the model and of the images, and how streams came, where a given model was compared on."""
    toy: NotRequired[ToyExample]
    """Where that was the run."""


class Results(TypedDict):
    """`results.json`."""

    format: int
    recipe: Recipe
    made: Made
    paper: dict[str, dict[str, list[float]]]
    runs: list[Run]


class Prediction(TypedDict):
    """A prediction, and how sure the model is of it."""

    answer: str
    confidence: float


class Image(TypedDict):
    """An image (`size` is height and width, `rgb` the base64 of its bytes) before and after adaptation."""

    size: list[int]
    rgb: str
    label: str
    before: Prediction
    after: Prediction


class ClientImages(TypedDict):
    """Some images of a client.

    They were drawn at random if `size` and `changed` are there: how many images the client has, and for how
    many of them adaptation changes the prediction. Earlier versions showed changed ones first.
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
    """`samples.json`; `after` is the label of the entry that adapted."""

    format: int
    after: NotRequired[str | None]
    runs: list[RunImages]
