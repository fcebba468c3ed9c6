#!/usr/bin/env bash
# The tests: makes an environment where needed and runs pytest with what is passed on, for example `--slow` for all of them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../examples/environment.sh"
cd "$ROOT"
exec python3 -m pytest "$@"
