"""Random images of three clients, with what the model says before and after adaptation.

They are kept apart from the results, since images are the data set's.
"""

import base64
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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


def samples(recipe: Recipe, shop: ExperimentContext) -> dict[str, Any] | None:
    """For each case, at its first seed: clients that gained most, about the middle, and least.

    None where nothing is there to compare: it takes no adaptation, and ATP.
    """
    after = next((e for name in PREFERRED for e in recipe.entries if e.method == name), None)
    before = next((e for e in recipe.entries if e.method == "none"), None)
    if after is None or before is None:
        return None
    runs, seed = [], recipe.seeds[0]
    for case in recipe.cases:
        both = [chosen(recipe, shop, case, seed, entry) for entry in (before, after)]
        runs.append({"case": case, "seed": seed, **_of_case(shop, recipe.config(case, seed), *both)})
    return {"format": FORMAT, "after": after.label, "runs": runs}


def _of_case(shop: ExperimentContext, config: Config, before: Chosen, after: Chosen) -> dict[str, Any]:
    def work(folder: object) -> dict[str, Any]:
        accuracy = [stages.judged(shop, config, one)["accuracy"] for one in (before, after)]
        order = np.argsort(np.subtract(accuracy[1], accuracy[0]), kind="stable")[::-1]
        picked = [int(order[place]) for place in np.linspace(0, len(order) - 1, CLIENTS).round().astype(int)]
        return {"clients": [_of_client(shop, config, after, number) for number in dict.fromkeys(picked)]}

    inputs = {
        "images": f"{IMAGES} at random",
        "before": comparison_inputs(config, before.method, None),
        "after": comparison_inputs(config, after.method, after.rates),
    }
    return shop.store.get("samples", inputs, work)


def _of_client(shop: ExperimentContext, config: Config, after: Chosen, number: int) -> dict[str, Any]:
    """Images that are drawn at random, the same ones every time, and how many of all answers change."""
    case = stages.trial(shop, config, after.method, after.rates)
    evaluator, model = case.evaluator, case.model
    client_number = evaluator.clients()[number]
    client = evaluator.target[client_number]
    known = case.source_info(after.method)
    with seeded(0):
        adapter = after.method.adapter(model, known)
    batches, labels, ids = evaluator.stream(client_number)
    old = torch.cat([plain(model)(batch) for batch in batches]).softmax(1)
    new = torch.cat([adapter(batch) for batch in batches]).softmax(1)
    shown = drawn(len(ids), (config.seed, *client.id.encode()))
    pixels, classes = client.take(ids[shown]), client.info.classes
    return {
        "id": client.id,
        "size": len(ids),
        "changed": int((old.argmax(1) != new.argmax(1)).sum()),
        "images": [
            {
                "size": list(image.shape[:2]),
                "rgb": base64.b64encode(np.ascontiguousarray(image).tobytes()).decode(),
                "label": classes[labels[index]],
                "before": _answer(old[index], classes),
                "after": _answer(new[index], classes),
            }
            for index, image in zip(shown, pixels, strict=True)
        ],
    }


def drawn(images: int, seed: tuple[int, ...]) -> NDArray[np.int64]:
    """Which of a client's images are shown, in the order of its stream.

    >>> drawn(200, seed=(0,)).tolist() == drawn(200, seed=(0,)).tolist(), drawn(3, seed=(0,)).tolist()
    (True, [0, 1, 2])
    """
    return np.sort(np.random.default_rng(seed).permutation(images)[:IMAGES])


def _answer(probabilities: Tensor, classes: tuple[str, ...]) -> dict[str, Any]:
    best = int(probabilities.argmax())
    return {"answer": classes[best], "confidence": round(float(probabilities[best]), 4)}
