"""Reads in a view (protocol, section 3).

``reader`` reads nodes and children, ``cache`` keeps states and lists of children, ``child_count`` counts children
without reading them all, and ``subtree_hashes`` keeps the hashes of subtrees.
"""
