#!/usr/bin/env bash
# Start the server of the federation "$name". Sites connect to $address.
set -euo pipefail
cd "$$(dirname "$${BASH_SOURCE[0]}")"
export FLWR_HOME="$$PWD/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
exec ttpfl flower serve "$$PWD/.."
