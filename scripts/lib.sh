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

# skip REASON: ends the script with 77: nothing was shown here, which is neither passed nor failed.
skip() {
    say "NOT SHOWN: $1" >&2
    exit 77
}

# need PROGRAM PACKAGE...: programs and the packages of Debian and Ubuntu that bring them; installs what is missing where
# that is possible without asking, and skips where it is not.
need() {
    local missing=() packages=() as_root=() log
    while (($#)); do
        command -v "$1" >/dev/null || { missing+=("$1"); packages+=("$2"); }
        shift 2
    done
    ((${#missing[@]})) || return 0
    if ((EUID != 0)); then as_root=(sudo -n); fi
    if command -v apt-get >/dev/null && ${as_root[@]+"${as_root[@]}"} true 2>/dev/null; then
        local install=(timeout 300 ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive
            apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o DPkg::Lock::Timeout=60)
        log=$(mktemp)
        say "installing ${packages[*]}"
        "${install[@]}" install -y --no-install-recommends "${packages[@]}" >"$log" 2>&1 ||
            { "${install[@]}" update && "${install[@]}" install -y --no-install-recommends "${packages[@]}"; } \
                >>"$log" 2>&1 || tail -3 "$log" >&2
        rm -f "$log"
    fi
    local program
    for program in "${missing[@]}"; do
        command -v "$program" >/dev/null || skip "$program is not installed (Debian and Ubuntu: apt-get install ${packages[*]})"
    done
}
