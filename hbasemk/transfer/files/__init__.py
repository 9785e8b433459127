"""Import of directories, and their comparison with a tree."""
