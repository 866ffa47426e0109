"""Cost of each test-time method and budget as defined in `ttpfl.evaluation.cost`: one thread, its CPU time.

    python benchmarks/method_costs.py [--network resnet18] [--methods NAMES]

Methods are interleaved batch by batch, so that a busy machine affects all of them equally. Each row is the
median over batches. "Late" is the second half of the stream, where methods that grow with the stream cost
more. The rows of budgets are online personalizers whose rates are all those that the budget allows.
"""

import argparse
import time
from statistics import median

import torch

import ttpfl
from ttpfl import methods
from ttpfl.core.levels import level_within
from ttpfl.core.torch_overrides import channels_last
from ttpfl.evaluation.cost import plain_seconds
from ttpfl.methods import SourceInfo

LIMITS = {"tent": 3.5, "memo": 16 * 4.5}
LIMITS |= dict.fromkeys(("t3a", "em", "em-online", "bbse", "bbse-online", "lame"), 1.2)
LIMITS |= dict.fromkeys(("atp-batch", "atp-online", "atp-params", "atp-stats"), 4.0)
RATES = {"all": None, "params": "params", "stats": "stats"}
BUDGETS = (1.1, 2, 3, 4)
LIMITS |= {f"budget {budget:g}": budget for budget in BUDGETS}
NETWORKS = {"cnn": ttpfl.models.shallow_cnn, "resnet18": ttpfl.models.resnet18}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--network", choices=NETWORKS, default="cnn")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--methods", nargs="*", default=[name for name in methods.names() if name != "memo"])
    options = parser.parse_args()
    names, count = options.methods, options.batches

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = NETWORKS[options.network](10).eval()
    stream = [channels_last(batch) for batch in torch.randn(count, 20, 3, 32, 32)]
    source = [(x, torch.randint(10, (20,))) for x in stream[:10]]
    rates = {kind: ttpfl.Rates.zeros(model, only=only) for kind, only in RATES.items()}
    for learned in rates.values():
        learned.values += 0.01
    adapter: dict[str, methods.Adapter | ttpfl.Personalizer] = {}
    for name in names:
        method = methods.make(name)
        summary = methods.add([method.summary(model, source)])
        adapter[name] = method.adapter(model, SourceInfo(summary, rates))
    for budget in BUDGETS:
        allowed = ttpfl.Rates.zeros(model, "tensor", level_within(budget), "log", prior=[0.1] * 10)
        allowed.values += 0.01
        adapter[f"budget {budget:g}"] = ttpfl.Personalizer(model, allowed, "online")
    for adapt in adapter.values():
        adapt(stream[0])  # warm up: the first pass probes the model
        adapt.reset()

    times: dict[str, list[float]] = {name: [] for name in adapter}
    for batch in stream:
        for name, adapt in adapter.items():
            times[name].append(seconds(adapt, batch) / plain_seconds(model, [batch], time.thread_time))
    print(f"{'method':12} {'cost':>7} {'late':>7} {'limit':>7}")
    for name, ratios in times.items():
        limit = LIMITS.get(name, "")
        print(f"{name:12} {median(ratios):7.2f} {median(ratios[count // 2 :]):7.2f} {limit:>7}")


def seconds(adapter: methods.Adapter | ttpfl.Personalizer, batch: torch.Tensor) -> float:
    start = time.thread_time()
    adapter(batch)
    return time.thread_time() - start


if __name__ == "__main__":
    main()
