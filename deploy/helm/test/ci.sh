#!/usr/bin/env bash
# What a change of the chart, its alerts and its dashboard must pass.
set -euo pipefail
cd "$(dirname "$0")"
go vet ./...
# Several at once on any machine: most of the time they wait for what takes seconds.
go test -parallel 4 ./...
