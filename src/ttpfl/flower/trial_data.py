"""Data for the sites of a trial federation: the source clients of a data set."""

import numpy as np

from ttpfl.data import federate
from ttpfl.flower.folder import Federation


def fill(federation: Federation, name: str) -> None:
    """Give every site all images of one source client, as `data/source/<site>.npz`."""
    count = len(federation.sites)
    population = federate(name, source_clients=max(30, count), target_clients=10).population
    for site, client in zip(federation.sites, population.source, strict=False):
        images = np.concatenate([client.take(client.train_ids), client.take(client.validation_ids)])
        labels = np.concatenate([client.train_labels, client.validation_labels])
        np.savez(federation.site(site) / "data" / "source" / f"{site}.npz", x=images, y=labels)
