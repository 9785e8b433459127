#!/bin/bash
# health: ends with 0 when a table could be created at start and both gateways now answer a question that HBase itself has
# to answer: the names of the tables (Thrift1), the list of namespaces (Thrift2).
# health ROLE: ends with 0 when this server of a cluster works (see server.sh). ZooKeeper knows which ones are alive.
set -u
run=${HBASEMK_RUN:-/run/hbasemk}

ask() { # port, method: one call without arguments in the Thrift binary protocol; a reply starts 80 01 00 02
    local name=$2 length answer
    length=$(printf '%02x' ${#name})
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf "\\x80\\x01\\x00\\x01\\x00\\x00\\x00\\x${length}${name}\\x00\\x00\\x00\\x01\\x00" >&3
    answer=$(timeout 5 head -c 4 <&3 | od -An -tx1 | tr -d ' \n')
    exec 3>&-
    [ "$answer" = 80010002 ]
}
ask_zookeeper() { # a word of four letters; prints the answer
    exec 3<>/dev/tcp/zookeeper/2181 || return 1
    printf '%s' "$1" >&3
    timeout 5 cat <&3
}
listens() { (exec 3<>"/dev/tcp/$(hostname)/$1") 2>/dev/null; }

case ${1:-} in
'') [ -e "$run/ready" ] && ask "${HBASEMK_THRIFT1_PORT:-9090}" getTableNames && ask "${HBASEMK_THRIFT2_PORT:-9091}" listNamespaceDescriptors ;;
zookeeper) [ "$(ask_zookeeper ruok)" = imok ] ;;
namenode) listens 8020 ;;
datanode) listens 50010 ;;
master) listens 16000 && ask_zookeeper dump | grep -q /hbase/master ;;
regionserver) ask_zookeeper dump | grep -q "/hbase/rs/$(hostname)," ;;
gateway) ask 9091 listNamespaceDescriptors ;;
*) echo "health: unknown ROLE '$1'" >&2 && exit 2 ;;
esac
