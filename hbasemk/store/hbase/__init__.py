"""The distributed store: HBase, through its Thrift2 gateway.

``gateway`` is the interface on the wire and ``messages`` the contract's values in its terms; ``connection`` is one
socket, ``greeting`` finds out who answers at its other end, ``connections`` keeps some; ``client`` makes a call and
``trouble`` says what a failed one means; ``tables`` creates and verifies tables, ``store`` is the contract on top.
"""

from hbasemk.store.hbase.store import HBaseStore

__all__ = ["HBaseStore"]
