#!/usr/bin/env bash
# Installs edgeperf on a board as a service, or removes it; see --help.
#
# Running it again with the same source changes nothing; with a newer source it upgrades.
# What it puts outside its own prefix is listed in uninstall_service(), in service/system.sh.
set -euo pipefail
umask 022
# Two tries are enough to tell a bad network from none.
export PIP_RETRIES=${PIP_RETRIES:-2}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly all_backends="tflite onnxruntime openvino"
# The three runtimes, numpy and the rest take 700 MB unpacked on aarch64.
readonly needed_mb=1000

# shellcheck source=install-checks.sh
. "$here/install-checks.sh"
readonly service=$here/service
# shellcheck source=service/system.sh
. "$service/system.sh"

root=""
prefix=/opt/edgeperf
environment=""
wheelhouse=""
index=""
backends=$all_backends
python=""
with_service=yes
with_coordinator=no
with_tuner=yes
action=install
keep_data=no
workdir=""
changed=no
made=()
# Where pip takes packages from; empty is its own choice.
source=()

usage() {
    cat <<'TEXT'
Usage: sudo deploy/install.sh [OPTION...]

Installs edgeperf into a virtual environment of its own, with the runtimes that exist for
this board, udev rules for meters, a system user, and a systemd service.

  --wheelhouse DIR    take every package from DIR and none from the network
                      (make one with deploy/build-wheelhouse)
  --index URL         take every package from an index, as a coordinator serves one:
                      https://DESK:8484/simple/
  --ca FILE           with --index: the authority that its certificate is from
  --backends LIST     comma-separated: tflite,onnxruntime,openvino (default), or none
  --coordinator       install the coordinator and its service as well
  --no-service        no user, no udev rules, no service: only the command
  --no-tuner          no root service that holds clocks, governor and fan for a run
  --python PATH       Python to use, 3.10 or newer (default: the system's)
  --prefix DIR        where to install (default: /opt/edgeperf)
  --root DIR          install below DIR instead of /, touching nothing outside it
  --uninstall         remove everything, results and identity of the board included
  --keep-data         with --uninstall: keep /etc/edgeperf and /var/lib/edgeperf
  -h, --help          show this

Exit status: 0 done, 2 wrong option, 3 this board or its system does not fit.
TEXT
}

say() { printf '%s\n' "$*"; }

die() { # STATUS MESSAGE
    printf 'install.sh: %s\n' "$2" >&2
    exit "$1"
}

finish() {
    remember_folders
    rm -rf -- "$workdir"
}

# --- options ---------------------------------------------------------------------------

parse_options() {
    while [ $# -gt 0 ]; do
        case $1 in
            --wheelhouse | --index | --ca | --backends | --python | --prefix | --root)
                [ $# -ge 2 ] || die 2 "$1 needs a value; see --help"
                set_option "$1" "$2"
                shift
                ;;
            --coordinator) with_coordinator=yes ;;
            --no-service) with_service=no ;;
            --no-tuner) with_tuner=no ;;
            --uninstall) action=uninstall ;;
            --keep-data) keep_data=yes ;;
            -h | --help)
                usage
                exit 0
                ;;
            *) die 2 "unknown option $1; see --help" ;;
        esac
        shift
    done
}

set_option() { # NAME VALUE
    case $1 in
        --wheelhouse)
            [ -d "$2" ] || die 2 "--wheelhouse $2: no such folder; make one with deploy/build-wheelhouse"
            wheelhouse=$(cd "$2" && pwd)
            ;;
        --index)
            case $2 in
                http://?* | https://?*) index=$2 ;;
                *) die 2 "--index $2: give a URL, such as https://DESK:8484/simple/" ;;
            esac
            ;;
        --ca)
            [ -r "$2" ] || die 2 "--ca $2: no such file"
            PIP_CERT=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
            export PIP_CERT
            # pip would believe these before it.
            unset REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
            ;;
        --backends) backends=$(chosen_backends "$2") ;;
        --python) python=$2 ;;
        --prefix)
            case $2 in
                /?*) prefix=${2%/} ;;
                *) die 2 "--prefix $2: give a path from the root, such as /opt/edgeperf" ;;
            esac
            ;;
        --root)
            [ -d "$2" ] || die 2 "--root $2: no such folder"
            root=$(cd "$2" && pwd)
            ;;
    esac
}

chosen_backends() { # LIST
    local name
    [ "$1" != none ] || return 0
    for name in ${1//,/ }; do
        case " $all_backends " in
            *" $name "*) printf '%s ' "$name" ;;
            *) die 2 "--backends: no backend $name; known: ${all_backends// /, }, none" ;;
        esac
    done
}

choose_source() {
    [ -z "$wheelhouse" ] || [ -z "$index" ] || die 2 "--wheelhouse or --index, not both"
    if [ -n "$wheelhouse" ]; then
        source=(--no-index --find-links "$wheelhouse")
    elif [ -n "$index" ]; then
        # An empty variable overrides what a configuration file adds: nothing comes from elsewhere.
        export PIP_EXTRA_INDEX_URL="" PIP_FIND_LINKS=""
        source=(--index-url "$index" --only-binary :all:)
    fi
}

# --- the command -------------------------------------------------------------------------

install_command() {
    local venv wheel wanted stamp
    make_dir "$(dest "$prefix")"
    venv=$(dest "$prefix")/venv
    stamp=$(dest "$prefix")/installed
    # A dead one is left behind when the distribution moves to another Python.
    "$venv/bin/python" -c '' 2>/dev/null || "$python" -m venv --clear "$venv"
    wheel=$(our_wheel "$venv")
    wanted="$(sha256sum "$wheel" | cut -d ' ' -f 1) coordinator=$with_coordinator"
    if [ "$wanted" != "$(cat "$stamp" 2>/dev/null)" ]; then
        say "installing $(basename "$wheel") into $prefix/venv; this takes a minute, or three to compile LoadGen"
        rm -f -- "$stamp"
        install_wheel "$venv" "$wheel"
        printf '%s\n' "$wanted" >"$stamp"
        changed=yes
    fi
    install_backends "$venv" "$wheel"
    make_dir "$(dest /usr/local/bin)"
    link "$prefix/venv/bin/edgeperf" "$(dest /usr/local/bin/edgeperf)"
}

install_wheel() { # VENV WHEEL
    local extras=""
    [ "$with_coordinator" = no ] || extras="[coordinator]"
    # The second one is for a wheel with new content and an old version number.
    { pip_install "$1" "$2$extras" && pip_install "$1" --force-reinstall --no-deps "$2"; } ||
        die 3 "cannot install edgeperf: $(pip_problem)"
    "$1/bin/edgeperf" --version >/dev/null || die 3 "edgeperf was installed but does not start"
}

# The wheel of a wheelhouse, or one built from the checkout that this script lies in.
our_wheel() { # VENV
    local found copy=$workdir/source
    if [ -n "$wheelhouse" ]; then
        found=$(find "$wheelhouse" -maxdepth 1 -name 'edgeperf-*.whl' | sort -V | tail -n 1)
        [ -n "$found" ] || die 3 "$wheelhouse has no edgeperf wheel; make it anew with deploy/build-wheelhouse"
        printf '%s' "$found"
        return
    fi
    if [ -n "$index" ]; then
        "$1/bin/python" -m pip download --quiet --no-deps --disable-pip-version-check "${source[@]}" \
            --dest "$workdir/wheel" edgeperf >"$workdir/pip.log" 2>&1 ||
            die 3 "cannot get edgeperf from $index: $(pip_problem)"
        find "$workdir/wheel" -name 'edgeperf-*.whl'
        return
    fi
    [ -e "$here/../pyproject.toml" ] ||
        die 3 "neither a wheelhouse nor a checkout of edgeperf here; use --wheelhouse"
    "$here/copy-source" "$copy"
    # A fixed time, so that the same source gives the same wheel and a rerun sees that.
    SOURCE_DATE_EPOCH=1700000000 "$1/bin/python" -m pip wheel --quiet --no-deps \
        --disable-pip-version-check --wheel-dir "$workdir/wheel" "$copy" >"$workdir/pip.log" 2>&1 ||
        die 3 "cannot build edgeperf: $(pip_problem)"
    find "$workdir/wheel" -name 'edgeperf-*.whl'
}

pip_install() { # VENV ARGUMENT...
    local venv=$1
    shift
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        "${source[@]}" "$@" >"$workdir/pip.log" 2>&1
}

# The one line of pip's output that says why.
pip_problem() {
    local log=$workdir/pip.log
    if grep -q -a -E 'NewConnectionError|ConnectTimeout|Name or service not known|Temporary failure in name|Network is unreachable' "$log"; then
        printf 'no network; connect the board, or use --wheelhouse (deploy/build-wheelhouse makes one elsewhere)'
    elif grep -q -a CERTIFICATE_VERIFY_FAILED "$log"; then
        printf 'its certificate is not trusted; name its authority with --ca, and look at the clock of this board'
    else
        { grep -a -E '^ *(ERROR|error):' "$log" | grep -v subprocess-exited || tail -n 1 "$log"; } |
            tail -n 1 | sed 's/^ *//'
    fi
}

install_backends() { # VENV WHEEL
    local name package working=0
    for name in $backends; do
        package=$(package_of "$name")
        if is_installed "$1" "$package"; then
            working=$((working + 1))
        elif pip_install "$1" "$2[$name]"; then
            working=$((working + 1))
            changed=yes
            say "backend $name: installed $package"
        else
            say "backend $name: not installed: $(pip_problem)"
        fi
    done
    [ -z "$backends" ] || [ "$working" -gt 0 ] ||
        die 3 "none of the runtimes could be installed; the lines above say why"
}

package_of() { # BACKEND
    case $1 in
        tflite) printf ai-edge-litert ;;
        *) printf '%s' "$1" ;;
    esac
}

is_installed() { # VENV PACKAGE
    "$1/bin/python" -c 'import importlib.metadata as m, sys; m.version(sys.argv[1])' "$2" 2>/dev/null
}

# --- all of it -------------------------------------------------------------------------------------

remember_folders() {
    if [ ${#made[@]} -gt 0 ] && [ -d "$(dest "$prefix")" ]; then
        printf '%s\n' "${made[@]}" >>"$(dest "$prefix")/made-folders"
    fi
}

uninstall() {
    uninstall_service
    if [ "$(readlink "$(dest /usr/local/bin/edgeperf)" 2>/dev/null)" = "$prefix/venv/bin/edgeperf" ]; then
        rm -f -- "$(dest /usr/local/bin/edgeperf)"
    fi
    rm -rf -- "$(dest "$prefix")/venv"
    rm -f -- "$(dest "$prefix")/installed"
    remove_folders "$(dest "$prefix")/made-folders"
    say "edgeperf is removed$([ "$keep_data" = no ] || printf ', its data kept')"
}

main() {
    parse_options "$@"
    environment=$prefix/venv
    if [ "$action" = uninstall ]; then
        check_permission
        uninstall
        return
    fi
    check_system
    check_permission
    choose_source
    find_python
    check_space
    check_compiler
    workdir=$(mktemp -d)
    trap finish EXIT
    install_command
    if [ "$with_service" = yes ]; then install_service; fi
    say "edgeperf $("$(dest "$prefix")/venv/bin/edgeperf" --version | cut -d ' ' -f 2) is installed; next: edgeperf doctor"
    if [ "$with_service" = yes ]; then
        say "to join a fleet: sudo -u $user edgeperf agent enroll COORDINATOR --code CODE, then sudo systemctl start edgeperf-agent"
    fi
}

main "$@"
