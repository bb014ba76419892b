# Shared by the scripts beside it: where the checkout is, which environment they use, how they speak.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# The environment: QANAT_VENV if set, else the active one, else .venv in the checkout. Conda's base is everybody's:
# it does not count as active.
conda=${CONDA_PREFIX:-}
[[ ${CONDA_DEFAULT_ENV:-base} != base ]] || conda=
venv=${QANAT_VENV:-${VIRTUAL_ENV:-${conda:-$root/.venv}}}
[[ $venv == /* ]] || venv=$PWD/$venv

say() { printf '%s\n' "$*"; }

# report NAME STATE REMARK: one line of a list of checks.
report() { printf '  %-9s %-8s %s\n' "$1" "$2" "$3"; }

# fail MESSAGE...: says what is wrong and what to do, one line each, and ends the script.
fail() {
    printf 'error: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '       %s\n' "$line" >&2; done
    exit 1
}
