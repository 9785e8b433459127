"""Reads in a view (protocol, section 3).

``visible_cells`` reads the cells that a view shows. ``reader`` reads nodes and children from them, and ``walk`` whole
subtrees. ``cache`` keeps states and lists of children, ``changed_lists`` those lists that revisions have changed since.
``memory_sizes`` estimates the size of both. ``child_count`` counts children without reading them all, and
``subtree_hashes`` keeps the hashes of subtrees, with the children of wide nodes in ``child_groups``. ``last_changes`` keeps the
last revision that touched each subtree.
"""
