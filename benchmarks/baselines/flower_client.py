"""The client of `flower_baseline.py`, in a separate module so that Ray's processes import it once."""

from functools import cache
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from safetensors.torch import load_file
from torch import nn

from workload import Workload, averaged_state, train_epoch

app = ClientApp()


@cache
def resident(workload: Workload) -> nn.Module:
    """The single network of this process. Flower's guides rebuild it for each client, which costs more."""
    torch.set_num_threads(1)
    return workload.network()


@app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    workload = Workload(config["model"], config["clients"], config["samples"], config["double"])
    data = load_file(Path(config["folder"], f"{context.node_config['partition-id']}.safetensors"))
    network = resident(workload)
    network.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=False)
    train_epoch(network, data["images"], data["labels"], workload.learning_rate)
    reply = RecordDict(
        {
            "arrays": ArrayRecord(averaged_state(network)),
            "metrics": MetricRecord({"num-examples": len(data["labels"])}),
        }
    )
    return Message(content=reply, reply_to=message)
