#!/usr/bin/env bash
# Starts the server of the federation "$name". Sites connect to $host:$port.
set -euo pipefail
cd "$$(dirname "$${BASH_SOURCE[0]}")"
export FLWR_HOME="$$PWD/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.3
exec flower-superlink \
    --host $bind --port $port \
    --ssl-ca-certfile "$$PWD/../certificates/ca.crt" \
    --ssl-certfile "$$PWD/../certificates/server.crt" \
    --ssl-keyfile "$$PWD/../certificates/server.key" \
    --enable-supernode-auth \
    --database "$$PWD/state.db" \
    --disable-runtime-dependency-installation
