# shellcheck shell=bash
# Part of install.sh: does this board fit? Every check ends it with one line that says what
# is missing and the way round, before anything was touched.
#
# shellcheck disable=SC2154 # the options are install.sh's

check_system() {
    [ "$(uname -s)" = Linux ] || die 3 "$(uname -s) is not Linux; use a 64-bit Linux"
    local arch
    arch=$(uname -m)
    case $arch in
        aarch64 | x86_64) ;;
        arm* | i?86) die 3 "$arch is 32-bit and no runtime is made for it; install a 64-bit OS" ;;
        *) die 3 "$arch: the runtimes have no packages for it; use aarch64 or x86_64" ;;
    esac
    [ "$(getconf LONG_BIT)" = 64 ] ||
        die 3 "a 32-bit system on a 64-bit kernel; install the 64-bit OS image"
    local libc
    libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) ||
        die 3 "no glibc here, and the runtimes' packages need it; use Debian, Ubuntu or a container of one"
    version_at_least "${libc#glibc }" 2.27 ||
        die 3 "$libc is too old for every runtime (2.27 is needed); use a newer OS release"
}

version_at_least() { # VERSION LEAST
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

find_python() {
    local candidate
    if [ -n "$python" ]; then
        fits_python "$python" || die 3 "--python $python: not a Python of 3.10 or newer"
    else
        for candidate in python3 python3.13 python3.12 python3.11 python3.10; do
            if fits_python "$candidate"; then
                python=$candidate
                break
            fi
        done
        [ -n "$python" ] ||
            die 3 "no Python of 3.10 or newer here; use a newer OS release, or name one with --python"
    fi
    python=$("$python" -c 'import sys; print(sys.executable)')
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die 3 "$python cannot make virtual environments; sudo apt install python3-venv"
}

fits_python() { # COMMAND
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10) or sys.maxsize < 2**32)' 2>/dev/null
}

check_permission() {
    local place
    if [ -z "$root" ] && [ "$(id -u)" -ne 0 ]; then
        die 3 "needs root to install; run it with sudo, or try it with --root DIR"
    fi
    place=$(nearest "$(dest "$prefix")")
    [ -w "$place" ] ||
        die 3 "$place cannot be written to (a read-only root?); remount it, switch the overlay file system off, or use --prefix"
}

check_space() {
    local place free_mb
    place=$(nearest "$(dest "$prefix")")
    free_mb=$(df -Pm "$place" | awk 'NR == 2 { print $4 }')
    [ "$free_mb" -ge "$needed_mb" ] ||
        die 3 "$free_mb MB free at $place and $needed_mb MB are needed; make room or use --prefix on another disk"
}

nearest() { # PATH -> the nearest folder above it that exists
    local place=$1
    while [ ! -e "$place" ]; do place=$(dirname "$place"); done
    printf '%s' "$place"
}

# LoadGen is published with ready-made wheels for x86-64 and Python up to 3.13 only.
check_compiler() {
    local headers
    # What an index has is pip's to find out.
    [ -z "$index" ] || return 0
    ! has_wheel mlcommons_loadgen || return 0
    [ -z "$wheelhouse" ] ||
        die 3 "$wheelhouse has no LoadGen wheel; make it anew with deploy/build-wheelhouse"
    if [ "$(uname -m)" = x86_64 ] && "$python" -c 'import sys; sys.exit(sys.version_info >= (3, 14))'; then
        return 0
    fi
    [ ! -x "$(dest "$prefix")/venv/bin/edgeperf" ] || return 0
    headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    { command -v g++ >/dev/null && [ -e "$headers/Python.h" ]; } ||
        die 3 "LoadGen has to be compiled here and there is no compiler; sudo apt install g++ python3-dev, or use --wheelhouse"
}

has_wheel() { # NAME
    [ -n "$wheelhouse" ] && compgen -G "$wheelhouse/$1-*.whl" >/dev/null
}
