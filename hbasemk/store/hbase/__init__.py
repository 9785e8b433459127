"""The distributed store: HBase, through its Thrift2 gateway.

``gateway`` declares the interface on the wire and ``messages`` converts the contract's values. ``connection`` is one
socket, ``handshake`` opens one and verifies the server, ``connections`` is the pool. ``failover`` chooses one of several
gateways. ``client`` makes a call and ``errors`` classifies its failure. ``tables`` creates and verifies tables; ``store``
implements the contract.
"""

from hbasemk.store.hbase.address import Address
from hbasemk.store.hbase.store import HBaseStore

__all__ = ["Address", "HBaseStore"]
