# Sourced by quickstart.sh and tests/run.sh: an environment that has the plug-in and what it needs.
# Keeps the one that is active where it has them; otherwise makes .venv in the repository, once (about 7 GB).
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

has_plugin() {
    "$1" - "$ROOT" <<'PYTHON' 2>/dev/null
import importlib.metadata, pathlib, sys
importlib.metadata.distribution("swift-plugin-turn")
importlib.metadata.version("ms-swift"), importlib.metadata.version("pytest")
import swift_plugin
assert pathlib.Path(swift_plugin.__file__).parents[1] == pathlib.Path(sys.argv[1])
PYTHON
}

if ! (cd / && has_plugin python3); then
    VENV=${VENV:-$ROOT/.venv}
    if ! (cd / && has_plugin "$VENV/bin/python"); then
        echo "making the environment $VENV"
        python3 -m venv "$VENV"
        "$VENV/bin/python" -m pip install -q --upgrade pip setuptools
        "$VENV/bin/python" -m pip install -q -c "$ROOT/tests/constraints.txt" -e "$ROOT[test,deepspeed]"
    fi
    source "$VENV/bin/activate"
fi
