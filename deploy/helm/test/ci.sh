#!/usr/bin/env bash
# What a change of the chart, its alerts and its dashboard must pass.
set -euo pipefail
cd "$(dirname "$0")"
go vet ./...
# Most of what is tested lies outside of the module, where the cache of results does not see it change. Several at once on
# any machine, for most of the time they wait for what takes seconds.
go test -count=1 -parallel 4 ./...
