import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ttpfl.util.allocator import set_apart

GROWTH = """
import torch, ttpfl
from ttpfl.core.inputs import client_batches
from ttpfl.core.learning import refine
from ttpfl.core.twin import Twin

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

torch.set_num_threads(1)
torch.manual_seed(0)
model, cache = ttpfl.models.shallow_cnn(10), ttpfl.DirectionCache(2**30)
rates = ttpfl.Rates.zeros(model)
twin = Twin(model, rates.modules)

def turn():
    batches = client_batches((torch.randn(40, 3, 32, 32), torch.zeros(40, dtype=torch.long)), 20)
    refine(twin, rates, batches, 0.1, "batch", cache)

for _ in range(5):
    turn()
memory, kept = resident(), cache.bytes
for _ in range(120):
    turn()
print((resident() - memory) / (cache.bytes - kept))
"""


def test_copies_have_values_and_strides_of_their_own() -> None:
    torch.manual_seed(0)
    images = torch.randn(8, 16, 20, 20).contiguous(memory_format=torch.channels_last)
    originals = [images, torch.tensor(3.0), torch.empty(0, 5), torch.randn(7, 9, dtype=torch.float64).t()]
    copies = set_apart(originals)
    for original, copy in zip(originals, copies, strict=True):
        assert torch.equal(original, copy)
        assert copy.stride() == original.stride()
        assert copy.dtype == original.dtype
    assert len({copy.untyped_storage().data_ptr() for copy in copies}) == 1
    images.zero_()
    assert copies[0].any()
    assert copies[1] == 3


def test_every_second_value_of_a_tensor_takes_no_more_room_than_it_has_values() -> None:
    [copy] = set_apart([torch.arange(100_000.0)[::2]])
    assert torch.equal(copy, torch.arange(0, 100_000.0, 2))
    assert copy.stride() == (1,)


def test_small_ones_stay_where_they_are() -> None:
    tensor = torch.ones(3)
    assert set_apart([tensor])[0] is tensor


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_a_cache_takes_the_memory_that_it_says() -> None:
    """Not several times as much, as directions in the gaps between activations would."""
    done = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1.4
