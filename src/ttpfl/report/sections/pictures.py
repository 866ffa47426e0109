"""Samples with the predictions before and after adaptation."""

from ttpfl.report.markup import Html, breakable, element
from ttpfl.report.numbers import percentage
from ttpfl.report.parts import Data, Section, Value, figure, panels
from ttpfl.report.sections.clients import describe
from ttpfl.report.sections.drawings import drawing, things
from ttpfl.report.study import Study
from ttpfl.results.schema import ClientImages, Image, Prediction, Samples


def pictures(study: Study) -> Section | None:
    """A row of images, signals or rows of a table for some clients, if there are samples."""
    samples = study.samples
    if samples is None or not any(run["clients"] for run in samples["runs"]):
        return None
    names = {
        (run["case"], run["seed"], client["id"]): describe(client)
        for run in study.results["runs"]
        for client in run["clients"]
    }
    runs = {
        study.title(run["case"], run["seed"]): [
            _client(client, names.get((run["case"], run["seed"], client["id"]), client["id"]))
            for client in run["clients"]
        ]
        for run in samples["runs"]
    }
    method = samples.get("after") or "adaptation"
    kind = things([image for run in samples["runs"] for one in run["clients"] for image in one["images"]])
    caption = (
        f"{kind.capitalize()} as the model sees them{_clients(samples)}. {_choice(samples, kind)}"
        f"{_SCALES.get(kind, '')} Below each {kind.removesuffix('s')}: its class, then the prediction "
        f"without adaptation and with {method}, each with the model's confidence."
    )
    content = figure("pictures-figure", caption, panels("Run", runs), _data(samples))
    return Section("pictures", "What the model sees", content)


def _clients(samples: Samples) -> str:
    """Which clients were chosen, if there was a choice."""
    if max(len(run["clients"]) for run in samples["runs"]) < 3:
        return ""
    return ", at the clients with the largest, median and smallest gain"


_SCALES = {
    "signals": " A line per channel; the middle is the source clients' mean, the edges four deviations away.",
    "rows": " A bar per feature, from the source clients' mean; the edges are four deviations away.",
}


def _choice(samples: Samples, kind: str) -> str:
    """How the samples were chosen, which limits what they show."""
    if all("changed" in client for run in samples["runs"] for client in run["clients"]):
        return f"The {kind} of a client are drawn at random."
    return "Images whose prediction changes come first, so they do not show how often that happens."


def _client(client: ClientImages, name: str) -> Html:
    images = client["images"]
    right = [sum(image[when]["answer"] == image["label"] for image in images) for when in ("before", "after")]
    text = f" of these {len(images)}, {right[0]} correct before and {right[1]} after"
    if (size := client.get("size")) and (changed := client.get("changed")) is not None:
        part = percentage(100 * changed / size, 0)
        text += f"; adaptation changes {changed} of all {size} predictions ({part})"
    items = element("ul", [element("li", _image(image)) for image in images], class_="images")
    return element("div", element("h5", name, element("small", text)), items)


def _image(image: Image) -> list[Html]:
    return [
        drawing(image),
        element("b", breakable(image["label"])),
        _prediction("before", image["before"], image["label"]),
        _prediction("after", image["after"], image["label"]),
    ]


def _prediction(when: str, prediction: Prediction, label: str) -> Html:
    right = prediction["answer"] == label
    sign = element("span", "\N{CHECK MARK}" if right else "\N{MULTIPLICATION X}", aria_hidden="true")
    spoken = element("span", f"{when}: {'correct' if right else 'wrong'}, ", class_="spoken")
    confidence = element("small", f" {prediction['confidence']:.0%}")
    class_ = f"prediction {'gain' if right else 'harm'}"
    answer = breakable(prediction["answer"])
    return element("span", spoken, sign, "\N{NO-BREAK SPACE}", answer, confidence, class_=class_)


def _data(samples: Samples) -> Data:
    rows: list[list[Value]] = [
        [
            *(run["case"], run["seed"], client["id"], number, image["label"]),
            *(image["before"]["answer"], image["before"]["confidence"]),
            *(image["after"]["answer"], image["after"]["confidence"]),
        ]
        for run in samples["runs"]
        for client in run["clients"]
        for number, image in enumerate(client["images"])
    ]
    names = "case seed client image label before confidence_before after confidence_after"
    return Data(names.split(), rows)
