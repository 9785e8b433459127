#!/bin/bash
# administrator [FOLDER]: executes the commands on standard input (Administrator.java), by the configuration in FOLDER: that of
# the cluster, or /opt/hbase/conf for the standalone HBase. It executes all, and exits with 1 if one of them failed.
home=/opt/hbase
exec "${HBASEMK_JAVA:-java}" "@$home/conf/jvm.options" -Xmx64m -Dhbasemk.data=/data -Dhbasemk.zookeeper.port=2181 \
    "-Dhbasemk.host=$(hostname)" -cp "${1:-$home/cluster}:$home/conf:$home/classes:$home/lib/*" Administrator
