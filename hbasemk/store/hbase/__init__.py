"""The distributed store: HBase, through its Thrift2 gateway."""

from hbasemk.store.hbase.store import HBaseStore

__all__ = ["HBaseStore"]
