# Sourced by the scripts that run tests. Finds a Docker engine for the tests on HBase, or starts one and stops it at the end.
dockerd_pid=
stop_dockerd() {
    [ -z "$dockerd_pid" ] && return
    kill "$dockerd_pid" 2>/dev/null || true
    wait "$dockerd_pid" 2>/dev/null || true
    rm -f "$log"
}
trap stop_dockerd EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start_dockerd() {
    command -v dockerd >/dev/null && command -v iptables >/dev/null || apt_install docker.io iptables
    # The package may have started one.
    ! docker version >/dev/null 2>&1 || return 0
    # The file of an engine that was killed names another process, or none.
    grep -qsx dockerd "/proc/$(cat /var/run/docker.pid 2>/dev/null)/comm" || rm -f /var/run/docker.pid
    log=$(mktemp)
    dockerd >"$log" 2>&1 &
    dockerd_pid=$!
    for _ in $(seq 120); do
        docker version >/dev/null 2>&1 && return 0
        kill -0 "$dockerd_pid" 2>/dev/null || break
        sleep 0.5
    done
    say "dockerd did not start:"
    tail -n 5 "$log" >&2
    return 1
}

if [ -n "${HBASEMK_TEST_HBASE:-}" ]; then
    say "the tests on HBase use the one at $HBASEMK_TEST_HBASE"
elif command -v docker >/dev/null && docker version >/dev/null 2>&1; then
    say "the tests on HBase use the running Docker engine"
elif as_root_on_debian && start_dockerd; then
    say "the tests on HBase use a Docker engine that this script has installed or started"
else
    say "no Docker engine and no HBASEMK_TEST_HBASE: leaving out the tests marked 'integration'"
fi
