"""The kernel: the protocol of ``docs/protocol.md``, without threads, clocks or randomness of its own.

This is the table of contents. Sections and invariants (I1 to I16) are those of ``docs/protocol.md``.

======= ========================= ============================================== =============
section topic                     module                                         invariant
======= ========================= ============================================== =============
1       tables, columns, values   ``hbasemk.format``
1       settings, creation        ``settings``, ``upgrade``,
                                  ``arrival_numbering``, ``log_upgrade``
1       application's schema      ``schema_version``, ``schema_change``
1       blobs                     ``blobs``
2       machine id, lease         ``ids.lease``, ``ids.leases``,                 I1
                                  ``ids.damaged_lease``
2       revision ids, clocks      ``ids.clock``, ``ids.server_clock``            I1
3       views, sequence           ``journal.view``, ``journal.sequence``,        I5
                                  ``journal.known_revisions``, ``journal.pins``
3       contents of views         ``journal.journal``                            I5
3       extents, resume tokens    ``hbasemk.format``, ``journal.resume_token``   I5
3       snapshots by time         ``time_travel``
3       checkpoints               ``checkpoints``, ``journal.notices``,          I5
                                  ``journal.checkpoint_cells``
3       reads in a view           ``reading.visible_cells``, ``reading.reader``, I6, I11
                                  ``reading.walk``
3       node cache                ``reading.cache``, ``reading.memory_sizes``    I5
3       changed lists             ``reading.changed_lists``                      I5
3       child counts              ``reading.child_count``                        I11
3       hashes of subtrees        ``reading.subtree_hashes``,                    I5
                                  ``reading.child_groups``
3       kept walks                ``reading.kept_walks``                         I5
3       last changes of subtrees  ``reading.last_changes``                       I5
3       differences, log, feeds   ``diff``, ``log``, ``subtree_revisions``,      I3
                                  ``feed``
4       operations, change sets   ``commit.operations``, ``commit.staging``,     I12
                                  ``commit.staged_node``, ``commit.change_set``
4       sources of changes        ``commit.change_source``
4       changed numbers           ``commit.numbers``, ``commit.slots``,          I4
                                  ``commit.folds``
4       conflicts                 ``commit.read_set``, ``commit.read_back``      I4
4       changes without effect    ``commit.noop``                                I4
4       one attempt               ``commit.attempt``, ``commit.draft``,          I4, I7
                                  ``commit.preparation``, ``commit.new_row``,
                                  ``commit.writing``, ``commit.deadline``,
                                  ``commit.context``, ``commit.statistics``
4       sole writers (HBase)      ``commit.sole_rows``, ``commit.stage``         I4
4       one transaction (SQLite)  ``commit.one_transaction``                     I4, I7
4       retries after conflicts   ``commit.committer``                           I10
4       turns under contention    ``commit.turns``, ``commit.hot_columns``,     I10
                                  ``journal.contention``
4       outcomes                  ``journal.outcomes``                           I6, I7
4       outages                   ``retrying_store``, ``retry``, ``batches``,    I7
                                  ``read_sizes``
4       many objects at once      ``garbage``
5       journal rows              ``journal.rows``, ``journal.sparse_scan``       I8
5       polls                     ``journal.polled_revisions``,                  I2, I3, I8
                                  ``journal.news``, ``journal.unswept``
5       polls by arrival (SQLite) ``journal.arrival_poller``                     I2, I3, I11
5       logs of writers (HBase)   ``ids.announcements``, ``ids.log_holder``,     I2, I3
                                  ``ids.decided_ids``, ``ids.recent_commits``,
                                  ``journal.log_poller``, ``journal.logs``
6       recovery, watermark       ``journal.recovery``                           I8, I9
6       rollback on demand        ``rollback``                                   I8, I9
6       when each of them runs    ``periodic_work``                              I8, I9
6       damage                    ``damage``
7       branches                  ``branches.branches``, ``branches.heads``,     I6, I9
                                  ``branches.branch_commits``,
                                  ``branches.branch_revisions``,
                                  ``branches.branch_rows``,
                                  ``branches.cache``, ``branches.open_branches``
7       one transaction (SQLite)  ``branches.one_transaction``                   I6, I16
7       merge, rebase             ``branches.net_effects``, ``branches.claims``, I12, I16
                                  ``branches.merge_end``, ``branches.rebase``,
                                  ``branches.merged_part``,
                                  ``branches.unfinished_rebases``,
                                  ``branches.conflict_markers``,
                                  ``commit.branch_end``
8       the invariants            ``hbasemk.check`` checks stored data for them,
                                  through ``inspection``
9       the fence of readers      ``journal.fence``                              I13, I14
9       horizon, retention        ``collection.raising``,                        I14
                                  ``collection.retention``
9       collection of node cells  ``collection.collector``,                      I13, I15
                                  ``collection.node_cells``,
                                  ``collection.rule``, ``collection.deletions``,
                                  ``collection.progress``,
                                  ``collection.every_row``, ``collection.widths``
9       when collection runs      ``collection.background``,
                                  ``collection.run``, ``collection.status``
9       collection of other cells ``collection.other_cells``,                    I13, I15
                                  ``collection.passed_rows``,
                                  ``collection.ended_branches``,
                                  ``collection.late_cells``,
                                  ``collection.leases``, ``collection.memos``
9       collection of the journal ``collection.journal_rows``                    I13, I15
9       collection of blobs       ``collection.unused_blobs``,                   I15
                                  ``collection.blob_references``,
                                  ``collection.lost_uploads``
======= ========================= ============================================== =============

``instance`` combines these modules into one opened repository. Front ends use its methods, and the functions of
``checkpoints``, ``diff``, ``feed``, ``log``, ``rollback``, ``schema_change``, ``status`` and ``time_travel``, which take an
instance. They never use the parts of an instance, such as its journal or its reader.

``runtime`` is the interface for time, randomness, waiting and locks; ``hbasemk.system`` implements it for real machines, and
the simulator implements it for tests.

The order of imports is ``format``, ``ids``, ``journal``, ``reading``, ``commit``, ``branches``, ``collection``: no module
imports a later one.
"""
