"""Commits: operations, staging, the change set, the read-back and the decision (protocol, section 4).

======= ================================================= =========================================
step    what happens                                      module
======= ================================================= =========================================
1, 2    poll, fix the view; retry after a conflict        ``committer``, ``turns``
3 to 5  make the id, create the journal row, validate     ``preparation``
4       apply the operations to the view                  ``change_source``, ``operations``,
                                                          ``staging``, ``staged_node``, ``numbers``
4       derive cells, dependencies, and the journal entry ``change_set``, ``read_set``, ``noop``
6, 10   write the cells, decide                           ``writing``, ``deadline``
7 to 9  read back, resolve conflicts                      ``read_back``
11      append the revision to the instance's sequence    ``attempt``
======= ================================================= =========================================

A ``draft`` is the state of one attempt, which ``attempt`` takes through steps 3 to 11. ``context`` has the parts of the instance
that these modules share, and ``statistics`` counts commits.
"""
