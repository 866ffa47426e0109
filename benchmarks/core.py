"""Speed and memory of the core, as ratios measured in one run on one thread.

    python benchmarks/core.py [--repetitions 20] [--soak BATCHES]

Compares the core with (a) the plain model, as defined in `ttpfl.evaluation.cost`, and (b) a direct
transcription of the algorithm (`transcription.py`), after checking that both give the same results. The
measurements are interleaved, so that a noisy machine affects all of them equally.
"""

import argparse
import copy
import gc
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import transcription
import ttpfl
from ttpfl.core.torch_overrides import channels_last
from ttpfl.evaluation.evaluator import plain

BATCH, CLASSES = 20, 10


def median_times(jobs: dict[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """Median seconds of each job, interleaved."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(repetitions + 2):
        for name, job in jobs.items():
            begin = time.perf_counter()
            job()
            if turn >= 2:  # two warm-up rounds
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in times.items()}


def trained_a_little(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> nn.Module:
    """Take a few training steps, so that statistics and gradients differ from a fresh network's."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model.train()(x), y).backward()
        optimizer.step()
    return model.eval()


def random_rates(model: nn.Module, scale: float = 0.02) -> ttpfl.Rates:
    rates = ttpfl.Rates.zeros(model)
    rates.values += scale * torch.randn(len(rates.names), generator=torch.Generator().manual_seed(1))
    return rates


def check_same(model: nn.Module, rates: ttpfl.Rates, batches: list[tuple[Tensor, Tensor]]) -> None:
    """Check in float64 that the transcription and the library agree.

    In float32 both deviate from the exact result, by up to 1e-3 for a deep network.
    """
    model = copy.deepcopy(model).double()
    batches = [(x.double(), y) for x, y in batches]
    rates = rates.with_values(rates.values.double())
    start = dict(zip(rates.names, rates.values.tolist(), strict=True))
    direct = transcription.refine(transcription.with_statistics(model), start, batches, 0.1)
    ours = ttpfl.refine_rates(model, rates, batches, lr=0.1).values - rates.values
    theirs = torch.tensor([direct[name] - start[name] for name in rates.names], dtype=torch.float64)
    error = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    x = batches[0][0]
    logits = transcription.predict(transcription.with_statistics(model), start, x)
    shift = ((ttpfl.Personalizer(model, rates)(x) - logits).abs().max() / logits.abs().max()).item()
    print(f"  difference from the transcription in float64: rates {error:.1e}, logits {shift:.1e}")
    assert max(error, shift) < 1e-9


def measure(name: str, model: nn.Module, repetitions: int) -> None:
    print(f"{name}, {sum(p.numel() for p in model.parameters()):,} parameters, batch size {BATCH}")
    generator = torch.Generator().manual_seed(0)
    batches = [
        (
            torch.randn(BATCH, 3, 32, 32, generator=generator),
            torch.randint(CLASSES, (BATCH,), generator=generator),
        )
        for _ in range(4)
    ]
    model = trained_a_little(model, batches)
    rates = random_rates(model)
    check_same(model, rates, batches)
    x = channels_last(batches[0][0])  # as in the definition of cost
    batch_mode, online = ttpfl.Personalizer(model, rates), ttpfl.Personalizer(model, rates, "online")
    alone = plain(model)
    times = median_times(
        {"plain": lambda: alone(x), "batch": lambda: batch_mode(x), "online": lambda: online(x)}, repetitions
    )
    for mode, limit in (("batch", 4.0), ("online", 4.4)):
        ratio = times[mode] / times["plain"]
        verdict = "ok" if ratio <= limit else "MISSED"
        print(f"  cost of a Personalizer, {mode:6} {ratio:5.2f} (at most {limit}: {verdict})")

    twin = transcription.with_statistics(model)
    start = dict(zip(rates.names, rates.values.tolist(), strict=True))
    cache = ttpfl.DirectionCache(2**30)
    jobs: dict[str, Callable[[], object]] = {
        "refine": lambda: ttpfl.refine_rates(model, rates, batches, lr=0.1),
        "cached": lambda: ttpfl.refine_rates(model, rates, batches, lr=0.1, cache=cache),
    }
    goals = {
        "refine": {"shallow CNN": 1.5, "ResNet-18": 2.0},
        "cached": {"shallow CNN": 4.0, "ResNet-18": 3.0},
    }
    for name_of_job, job in jobs.items():
        direct: Callable[[], object] = lambda: transcription.refine(twin, start, batches, 0.1)  # noqa: E731
        times = median_times({"direct": direct, "ours": job}, repetitions)
        ratio, goal = times["direct"] / times["ours"], goals[name_of_job][name]
        verdict = f"at least {goal}: {'ok' if ratio >= goal else 'MISSED'}"
        print(f"  refine_rates {name_of_job:6} {ratio:5.2f}x the transcription's speed ({verdict})")


def peak_memory(mode: str) -> None:
    """In a child process, measure a personalizer's peak memory, as a multiple of the model's size."""
    torch.set_num_threads(1)
    model = ttpfl.models.resnet50(CLASSES).eval()
    size = sum(t.nbytes for t in model.state_dict().values())
    x = torch.randn(2, 3, 32, 32)
    rates = random_rates(model, 1e-4)
    with torch.no_grad():
        model(x)
    gc.collect()
    before = reset_peak()
    personal = ttpfl.Personalizer(model, rates, mode)
    for _ in range(5):
        personal(x)
    used = (peak_bytes() - before) / size
    print(f"  {mode:6} {used:.2f}x the model's size (ResNet-50, 2 small images; at most 3)")


def reset_peak() -> int:
    """Reset the process's peak memory and return its current memory."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return peak_bytes()


def peak_bytes() -> int:
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def soak(batches: int) -> None:
    """Compare the memory of the last tenth of a stream with that of the first tenth after warming up.

    The smallest value of each tenth, since the allocator keeps and returns up to one per cent at any time.
    """
    model = ttpfl.models.shallow_cnn(CLASSES).eval()
    personal = ttpfl.Personalizer(model, random_rates(model), "online", decay=0.99)
    generator = torch.Generator().manual_seed(0)
    resident = []
    for _ in range(batches):
        personal(torch.randn(BATCH, 3, 32, 32, generator=generator))
        resident.append(resident_bytes())
    tenth, warm = batches // 10, batches // 20
    early, late = min(resident[warm : warm + tenth]), min(resident[-tenth:])
    print(
        f"soak: {batches} batches, {early / 2**20:.0f} -> {late / 2**20:.0f} MiB, "
        f"drift {late / early - 1:+.2%}"
    )
    assert late / early < 1.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--soak", type=int, default=0, metavar="BATCHES", help="20000 for the full soak")
    parser.add_argument("--memory-of", choices=["batch", "online"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if args.memory_of:
        return peak_memory(args.memory_of)
    if args.soak:
        return soak(args.soak)
    measure("shallow CNN", ttpfl.models.shallow_cnn(CLASSES), args.repetitions)
    measure("ResNet-18", ttpfl.models.resnet18(CLASSES), args.repetitions)
    print("memory of a Personalizer besides the model")
    for mode in ("batch", "online"):
        subprocess.run([sys.executable, __file__, "--memory-of", mode], check=True)


if __name__ == "__main__":
    main()
