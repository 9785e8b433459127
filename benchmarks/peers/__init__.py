"""The peers: systems that users would choose instead of hbasemk, each as a :class:`~benchmarks.system.System`.

The published figures come from ZODB 6.4, BTrees 6.5, persistent 6.9, RelStorage 4.3, ZEO 6.2 and happybase 1.3 (thriftpy2 0.7).
The import of a module fails if its package is missing; the registry then reports the package.

The settings, and why they are fair:

- **Durability.** In all of them a commit is on disk when its call returns. FileStorage calls fsync in every commit (its default),
  also in the server of ZEO. RelStorage uses ``synchronous=FULL`` for SQLite, as hbasemk does for the deciding write; its default
  ``NORMAL`` may lose acknowledged commits in a power cut. On HBase every write is in the region server's log (SYNC_WAL, the
  default of a table).
- **History.** RelStorage keeps history (its default), and FileStorage always does. All peers can read old states, as hbasemk can.
- **Layout** (``objects.py``). One persistent object for each node, with a BTree of children. A node is one record, a folder of
  any length has pages by key, and BTrees merge siblings that processes add concurrently.
- **Caches.** 200,000 objects for each connection, so that warm reads are warm. The record caches of RelStorage and ZEO have their
  default sizes (10 and 20 MB). ``clear_caches`` clears them too, so that a cold read reaches the file or the server.
- **Transactions.** A connection is always inside a transaction and begins the next one after a commit, so that a read costs no
  call for it. Subtree reads prefetch, which ZEO and RelStorage turn into batches.
- **Conflicts** and all other errors that ZODB calls transient are retried at once, on the newest state.

``published_2013.py`` is another kind of peer: the microkernel on HBase as published, so that hbasemk's changes show as a factor.
It runs twice. Through Thrift2, like hbasemk, only the algorithm differs; this is the factor to quote. Through Thrift1 with
happybase, the interface of 2013, one call returns all versions of only one row (``published_2013_cells.py``). If the place under
test is a Thrift2 gateway, the environment variable ``HBASEMK_BENCH_THRIFT1`` names the Thrift1 gateway as ``host:port``.
"""
