"""The distributed store: HBase, through its Thrift2 gateway.

``gateway`` declares the interface on the wire and ``messages`` converts the contract's values. ``transport`` says how
messages travel: framing, protocol, TLS. ``wire`` is one socket, ``http_wire`` one with HTTP. ``connection`` makes calls on
it, ``handshake`` opens one and verifies the server, ``connections`` is the pool. ``failover`` chooses one of several
gateways. ``client`` makes a call and ``errors`` classifies its failure. ``tables`` creates and verifies tables, with a
``layout``; ``store`` implements the contract.
"""

from hbasemk.store.hbase.address import Address
from hbasemk.store.hbase.layout import COMPRESSIONS, Layout
from hbasemk.store.hbase.store import HBaseStore
from hbasemk.store.hbase.transport import Transport

__all__ = ["COMPRESSIONS", "Address", "HBaseStore", "Layout", "Transport"]
