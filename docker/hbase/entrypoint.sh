#!/bin/bash
# Runs a standalone HBase with its Thrift1 and Thrift2 gateways, logs to standard output, and ends when any of the
# three ends by itself. `gateway stop` and `gateway start` (see gateway.sh) take the Thrift2 gateway away and bring it back.
#
# HBASEMK_HBASE: folder with lib/, conf/ and classes/       HBASEMK_DATA: folder for data
# HBASEMK_RUN: folder for pid files and flags               HBASEMK_BIND: address of the gateways
set -u
home=${HBASEMK_HBASE:-/opt/hbase}
data=${HBASEMK_DATA:-/data}
run=${HBASEMK_RUN:-/run/hbasemk}
bind=${HBASEMK_BIND:-0.0.0.0}
thrift1=${HBASEMK_THRIFT1_PORT:-9090}
thrift2=${HBASEMK_THRIFT2_PORT:-9091}
zookeeper=${HBASEMK_ZOOKEEPER_PORT:-2181}
java=${HBASEMK_JAVA:-java}

mkdir -p "$data" "$run"
rm -f "$run"/*
pids=()

run_java() { # heap in MB, then class and arguments
    local heap=$1
    shift
    exec "$java" "@$home/conf/jvm.options" "-Xmx${heap}m" "-Dhbasemk.data=$data" "-Dhbasemk.zookeeper.port=$zookeeper" \
        -cp "$home/conf:$home/classes:$home/lib/*" "$@"
}
start_thrift1() { (run_java 256 org.apache.hadoop.hbase.thrift.ThriftServer start -p "$thrift1" -b "$bind" --infoport -1) & pids[1]=$!; }
start_thrift2() {
    (run_java 256 org.apache.hadoop.hbase.thrift2.ThriftServer start -p "$thrift2" -b "$bind" --infoport -1) &
    pids[2]=$!
    echo "${pids[2]}" >"$run/thrift2.pid"
}
finish() {
    trap - TERM INT
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
    for _ in $(seq 50); do
        alive=0
        for pid in "${pids[@]}"; do kill -0 "$pid" 2>/dev/null && alive=1; done
        [ "$alive" = 0 ] && break
        sleep 0.1
    done
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
    exit "$1"
}
trap 'finish 0' TERM INT

(run_java "${HBASEMK_MASTER_HEAP:-1536}" org.apache.hadoop.hbase.master.HMaster start) &
pids[0]=$!
start_thrift1
start_thrift2
( (run_java 128 Ready 300) && touch "$run/ready") &
ready=$!

while true; do
    kill -0 "${pids[0]}" 2>/dev/null || { echo "hbasemk: HBase ended"; finish 1; }
    kill -0 "${pids[1]}" 2>/dev/null || { echo "hbasemk: the Thrift1 gateway ended"; finish 1; }
    if ! kill -0 "${pids[2]}" 2>/dev/null && [ ! -e "$run/thrift2.stopped" ]; then
        if [ -e "$run/thrift2.restart" ]; then
            rm -f "$run/thrift2.restart"
            start_thrift2
        else
            echo "hbasemk: the Thrift2 gateway ended"
            finish 1
        fi
    fi
    if [ -n "$ready" ] && ! kill -0 "$ready" 2>/dev/null; then
        [ -e "$run/ready" ] || { echo "hbasemk: no table could be created"; finish 1; }
        echo "hbasemk: ready"
        ready=
    fi
    sleep 0.2 &
    wait $!
done
