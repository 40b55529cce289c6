# shellcheck shell=bash
# Part of userland and booted: what both need to tell and to compare.
#
# shellcheck disable=SC2154 # program, root and deploy are theirs

began_s=$SECONDS
summary=()

step() { printf '== %4d s  %s\n' $((SECONDS - began_s)) "$*"; }

fail() {
    printf '%s: %s\n' "$program" "$*" >&2
    exit 1
}

# Nothing was proved, and nothing is wrong.
skip() {
    printf '%s: skipped: %s\n' "$program" "$*"
    exit 0
}

may_make_systems() { # or skips: a container's root is refused some of this
    local place problem
    place=$(mktemp -d)
    # Some make the file, and nobody may open it.
    if ! (mknod "$place/null" c 1 3 && : >"$place/null") 2>/dev/null; then
        rm -rf -- "$place"
        skip "may not make devices here, as in a container; run it on a machine of its own"
    fi
    rm -rf -- "$place"
    problem=$(unshare --mount --pid --ipc --uts --cgroup --fork mount -t "$1" none /mnt 2>&1) ||
        skip "cannot mount $1 in a name space: $problem"
}

note() { # WHAT FOUND: a line of the summary
    summary+=("$(printf '%-26s %s' "$1" "$2")")
    printf '%s\n' "${summary[-1]}"
}

sum_up() { # TITLE
    printf '\n%s, %d s\n' "$1" $((SECONDS - began_s))
    printf '%s\n' "${summary[@]}"
}

# Everything below the root but what Python, useradd and the system itself write meanwhile.
listing() {
    (
        cd "$root" || fail "$root is gone"
        find . -xdev \( -path ./mnt -o -path ./tmp -o -path ./root -o -path ./proc -o -path ./sys -o -path ./dev \
            -o -path ./run -o -path './var/log' -o -path './var/lib/systemd' -o -path './var/lib/private' \
            -o -path './var/tmp' -o -name __pycache__ -o -path './etc/*-' \) -prune -o \
            -printf '%p %y %m %U:%G %l %T@ ' \( -type f -exec sha256sum {} \; -o -printf '\n' \) |
            sed 's/ \.\/.*$//' | sort
    )
}

names() { cut -d ' ' -f 1; }

same() { # WHAT BEFORE AFTER
    [ "$2" = "$3" ] || fail "$1:
$(diff <(printf '%s\n' "$2") <(printf '%s\n' "$3") | head -n 20)"
}

# This checkout's edgeperf, outside.
edgeperf() { PYTHONSAFEPATH=1 PYTHONPATH=$deploy/package "${PYTHON:-python3}" -m edgeperf "$@"; }

json() { # EXPRESSION: on the document `d` from standard input
    python3 -c "import json, sys; d = json.load(sys.stdin); print($1)"
}

wait_for() { # WHAT COMMAND...
    local what=$1
    shift
    for _ in $(seq 300); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    fail "waited for: $what"
}
