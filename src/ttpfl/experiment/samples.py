"""Random samples of three clients, with predictions before and after adaptation.

They are separate from the results because samples belong to the data set.
"""

import base64
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttpfl.data.images import DatasetInfo
from ttpfl.data.samples import as_input
from ttpfl.data.show_samples import as_images
from ttpfl.evaluation.evaluator import plain
from ttpfl.experiment import stages
from ttpfl.experiment.config import Config
from ttpfl.experiment.context import ExperimentContext
from ttpfl.experiment.entries import chosen
from ttpfl.experiment.inputs import comparison_inputs
from ttpfl.experiment.recipe import Recipe
from ttpfl.experiment.stages import Chosen
from ttpfl.results.schema import FORMAT
from ttpfl.util.randomness import seeded

CLIENTS, IMAGES = 3, 8
PREFERRED = ("atp-online", "atp-batch")


def samples(recipe: Recipe, context: ExperimentContext) -> dict[str, Any] | None:
    """Clients with the largest, a medium and the smallest gain of each case, at the first seed.

    None unless the recipe has both no adaptation and ATP.
    """
    after = next((e for name in PREFERRED for e in recipe.entries if e.method == name), None)
    before = next((e for e in recipe.entries if e.method == "none"), None)
    if after is None or before is None:
        return None
    runs, seed = [], recipe.seeds[0]
    for case in recipe.cases:
        both = [chosen(recipe, context, case, seed, entry) for entry in (before, after)]
        runs.append(
            {"case": case, "seed": seed, **_of_case(context, recipe, recipe.config(case, seed), *both)}
        )
    return {"format": FORMAT, "after": after.label, "runs": runs}


def _of_case(
    context: ExperimentContext, recipe: Recipe, config: Config, before: Chosen, after: Chosen
) -> dict[str, Any]:
    def work(folder: object) -> dict[str, Any]:
        columns = [dict[str, Any](stages.judged(context, config, choice)) for choice in (before, after)]
        gains = np.subtract(columns[1][recipe.headline], columns[0][recipe.headline])
        order = np.argsort(gains, kind="stable")[::-1]
        places = np.linspace(0, len(order) - 1, CLIENTS).round().astype(int)
        numbers = dict.fromkeys(order[places].tolist())
        return {"clients": [_of_client(context, config, after, number) for number in numbers]}

    inputs = {
        "images": f"{IMAGES} at random",
        **({} if recipe.headline == "accuracy" else {"gain": recipe.headline}),
        "before": comparison_inputs(config, before.method, None),
        "after": comparison_inputs(config, after.method, after.rates),
    }
    return context.store.get("samples", inputs, work)


def _of_client(context: ExperimentContext, config: Config, after: Chosen, number: int) -> dict[str, Any]:
    """Random samples, always the same, and the number of changed predictions."""
    case = stages.trial(context, config, after.method, after.rates)
    evaluator, model = case.evaluator, case.model
    client_number = evaluator.clients()[number]
    client = evaluator.target[client_number]
    source_info = case.source_info(after.method)
    with seeded(0):
        adapter = after.method.adapter(model, source_info)
    batches, labels, ids = evaluator.stream(client_number)
    old = torch.cat([plain(model)(batch) for batch in batches]).softmax(1)
    new = torch.cat([adapter(batch) for batch in batches]).softmax(1)
    shown = drawn(len(ids), (config.seed, *client.id.encode()))
    stored, classes = client.take(ids[shown]), client.info.classes
    return {
        "id": client.id,
        "size": len(ids),
        "changed": int((old.argmax(1) != new.argmax(1)).sum()),
        "images": [
            {
                **drawing,
                "label": classes[labels[index]],
                "before": _prediction(old[index], classes),
                "after": _prediction(new[index], classes),
            }
            for index, drawing in zip(shown, _drawings(stored, client.info), strict=True)
        ],
    }


def _drawings(samples: NDArray[Any], info: DatasetInfo) -> list[dict[str, Any]]:
    """What the report shows of each sample: an image, or normalised values."""
    if len(info.shape) in (1, 2):
        key = "features" if len(info.shape) == 1 else "channels"
        return [{key: values} for values in as_input(samples, info).numpy().astype("f8").round(3).tolist()]
    return [
        {
            "size": list(image.shape[:2]),
            "rgb": base64.b64encode(np.ascontiguousarray(image).tobytes()).decode(),
        }
        for image in as_images(samples, info)
    ]


def drawn(images: int, seed: tuple[int, ...]) -> NDArray[np.int64]:
    """The positions in the stream of the images to show.

    >>> drawn(200, seed=(0,)).tolist() == drawn(200, seed=(0,)).tolist(), drawn(3, seed=(0,)).tolist()
    (True, [0, 1, 2])
    """
    return np.sort(np.random.default_rng(seed).permutation(images)[:IMAGES])


def _prediction(probabilities: Tensor, classes: tuple[str, ...]) -> dict[str, Any]:
    best = int(probabilities.argmax())
    return {"answer": classes[best], "confidence": round(float(probabilities[best]), 4)}
