"""What users would pick instead of hbasemk, each as a :class:`~benchmarks.system.System`.

Measured with ZODB 6.4, BTrees 6.5, persistent 6.9, RelStorage 4.3, ZEO 6.2 and happybase 1.3 (thriftpy2 0.7); an import of a
module here fails where its package is missing, and the registry tells so.

The settings, and why they are fair:

- **Durability.** A commit is on disk when its call returns, in all of them: FileStorage calls fsync in every commit (its
  default, the server of ZEO included); RelStorage gets ``synchronous=FULL`` for SQLite, as hbasemk's deciding write does,
  since its own ``NORMAL`` may lose acknowledged commits in a power cut. On HBase everybody's write is in the log of the
  region server (SYNC_WAL, the table's default).
- **History.** RelStorage keeps history (its default), FileStorage always does: all peers can read the past, as hbasemk can.
- **Layout** (``objects.py``). One persistent object a node and a BTree of children: a node is one record, a folder of any
  length pages by key, siblings added at once are merged by BTrees instead of conflicting.
- **Caches.** 200,000 objects a connection, so that warm reads are warm. RelStorage's and ZEO's own caches of records keep
  their default sizes (10 and 20 MB); ``forget`` empties them as well, so that a cold read reaches the file or the server.
- **Transactions.** A connection is always inside a transaction and begins the next one after a commit, so that reading costs
  no call for it. Subtrees are prefetched, which ZEO and RelStorage turn into batches.
- **Conflicts** and whatever else ZODB calls transient are done again at once, on what the other has left.

``literal.py`` is another kind of peer: the microkernel on HBase as it was published, so that what hbasemk does differently
shows as a factor. It runs twice. Through Thrift2, like hbasemk, nothing but the algorithm differs: that is the factor to
quote. Through Thrift1, by happybase, as a user of 2013's interface has it, all versions of a row are one call each
(``literal_cells.py``); where the place under test is a Thrift2 gateway, the environment variable ``HBASEMK_BENCH_THRIFT1``
names the Thrift1 one as ``host:port``.
"""
