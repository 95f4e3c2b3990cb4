#!/usr/bin/env bash
# What a change must pass in this module: its tests, and the whole benchmark in its small form, so that it cannot rot.
set -euo pipefail
cd "$(dirname "$0")"
go vet ./...
go test ./...
go run . --small
