# Sourced by the scripts here: a virtual environment in .venv with this package and the requested extras.
unset CDPATH
root=$(cd "$(dirname "$0")/.." && pwd)
# Keep compiled modules and tests, whatever the environment says: a run starts Python several hundred times.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$root/.venv/pycache"
say() { echo "$(basename "$0"): $*" >&2; }

usage() {
    echo "usage: $0 $*" >&2
    exit 2
}

as_root_on_debian() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_install() {
    say "installing $*"
    apt-get update >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >/dev/null
}

create_venv() {
    python=${PYTHON:-python3}
    if ! command -v "$python" >/dev/null; then
        [ -z "${PYTHON:-}" ] || { say "PYTHON=$PYTHON is not a command; set it to Python 3.10 or newer, or unset it"; exit 1; }
        as_root_on_debian || { say "python3 (3.10 or newer) is missing; install it"; exit 1; }
        apt_install python3 python3-venv
    fi
    is_new_enough "$python" || { say "$python is older than 3.10; set PYTHON to a newer one"; exit 1; }
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        as_root_on_debian || { say "python3-venv is missing; install it"; exit 1; }
        apt_install python3-venv
    fi
    [ ! -e "$venv/bin" ] || say "the Python of .venv does not start; making .venv anew"
    rm -rf "$venv"
    "$python" -m venv "$venv"
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; }

prepare_python() { # extras, such as [test]
    venv="$root/.venv"
    "$venv/bin/python" -c '' 2>/dev/null || create_venv
    is_new_enough "$venv/bin/python" || { say "the Python of .venv is older than 3.10; remove .venv"; exit 1; }
    # What decides what pip installs, and where the package then is. pip needs the network even if there is nothing to install.
    state=$(
        cd "$root"
        "$venv/bin/python" -c 'import os, sys; print(os.getcwd(), sys.version)'
        cat setup.cfg setup.py pyproject.toml hbasemk/__init__.py
    )
    [ "$(cat "$venv/installed$1" 2>/dev/null)" != "$state" ] || return 0
    if ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
        "$venv/bin/python" -m ensurepip >/dev/null || { say ".venv has no pip, and ensurepip fails; install pip into it"; exit 1; }
    fi
    "$venv/bin/python" -m pip install -q --disable-pip-version-check -e "$root$1"
    printf '%s\n' "$state" >"$venv/installed$1"
}

# Test processes to run side by side: one for each core, two that mostly wait for HBase, and one that mostly waits for
# processes it started. Each needs some 0.5 GiB; HBase and its gateways need 2 GiB.
processes() {
    "$root/.venv/bin/python" -c '
import os
cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
print(max(1, min(cores + 3, 8, int((gib - 2.5) / 0.75))))'
}
