"""Collection of old revisions: which cells no readable view needs, and their deletion (``docs/protocol.md``, section 9).

============================================== =====================================================
what happens                                   module
============================================== =====================================================
raise the horizon; the retention               ``raising``, ``retention``
delete cells of nodes, along the journal       ``collector``, ``node_cells``, ``rule``, ``progress``,
                                               ``all_versions``
a run, in the foreground and the background    ``run``, ``background``, ``status``
delete other cells: leases, memos, branches    ``other_cells``, ``leases``, ``memos``,
                                               ``passed_rows``, ``ended_branches``, ``late_cells``
delete rows of the journal                     ``journal_rows``
look at every row                              ``every_row``
delete blobs                                   ``unused_blobs``, ``blob_references``, ``lost_uploads``
============================================== =====================================================
"""
