"""Images of some clients, with what the model says of them before and after adaptation."""

from ttpfl.report.markup import Html, element
from ttpfl.report.numbers import share
from ttpfl.report.parts import Data, Section, Value, figure, panels
from ttpfl.report.png import png_address
from ttpfl.report.sections.clients import describe
from ttpfl.report.study import Study
from ttpfl.results.schema import ClientImages, Image, Prediction, Samples


def pictures(study: Study) -> Section | None:
    """A row of images for each client, if there are samples."""
    samples = study.samples
    if samples is None or not any(run["clients"] for run in samples["runs"]):
        return None
    names = {
        (run["case"], run["seed"], client["id"]): describe(client)
        for run in study.results["runs"]
        for client in run["clients"]
    }
    shown = {}
    for run in samples["runs"]:
        shown[study.title(run["case"], run["seed"])] = [
            _client(client, names.get((run["case"], run["seed"], client["id"]), client["id"]))
            for client in run["clients"]
        ]
    method = samples.get("after") or "adaptation"
    caption = (
        f"Images as the model sees them{_clients(samples)}. {_choice(samples)} Under each image its class, "
        f"then the prediction without adaptation and with {method}, with the model's confidence."
    )
    content = figure("pictures-figure", caption, panels("Run", shown), _data(samples))
    return Section("pictures", "What the model sees", content)


def _clients(samples: Samples) -> str:
    """Which clients were chosen; with fewer than three there was no choice."""
    if max(len(run["clients"]) for run in samples["runs"]) < 3:
        return ""
    return " at three clients: the one that gains most, one in the middle, and the one that gains least"


def _choice(samples: Samples) -> str:
    """How the images were chosen, which decides what they can show."""
    if all("changed" in client for run in samples["runs"] for client in run["clients"]):
        return "The images of a client are drawn at random."
    return "Images whose prediction changes come first, so they say nothing about how often that happens."


def _client(client: ClientImages, name: str) -> Html:
    images = client["images"]
    right = [sum(image[when]["answer"] == image["label"] for image in images) for when in ("before", "after")]
    told = f" of these {len(images)}, {right[0]} right before and {right[1]} after"
    if (size := client.get("size")) and (changed := client.get("changed")) is not None:
        told += f"; adaptation changes {changed} of all {size} predictions ({share(100 * changed / size, 0)})"
    return element(
        "div",
        element("h5", name, element("small", told)),
        element("ul", [element("li", _image(image)) for image in images], class_="images"),
    )


def _image(image: Image) -> list[Html]:
    height, width = image["size"] if len(image["size"]) == 2 else (0, 0)
    return [
        element(
            "img", src=png_address(image["rgb"], height, width), alt=f"an image of class {image['label']}"
        ),
        element("b", image["label"]),
        _answer("before", image["before"], image["label"]),
        _answer("after", image["after"], image["label"]),
    ]


def _answer(when: str, answer: Prediction, label: str) -> Html:
    right = answer["answer"] == label
    sign = element("span", "\N{CHECK MARK}" if right else "\N{MULTIPLICATION X}", aria_hidden="true")
    spoken = element("span", f"{when}: {'right' if right else 'wrong'}, ", class_="spoken")
    confidence = element("small", f" {answer['confidence']:.0%}")
    return element(
        "span",
        spoken,
        sign,
        " ",
        answer["answer"],
        confidence,
        class_=f"answer {'gain' if right else 'harm'}",
    )


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
