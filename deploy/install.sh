#!/usr/bin/env bash
# Installs edgeperf on a board as a service, or removes it; see --help.
#
# Running it again with the same source changes nothing; with a newer source it upgrades.
# Everything it puts outside its own prefix is listed in uninstall(), below.
set -euo pipefail
umask 022
# Two tries are enough to tell a bad network from none.
export PIP_RETRIES=${PIP_RETRIES:-2}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly user=edgeperf
readonly coordinator_user=edgeperf-coordinator
readonly all_backends="tflite onnxruntime openvino"
# Groups that own meters, the firmware's mailbox, sensors and accelerators; what a
# distribution does not have is left out.
readonly device_groups="dialout video render i2c gpio plugdev"
# The three runtimes, numpy and the rest take 700 MB unpacked on aarch64.
readonly needed_mb=1000

root=""
prefix=/opt/edgeperf
wheelhouse=""
backends=$all_backends
python=""
with_service=yes
with_coordinator=no
action=install
keep_data=no
workdir=""
changed=no
made=()

usage() {
    cat <<'TEXT'
Usage: sudo deploy/install.sh [OPTION...]

Installs edgeperf into a virtual environment of its own, with the runtimes that exist for
this board, udev rules for meters, a system user, and a systemd service.

  --wheelhouse DIR    take every package from DIR and none from the network
                      (make one with deploy/build-wheelhouse)
  --backends LIST     comma-separated: tflite,onnxruntime,openvino (default), or none
  --coordinator       install the coordinator and its service as well
  --no-service        no user, no udev rules, no service: only the command
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

dest() { printf '%s%s' "$root" "$1"; }

finish() {
    remember_folders
    rm -rf -- "$workdir"
}

# --- options ---------------------------------------------------------------------------

parse_options() {
    while [ $# -gt 0 ]; do
        case $1 in
            --wheelhouse | --backends | --python | --prefix | --root)
                [ $# -ge 2 ] || die 2 "$1 needs a value; see --help"
                set_option "$1" "$2"
                shift
                ;;
            --coordinator) with_coordinator=yes ;;
            --no-service) with_service=no ;;
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

# --- does this board fit? ---------------------------------------------------------------

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
    local source=()
    [ -z "$wheelhouse" ] || source=(--no-index --find-links "$wheelhouse")
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        "${source[@]}" "$@" >"$workdir/pip.log" 2>&1
}

# The one line of pip's output that says why.
pip_problem() {
    local log=$workdir/pip.log
    if grep -q -a -E 'NewConnectionError|ConnectTimeout|Name or service not known|Temporary failure in name|Network is unreachable' "$log"; then
        printf 'no network; connect the board, or use --wheelhouse (deploy/build-wheelhouse makes one elsewhere)'
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

# --- files, users, service -----------------------------------------------------------------

# Folders that had to be made are noted, so that uninstall can take them away again.
make_dir() { # PATH [MODE [OWNER]]
    local place=$1
    if [ ! -d "$place" ]; then
        make_dir "$(dirname "$place")"
        mkdir -- "$place"
        made+=("${place#"$root"}")
    fi
    if [ $# -ge 2 ]; then chmod "$2" "$place"; fi
    if [ $# -ge 3 ] && [ "$(id -u)" -eq 0 ]; then
        chown "$(owner_ids "$3")" "$place"
    fi
}

owner_ids() { # USER -> UID:GID, as the system below --root has them
    awk -F : -v user="$1" '$1 == user { print $3 ":" $4 }' "$(dest /etc/passwd)"
}

link() { # TARGET LINK
    [ "$(readlink "$2" 2>/dev/null)" = "$1" ] || ln -sfn -- "$1" "$2"
}

# Copies a file of ours, with the prefix put in; says by its status whether it changed.
put_file() { # SOURCE PATH
    local text
    make_dir "$(dirname "$2")"
    text=$(sed "s|/opt/edgeperf|$prefix|g" "$1")
    [ "$text" != "$(cat "$2" 2>/dev/null)" ] || return 1
    printf '%s\n' "$text" >"$2"
    chmod 0644 "$2"
}

install_user() { # NAME HOME COMMENT
    local prefix_option=()
    if ! grep -q "^$1:" "$(dest /etc/passwd)"; then
        [ -z "$root" ] || prefix_option=(--prefix "$root")
        useradd "${prefix_option[@]}" --system --user-group --no-create-home --home-dir "$2" \
            --shell /usr/sbin/nologin --comment "$3" "$1"
    fi
}

join_groups() { # USER
    local group prefix_option=()
    [ -z "$root" ] || prefix_option=(--prefix "$root")
    for group in $device_groups; do
        if grep -q "^$group:" "$(dest /etc/group)" &&
            ! grep -E -q "^$group:[^:]*:[^:]*:(.*,)?$1(,|\$)" "$(dest /etc/group)"; then
            usermod "${prefix_option[@]}" --append --groups "$group" "$1"
        fi
    done
}

install_service() {
    if [ "$(id -u)" -ne 0 ]; then
        say "not root: user, udev rules and service are left out"
        return
    fi
    install_user "$user" /var/lib/edgeperf "edgeperf agent"
    join_groups "$user"
    make_dir "$(dest /var/lib)"
    make_dir "$(dest /var/lib/edgeperf)" 0700 "$user"
    [ -e "$(dest /etc/edgeperf/board.toml)" ] || put_file "$here/board.toml" "$(dest /etc/edgeperf/board.toml)"
    if put_file "$here/udev/70-edgeperf.rules" "$(dest /etc/udev/rules.d/70-edgeperf.rules)"; then
        reload_udev
    fi
    install_unit edgeperf-agent.service
    if [ "$with_coordinator" = yes ]; then
        install_user "$coordinator_user" /var/lib/edgeperf-coordinator "edgeperf coordinator"
        make_dir "$(dest /var/lib/edgeperf-coordinator)" 0700 "$coordinator_user"
        install_unit edgeperf-coordinator.service
    fi
}

install_unit() { # UNIT
    if [ -z "$root" ] && [ ! -d /run/systemd/system ]; then
        say "no systemd here, so no $1; its ExecStart line says what to start instead"
        return
    fi
    if put_file "$here/systemd/$1" "$(dest "/etc/systemd/system/$1")"; then changed=yes; fi
    make_dir "$(dest /etc/systemd/system/multi-user.target.wants)"
    link "/etc/systemd/system/$1" "$(dest "/etc/systemd/system/multi-user.target.wants/$1")"
    [ -z "$root" ] || return 0
    systemctl daemon-reload
    # Nothing new must not end the run that is on its way.
    if [ "$changed" = yes ]; then systemctl restart "$1"; else systemctl start "$1"; fi
}

reload_udev() {
    if [ -z "$root" ] && command -v udevadm >/dev/null; then
        udevadm control --reload || true
        udevadm trigger --subsystem-match=tty --subsystem-match=usb || true
    fi
}

# --- removing ----------------------------------------------------------------------------------

uninstall() {
    local unit place
    for unit in edgeperf-agent.service edgeperf-coordinator.service; do
        if [ -z "$root" ] && [ -d /run/systemd/system ] && [ -e "/etc/systemd/system/$unit" ]; then
            systemctl --quiet disable --now "$unit" || true
        fi
        rm -f -- "$(dest "/etc/systemd/system/multi-user.target.wants/$unit")" \
            "$(dest "/etc/systemd/system/$unit")"
    done
    if [ -z "$root" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
    rm -f -- "$(dest /etc/udev/rules.d/70-edgeperf.rules)"
    reload_udev
    if [ "$(readlink "$(dest /usr/local/bin/edgeperf)" 2>/dev/null)" = "$prefix/venv/bin/edgeperf" ]; then
        rm -f -- "$(dest /usr/local/bin/edgeperf)"
    fi
    rm -rf -- "$(dest /var/cache/edgeperf)" "$(dest /var/cache/edgeperf-coordinator)"
    if [ "$keep_data" = no ]; then
        rm -rf -- "$(dest /etc/edgeperf)" "$(dest /var/lib/edgeperf)" "$(dest /var/lib/edgeperf-coordinator)"
        remove_user "$user"
        remove_user "$coordinator_user"
    fi
    mapfile -t made < <(tac "$(dest "$prefix")/made-folders" 2>/dev/null)
    rm -rf -- "$(dest "$prefix")/venv"
    rm -f -- "$(dest "$prefix")/installed" "$(dest "$prefix")/made-folders"
    for place in "${made[@]}"; do
        [ ! -d "$(dest "$place")" ] || rmdir --ignore-fail-on-non-empty -- "$(dest "$place")"
    done
    say "edgeperf is removed$([ "$keep_data" = no ] || printf ', its data kept')"
}

remove_user() { # NAME
    local prefix_option=()
    [ -z "$root" ] || prefix_option=(--prefix "$root")
    if [ "$(id -u)" -eq 0 ] && grep -q "^$1:" "$(dest /etc/passwd)" 2>/dev/null; then
        userdel "${prefix_option[@]}" "$1" >/dev/null 2>&1 || true
    fi
}

# --- all of it -------------------------------------------------------------------------------------

remember_folders() {
    if [ ${#made[@]} -gt 0 ] && [ -d "$(dest "$prefix")" ]; then
        printf '%s\n' "${made[@]}" >>"$(dest "$prefix")/made-folders"
    fi
}

main() {
    parse_options "$@"
    if [ "$action" = uninstall ]; then
        check_permission
        uninstall
        return
    fi
    check_system
    check_permission
    find_python
    check_space
    check_compiler
    workdir=$(mktemp -d)
    trap finish EXIT
    install_command
    if [ "$with_service" = yes ]; then install_service; fi
    say "edgeperf $("$(dest "$prefix")/venv/bin/edgeperf" --version | cut -d ' ' -f 2) is installed; next: edgeperf doctor"
    if [ "$with_service" = yes ]; then
        say "to join a fleet: sudo -u $user edgeperf agent enroll COORDINATOR, then sudo systemctl start edgeperf-agent"
    fi
}

main "$@"
