#!/usr/bin/env bash
# Connects the site "$site" to the federation "$name". Give another port if 9094 is taken on this machine.
set -euo pipefail
cd "$$(dirname "$${BASH_SOURCE[0]}")"
export FLWR_HOME="$$PWD/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.3
exec flower-supernode \
    --superlink $host:$port \
    --root-certificates "$$PWD/ca.crt" \
    --auth-supernode-private-key "$$PWD/key" \
    --node-config "site=\"$$PWD/site.toml\"" \
    --host 127.0.0.1 --port "$${TTPFL_PORT:-9094}"
