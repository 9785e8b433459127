#!/bin/bash
# gateway stop: kills the Thrift2 gateway as a crash would, and keeps it away.   gateway start: brings it back.
set -eu
run=${HBASEMK_RUN:-/run/hbasemk}
case "${1:-}" in
stop)
    [ ! -e "$run/thrift2.stopped" ] || { echo "gateway: the gateway is stopped already" >&2; exit 0; }
    touch "$run/thrift2.stopped"
    kill -9 "$(cat "$run/thrift2.pid")"
    ;;
start)
    [ -e "$run/thrift2.stopped" ] || { echo "gateway: the gateway is not stopped" >&2; exit 0; }
    touch "$run/thrift2.restart"
    rm -f "$run/thrift2.stopped"
    ;;
*)
    echo "usage: gateway stop|start" >&2
    exit 2
    ;;
esac
