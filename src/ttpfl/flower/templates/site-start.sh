#!/usr/bin/env bash
# Connect the site "$site" to the federation "$name".
set -euo pipefail
cd "$$(dirname "$${BASH_SOURCE[0]}")"
export FLWR_HOME="$$PWD/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
exec ttpfl flower join "$$PWD" --superlink $quoted_address
