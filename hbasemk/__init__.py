"""hbasemk: a distributed microkernel on a wide-column store."""
