"""A site whose Flower process is a reply behind, in a real federation."""

from pathlib import Path

import pytest

from tests.helpers.flower.in_process import largest_difference
from tests.helpers.flower.real_federation import audit, federation_of_digits, history, learn_over, local_rates
from ttpfl.core.rates import Rates

# What south's Flower process meets when a run is stopped while it fetches a message: here the third, its
# first task with a model. It goes on as if there had been no message, but the work on it is under way.
INTERRUPTED = """
import sys

if "join" in sys.argv and any("sites/south" in word for word in sys.argv):
    from flwr.supercore.run import RunNotRunningException
    from flwr.supernode import fleet_http_connection as connection

    confirmation, messages = connection.make_confirm_message_received_fn_protobuf, []

    def interrupted(*given):
        messages.append(given)
        if len(messages) == 3:
            raise RunNotRunningException
        return confirmation(*given)

    connection.make_confirm_message_received_fn_protobuf = interrupted
"""


@pytest.mark.slow
def test_a_site_that_is_a_reply_behind_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with federation_of_digits(tmp_path / "trial") as federation:
        done = learn_over(federation, tmp_path / "run", "--rounds", "2")
        assert done.returncode == 0, done.stderr
        assert [record["failed"] for record in history(tmp_path / "run")] == [[], []]
        assert "Ignoring message" in (federation.site("south") / "log.txt").read_text()
        assert any(entry["type"] == "query.nudge" for entry in audit(federation, "south"))
        found, local = Rates.load(tmp_path / "run" / "rates.safetensors"), local_rates(federation, rounds=2)
        assert largest_difference(found.values, local.values) < 1e-6
