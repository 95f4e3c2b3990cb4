#!/usr/bin/env bash
# Kubernetes takes minutes to build, once: the tests in the folder above do it when they are run.
set -euo pipefail
echo 'left to: make kubetest'
