# Sourced by the scripts here: a virtual environment in .venv with this package and the requested extras.
root=$(cd "$(dirname "$0")/.." && pwd)
say() { echo "$(basename "$0"): $*" >&2; }

as_root_on_debian() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_install() {
    say "installing $*"
    apt-get update >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >/dev/null
}

prepare_python() { # extras, such as [test]
    python=${PYTHON:-python3}
    if ! command -v "$python" >/dev/null; then
        as_root_on_debian || { say "python3 (3.10 or newer) is missing; install it"; exit 1; }
        apt_install python3 python3-venv
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { say "$python is older than 3.10"; exit 1; }
    if ! "$root/.venv/bin/python" -c 'import pip' 2>/dev/null; then
        rm -rf "$root/.venv"
        if ! "$python" -c 'import ensurepip' 2>/dev/null; then
            as_root_on_debian || { say "python3-venv is missing; install it"; exit 1; }
            apt_install python3-venv
        fi
        "$python" -m venv "$root/.venv"
    fi
    "$root/.venv/bin/python" -m pip install -q --disable-pip-version-check -e "$root$1"
}

# Test processes to run side by side: one for each core, and one that mostly waits for HBase.
processes() {
    cores=$("$root/.venv/bin/python" -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())')
    [ "$cores" -lt 4 ] && echo $((cores + 1)) || echo 4
}
