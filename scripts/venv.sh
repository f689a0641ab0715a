#!/bin/sh
# Makes .venv with the pinned dependencies. Says what is missing where it cannot help itself.
set -eu

works() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

look() {
    for candidate in ${PYTHON:-} python3.13 python3.12 python3.11 python3; do
        if works "$candidate"; then
            found=$candidate
            return 0
        fi
    done
    return 1
}

if ! .venv/bin/python -c '' 2>/dev/null; then
    if ! look && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo 'installing python3 python3-venv …' >&2
        apt-get update -qq || true
        DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends python3 python3-venv >/dev/null
    fi
    if ! look; then
        echo 'No Python 3.11 or newer with venv was found. On Debian or Ubuntu: apt-get install python3 python3-venv' >&2
        echo 'Elsewhere install Python >= 3.11, or name one: make PYTHON=/path/to/python3 …' >&2
        exit 1
    fi
    rm -rf .venv
    "$found" -m venv .venv
fi

echo 'installing the pinned dependencies …'
.venv/bin/pip install -qq --disable-pip-version-check --require-hashes --requirement requirements.lock
.venv/bin/pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
touch .venv/.ready
