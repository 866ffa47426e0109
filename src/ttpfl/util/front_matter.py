"""The metadata at the top of a README, which model hubs read."""

import re
from collections.abc import Mapping

NAME = re.compile(r"[A-Za-z0-9][\w./-]*")
"""What licences and repositories are called; needs no quotes in YAML."""


def front_matter(fields: Mapping[str, str | None]) -> str:
    """Metadata in YAML, with the name and tags of this library; fields that are None are left out.

    >>> print(front_matter({"license": "apache-2.0", "base_model": None}))
    ---
    library_name: ttpfl
    tags: [federated-learning, test-time-adaptation]
    license: apache-2.0
    ---
    """
    lines = ["library_name: ttpfl", "tags: [federated-learning, test-time-adaptation]"]
    for field, value in fields.items():
        if value is None:
            continue
        if not NAME.fullmatch(value):
            raise ValueError(f"{field}={value!r}: use letters, digits and the signs . _ - /")
        lines.append(f"{field}: {value}")
    return "\n".join(["---", *lines, "---"])
