# shellcheck shell=bash
# Part of install.sh and of setup: what lies outside edgeperf's own environment (users, udev
# rules, units), and taking all of it away again.
#
# shellcheck disable=SC2154,SC2034 # options and variables are those of the two scripts

readonly user=edgeperf
readonly coordinator_user=edgeperf-coordinator
# Groups that own meters, the firmware's mailbox, sensors and accelerators; what a
# distribution does not have is left out.
readonly device_groups="dialout video render i2c gpio plugdev"
readonly all_units=(edgeperf-agent.service edgeperf-coordinator.service edgeperf-tuner.socket
    edgeperf-tuner.service)

dest() { printf '%s%s' "$root" "$1"; }

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

# Copies a file of ours, with the environment put in; says by its status whether it changed.
put_file() { # SOURCE PATH
    local text
    make_dir "$(dirname "$2")"
    text=$(sed "s|/opt/edgeperf/venv|$environment|g" "$1")
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
    make_dir "$(dest /var/cache)"
    make_dir "$(dest /var/cache/edgeperf)" 0755 "$user"
    [ -e "$(dest /etc/edgeperf/board.toml)" ] || put_file "$service/board.toml" "$(dest /etc/edgeperf/board.toml)"
    if put_file "$service/70-edgeperf.rules" "$(dest /etc/udev/rules.d/70-edgeperf.rules)"; then
        reload_udev
    fi
    if [ "$with_tuner" = yes ]; then
        install_unit edgeperf-tuner.service
        install_unit edgeperf-tuner.socket sockets.target
    fi
    install_unit edgeperf-agent.service multi-user.target
    if [ "$with_coordinator" = yes ]; then
        install_user "$coordinator_user" /var/lib/edgeperf-coordinator "edgeperf coordinator"
        make_dir "$(dest /var/lib/edgeperf-coordinator)" 0700 "$coordinator_user"
        install_unit edgeperf-coordinator.service multi-user.target
    fi
}

install_unit() { # UNIT [TARGET]
    local wants
    if [ -z "$root" ] && [ ! -d /run/systemd/system ]; then
        # A socket has no such line: what it would start is told with that.
        sed -n "s|/opt/edgeperf/venv|$environment|g; s|^ExecStart=|no systemd here, so no $1; start it by other means: |p" "$service/$1"
        return
    fi
    if put_file "$service/$1" "$(dest "/etc/systemd/system/$1")"; then changed=yes; fi
    if [ $# -ge 2 ]; then
        wants=$(dest "/etc/systemd/system/$2.wants")
        make_dir "$wants"
        link "/etc/systemd/system/$1" "$wants/$1"
    fi
    [ -z "$root" ] || return 0
    systemctl daemon-reload
    if [ $# -lt 2 ]; then return; fi
    # Nothing new must not end the run that is on its way.
    if [ "$changed" = yes ]; then systemctl restart "$1"; else systemctl start "$1"; fi 2>/dev/null ||
        die 3 "$1 does not start; journalctl -u $1 says why"
}

reload_udev() {
    if [ -z "$root" ] && command -v udevadm >/dev/null; then
        udevadm control --reload 2>/dev/null || true
        udevadm trigger --subsystem-match=tty --subsystem-match=usb 2>/dev/null || true
    fi
}

uninstall_service() {
    local unit
    for unit in "${all_units[@]}"; do
        if [ -z "$root" ] && [ -d /run/systemd/system ] && [ -e "/etc/systemd/system/$unit" ]; then
            systemctl --quiet disable --now "$unit" || true
        fi
        rm -f -- "$(dest "/etc/systemd/system/multi-user.target.wants/$unit")" \
            "$(dest "/etc/systemd/system/sockets.target.wants/$unit")" \
            "$(dest "/etc/systemd/system/$unit")"
    done
    if [ -z "$root" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
    rm -f -- "$(dest /etc/udev/rules.d/70-edgeperf.rules)"
    reload_udev
    # The tuner keeps this folder over its own end, on purpose.
    rm -rf -- "$(dest /run/edgeperf-tuner)"
    rm -rf -- "$(dest /var/cache/edgeperf)" "$(dest /var/cache/edgeperf-coordinator)"
    if [ "$keep_data" = no ]; then
        rm -rf -- "$(dest /etc/edgeperf)" "$(dest /var/lib/edgeperf)" "$(dest /var/lib/edgeperf-coordinator)"
        remove_user "$user"
        remove_user "$coordinator_user"
    fi
}

# Folders that were made, last first, as far as nothing is in them.
remove_folders() { # LIST
    local place
    mapfile -t made < <(tac "$1" 2>/dev/null)
    rm -f -- "$1"
    for place in "${made[@]}"; do
        [ ! -d "$(dest "$place")" ] || rmdir --ignore-fail-on-non-empty -- "$(dest "$place")"
    done
    made=()
}

remove_user() { # NAME
    local prefix_option=()
    [ -z "$root" ] || prefix_option=(--prefix "$root")
    if [ "$(id -u)" -eq 0 ] && grep -q "^$1:" "$(dest /etc/passwd)" 2>/dev/null; then
        userdel "${prefix_option[@]}" "$1" >/dev/null 2>&1 || true
    fi
}
