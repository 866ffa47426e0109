"""Methods that adapt normalisation layers or features, each against a plain re-statement of its rule."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ttpfl
from tests.helpers import authors, networks
from ttpfl import methods
from ttpfl.errors import BatchError, MethodError
from ttpfl.methods import SourceInfo

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)


def certain(name: str) -> nn.Module:
    """A network with predictions from quite certain to uncertain."""
    model = networks.make(name)
    head = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        logits = model(networks.batches(name, 1, 32, seed=9)[0][0])
        head.bias -= logits.mean(0)
        head.weight *= 2 / logits.std(0)[:, None]
        head.bias *= 2 / logits.std(0)
    return model


def stream(name: str, count: int = 4, size: int = 8) -> list[Tensor]:
    return [x for x, _ in networks.batches(name, count, size)]


def answers(
    method: methods.Method, model: nn.Module, batches: list[Tensor], **source_info: object
) -> list[Tensor]:
    adapter = method.adapter(model, SourceInfo(**source_info))
    return [adapter(x) for x in batches]


def on_batch_statistics(model: nn.Module) -> nn.Module:
    """A copy whose BatchNorm layers know nothing but the batch, as in the methods' own code."""
    model = copy.deepcopy(model).requires_grad_(False)
    for layer in model.modules():
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
    return model


def norm_parameters(model: nn.Module, without: str = "-") -> list[nn.Parameter]:
    layers = [m for n, m in model.named_modules() if isinstance(m, NORMS) and not n.startswith(without)]
    return [p.requires_grad_() for layer in layers for p in layer.parameters()]


def entropy(logits: Tensor) -> Tensor:
    p = logits.softmax(1)
    return -(p * p.log()).sum(1)


def assert_same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    theirs = [logits.detach() for logits in theirs]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))


def differs(a: list[Tensor], b: list[Tensor]) -> bool:
    return any(float((x - y).detach().abs().max()) > 1e-3 for x, y in zip(a, b, strict=True))


class LooksAtStrides(networks.ViewNet):
    def forward(self, x: Tensor) -> Tensor:
        assert x.stride(1) > 1, "not in the usual layout"
        return super().forward(x)


@pytest.mark.parametrize("kind", [networks.ViewNet, LooksAtStrides])
def test_models_that_depend_on_the_memory_layout(kind: type[nn.Module]) -> None:
    model, batches = kind().eval(), stream("view")
    ours = answers(methods.make("bn-adapt", prior=1e9), model, batches)  # as good as no adaptation
    assert_same(ours, [model(x) for x in batches])


@pytest.mark.parametrize("name", ["tent", "sar"])
def test_scale_and_shift_that_two_layers_share(name: str) -> None:
    first, second = nn.LayerNorm(6), nn.LayerNorm(6)
    second.weight, second.bias = first.weight, first.bias
    model = nn.Sequential(nn.Linear(6, 6), first, nn.Linear(6, 6), second, nn.Linear(6, networks.CLASSES))
    batches, theirs = stream("mlp"), []
    slow = copy.deepcopy(model)
    optimizer = torch.optim.SGD(slow[1].parameters(), 0.1, momentum=0.9)
    for x in batches:
        theirs.append(slow(x))
        optimizer.zero_grad()
        entropy(theirs[-1]).mean().backward()
        optimizer.step()
    # On all samples and without a look for sharpness, SAR takes the steps of Tent.
    config = {"margin": 2.0, "rho": 0.0, "recovery": 0.0} if name == "sar" else {}
    assert_same(answers(methods.make(name, lr=0.1, optimizer="sgd", **config), model, batches), theirs)
    assert differs(theirs[1:], [model(x) for x in batches[1:]])


# BN-Adapt


def test_bn_adapt_equals_the_authors() -> None:
    assert authors.distance(authors.answers(methods.make("bn-adapt")), authors.figure("bn_adapt0")) < 1e-4


@pytest.mark.parametrize("prior", [0.0, 5.0])
@pytest.mark.parametrize("size", [6, 2])
def test_bn_adapt_mixes_statistics_layer_by_layer(prior: float, size: int) -> None:
    model, (x,) = networks.make("mlp").double(), stream("mlp", 1, size)
    hidden = model[0](x.double())
    source = prior / (prior + size)
    mean = source * model[1].running_mean + (1 - source) * hidden.mean(0)
    variance = source * model[1].running_var + (1 - source) * hidden.var(0)
    hidden = (hidden - mean) / (variance + 1e-5).sqrt() * model[1].weight + model[1].bias
    (ours,) = answers(methods.make("bn-adapt", prior=prior), model, [x.double()])
    torch.testing.assert_close(ours, model[4](hidden.relu()).detach())


def test_bn_adapt_of_a_batch_of_one_keeps_the_statistics_that_a_single_value_does_not_give() -> None:
    model, (x,) = networks.make("mlp"), stream("mlp", 1, 1)
    (ours,) = answers(methods.make("bn-adapt", prior=0.0), model, [x])
    torch.testing.assert_close(ours, model(x).detach())


def test_bn_adapt_needs_batch_norm() -> None:
    with pytest.raises(MethodError, match="no BatchNorm layer"):
        methods.make("bn-adapt").adapter(networks.make("groupnorm"), SourceInfo())


# Tent


@pytest.mark.parametrize("kind", ["adam", "sgd"])
@pytest.mark.parametrize("name", ["cnn18", "groupnorm", "vit", "resnet"])
def test_tent(name: str, kind: str) -> None:
    model, batches = certain(name), stream(name)
    slow = on_batch_statistics(model)
    parameters = norm_parameters(slow)
    optimizer = (
        torch.optim.Adam(parameters, 0.01)
        if kind == "adam"
        else torch.optim.SGD(parameters, 0.01, momentum=0.9)
    )
    theirs = []
    for x in batches:
        theirs.append(slow(x))
        optimizer.zero_grad()
        entropy(theirs[-1]).mean().backward()
        optimizer.step()
    ours = answers(methods.make("tent", lr=0.01, optimizer=kind), model, batches)
    assert_same(ours, theirs)
    assert differs(ours[1:], [on_batch_statistics(model)(x) for x in batches[1:]])


def test_tent_says_that_there_is_nothing_to_adapt() -> None:
    with pytest.raises(MethodError, match=r"normalisation layers \(it has none\)"):
        methods.make("tent").adapter(nn.Linear(3, 2), SourceInfo())
    bare = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 2))
    with pytest.raises(MethodError, match="no scale and shift"):
        methods.make("tent").adapter(bare, SourceInfo())
    with pytest.raises(MethodError, match="optimizer must be 'adam' or 'sgd', got 'lbfgs'"):
        methods.make("tent", optimizer="lbfgs").adapter(networks.make("mlp"), SourceInfo())


def test_tent_with_a_step_size_that_overflows_says_so() -> None:
    adapter = methods.make("tent", lr=1e30).adapter(networks.make("cnn18"), SourceInfo())
    x = stream("cnn18")[0]
    adapter(x)
    with pytest.raises(BatchError, match="smaller learning rate"):
        adapter(x)


# SHOT


def slow_pseudo_labels(features: Tensor, p: Tensor) -> list[int]:
    def nearest(feature: Tensor, centroids: dict[int, Tensor]) -> int:
        return max(centroids, key=lambda k: float(F.cosine_similarity(feature, centroids[k], dim=0)))

    labels = p.argmax(1).tolist()
    soft = {
        k: sum(p[i, k] * features[i] for i in range(len(p))) / sum(p[i, k] for i in range(len(p)))
        for k in sorted(set(labels))
    }
    labels = [nearest(f, soft) for f in features]
    hard = {
        k: torch.stack([f for f, label in zip(features, labels, strict=True) if label == k]).mean(0)
        for k in sorted(set(labels))
    }
    return [nearest(f, hard) for f in features]


@pytest.mark.parametrize("name", ["cnn18", "groupnorm"])
def test_shot(name: str) -> None:
    model, batches = certain(name), stream(name)
    slow = on_batch_statistics(model)
    head = slow.linear5 if name == "cnn18" else slow.head
    extractor = [p.requires_grad_() for p in slow.parameters() if p not in set(head.parameters())]
    optimizer = torch.optim.SGD(extractor, 0.01, momentum=0.9)
    seen: list[Tensor] = []
    head.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    theirs = []
    for x in batches:
        theirs.append(slow(x))
        p = theirs[-1].softmax(1)
        diversity = -(p.mean(0) * p.mean(0).log()).sum()
        labels = torch.tensor(slow_pseudo_labels(seen[-1].detach(), p.detach()))
        loss = entropy(theirs[-1]).mean() - diversity + 0.5 * F.cross_entropy(theirs[-1], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ours = answers(methods.make("shot", lr=0.01, beta=0.5), model, batches)
    assert_same(ours, theirs)
    assert differs(ours[1:], [on_batch_statistics(model)(x) for x in batches[1:]])


# EATA


def slow_fishers(model: nn.Module, batches: list[Tensor]) -> list[Tensor]:
    slow = on_batch_statistics(model)
    parameters = norm_parameters(slow)
    squares = []
    for x in batches:
        logits = slow(x)
        loss = F.cross_entropy(logits, logits.argmax(1))
        squares.append([g**2 for g in torch.autograd.grad(loss, parameters)])
    return [torch.stack(column).mean(0) for column in zip(*squares, strict=True)]


@pytest.mark.parametrize("name", ["cnn18", "groupnorm"])
def test_eata(name: str) -> None:
    model, batches = certain(name), stream(name, count=5)
    clients = [networks.batches(name, seed=5), networks.batches(name, count=2, seed=6)]
    config = {"lr": 0.05, "margin": 0.6, "similarity": 0.6, "fisher": 30.0}
    method = methods.make("eata", **config)
    summary = methods.add(method.summary(model, client) for client in clients)
    assert summary["batches"] == 5
    fishers = slow_fishers(model, [x for client in clients for x, _ in client])

    slow = on_batch_statistics(model)
    parameters = norm_parameters(slow)
    fresh = [p.detach().clone() for p in parameters]
    optimizer = torch.optim.SGD(parameters, config["lr"], momentum=0.9)
    margin, mean, theirs, used = config["margin"] * math.log(networks.CLASSES), None, [], []
    for x in batches:
        theirs.append(slow(x))
        terms, chosen = [], []
        for logits, sample_entropy in zip(theirs[-1], entropy(theirs[-1]), strict=True):
            p = logits.detach().softmax(0)
            redundant = mean is not None and abs(F.cosine_similarity(mean, p, dim=0)) >= config["similarity"]
            if sample_entropy < margin and not redundant:
                terms.append(sample_entropy / math.exp(sample_entropy.item() - margin))
                chosen.append(p)
        used.append(len(terms))
        if terms:
            loss = sum(terms) / len(terms)
            for f, p, start in zip(fishers, parameters, fresh, strict=True):
                loss = loss + config["fisher"] * (f * (p - start) ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            new = sum(chosen) / len(chosen)
            mean = new if mean is None else 0.9 * mean + 0.1 * new
    assert used[0] < 8, "no sample was unreliable"
    assert 3 < sum(used[1:]) < 20, "redundant samples were not tested"
    ours = answers(method, model, batches, summary=summary)
    assert_same(ours, theirs)
    without = answers(methods.make("eata", **{**config, "fisher": 0.0}), model, batches)
    assert differs(ours, without), "the regulariser was not tested"


def test_eata_needs_a_summary_of_this_network() -> None:
    model, method = networks.make("cnn18"), methods.make("eata")
    with pytest.raises(MethodError, match="needs the source clients' summaries"):
        method.adapter(model, SourceInfo())
    other = method.summary(networks.make("groupnorm"), networks.batches("groupnorm"))
    with pytest.raises(MethodError, match="belongs to another network"):
        method.adapter(model, SourceInfo(summary=other))
    assert method.needs_source
    assert not methods.make("eata", fisher=0.0).needs_source


# SAR


@pytest.mark.parametrize(
    ("name", "frozen", "recovery"), [("cnn18", "bn4", 0.55), ("groupnorm", "-", 0.55), ("vit", "-", 0.85)]
)
def test_sar(name: str, frozen: str, recovery: float) -> None:
    model, batches = certain(name), stream(name, count=5)
    slow = on_batch_statistics(model)
    parameters = norm_parameters(slow, without=frozen)
    fresh = [p.detach().clone() for p in parameters]
    optimizer = torch.optim.SGD(parameters, 0.02, momentum=0.9)
    margin, mean, theirs, resets = 0.6 * math.log(networks.CLASSES), None, [], 0
    for x in batches:
        theirs.append(slow(x))
        first = entropy(theirs[-1])
        reliable = [i for i in range(len(x)) if first[i] < margin]
        if not reliable:
            continue
        gradients = torch.autograd.grad(first[reliable].mean(), parameters)
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        here = [p.detach().clone() for p in parameters]
        for p, g in zip(parameters, gradients, strict=True):
            p.data += 0.1 * g / (norm + 1e-12)
        second = entropy(slow(x))
        still = [i for i in reliable if second[i] < margin]
        if still:
            optimizer.zero_grad()
            second[still].mean().backward()
        for p, old in zip(parameters, here, strict=True):
            p.data = old
        if still:
            optimizer.step()
            value = second[still].mean().item()
            mean = value if mean is None else 0.9 * mean + 0.1 * value
            if mean < recovery:
                resets, mean = resets + 1, None
                optimizer = torch.optim.SGD(parameters, 0.02, momentum=0.9)
                for p, old in zip(parameters, fresh, strict=True):
                    p.data = old.clone()
    assert 0 < resets < 5, "the recovery was not tested"
    method = methods.make("sar", lr=0.02, rho=0.1, margin=0.6, recovery=recovery)
    assert_same(answers(method, model, batches), theirs)


def test_sar_leaves_out_the_top_as_its_authors_do() -> None:
    from ttpfl.methods.sar import lower_affine_parameters

    resnet = lower_affine_parameters(ttpfl.models.resnet18(10))
    assert {name.split(".")[0] for name in resnet} == {"bn1", "layer1", "layer2", "layer3"}
    layer = nn.TransformerEncoderLayer(8, 2, 8)
    vit = nn.Module()
    vit.blocks, vit.norm = nn.Sequential(*(copy.deepcopy(layer) for _ in range(12))), nn.LayerNorm(8)
    assert {name.split(".")[1] for name in lower_affine_parameters(vit)} == {str(i) for i in range(9)}


# Surgical


@pytest.mark.parametrize(("name", "blocks"), [("cnn18", 5), ("groupnorm", 3)])
def test_surgical(name: str, blocks: int) -> None:
    model, batches = certain(name), stream(name)
    clients = [networks.batches(name, size=30, seed=5), networks.batches(name, count=2, size=30, seed=6)]
    method = methods.make("surgical", lr=5.0)

    def adapted(x: Tensor, block: str) -> Tensor:
        slow = copy.deepcopy(model)
        names = [
            spec.name
            for spec in ttpfl.core.network.describe(model)
            if spec.block == block and not spec.statistic
        ]
        parameters = [p for n, p in slow.named_parameters() if n in names]
        for p, g in zip(parameters, torch.autograd.grad(entropy(slow(x)).mean(), parameters), strict=True):
            p.data -= 5.0 * g
        return slow(x)

    hits = {
        block: sum(int((adapted(x, block).argmax(1) == y).sum()) for client in clients for x, y in client)
        for block in dict.fromkeys(spec.block for spec in ttpfl.core.network.describe(model))
    }
    summary = methods.add(method.summary(model, client) for client in clients)
    assert {block: int(count) for block, count in summary.items()} == hits
    assert len(hits) == blocks
    assert len(set(hits.values())) > 1
    best = max(hits, key=lambda block: hits[block])
    theirs = [adapted(x, best) for x in batches]
    assert_same(answers(method, model, batches, summary=summary), theirs)
    assert_same(answers(methods.make("surgical", lr=5.0, block=best), model, batches), theirs)


def test_surgical_names_the_blocks() -> None:
    model = networks.make("cnn18")
    with pytest.raises(
        MethodError,
        match=r"unknown block 'layer1' of the network.* Available: conv1, conv2, conv3, linear4, linear5",
    ):
        methods.make("surgical", block="layer1").adapter(model, SourceInfo())
    with pytest.raises(MethodError, match="needs the source clients' summaries"):
        methods.make("surgical").adapter(model, SourceInfo())
    assert not methods.make("surgical", block="conv1").needs_source
