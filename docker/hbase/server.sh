#!/bin/bash
# server ROLE: runs one server of a cluster: zookeeper, namenode, datanode, master, regionserver or gateway. It waits for the
# servers that it needs, so they may start in any order. HBASEMK_HEAP is the heap in MB.
set -eu
home=/opt/hbase
role=${1:-}
# HDFS looks for the folders of its web pages, which are not part of its jars.
mkdir -p /data /run/hbasemk "$home/cluster/webapps/hdfs" "$home/cluster/webapps/datanode"

await() { # host, port
    until (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; do sleep 0.5; done
}
run() { # class and arguments
    exec "${HBASEMK_JAVA:-java}" "@$home/conf/jvm.options" "-Xmx${HBASEMK_HEAP:-256}m" "-Dhbasemk.host=$(hostname)" \
        -cp "$home/cluster:$home/conf:$home/classes:$home/lib/*" "$@"
}

case $role in
zookeeper)
    run org.apache.hadoop.hbase.zookeeper.HQuorumPeer start
    ;;
namenode)
    [ -e /data/name/current/VERSION ] || (run org.apache.hadoop.hdfs.server.namenode.NameNode -format -nonInteractive)
    run org.apache.hadoop.hdfs.server.namenode.NameNode
    ;;
datanode)
    await namenode 8020
    run org.apache.hadoop.hdfs.server.datanode.DataNode
    ;;
master)
    await zookeeper 2181
    await datanode 50010
    run ShiftedClock org.apache.hadoop.hbase.master.HMaster start
    ;;
regionserver)
    await zookeeper 2181
    await datanode 50010
    run ShiftedClock org.apache.hadoop.hbase.regionserver.HRegionServer start
    ;;
gateway)
    await zookeeper 2181
    run org.apache.hadoop.hbase.thrift2.ThriftServer start -p 9091 -b 0.0.0.0 --infoport -1
    ;;
*)
    echo "server: ROLE must be zookeeper, namenode, datanode, master, regionserver or gateway, got '$role'" >&2
    exit 2
    ;;
esac
