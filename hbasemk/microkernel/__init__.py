"""The MicroKernel interface of the content-repository world: JSOP in, JSON out, revisions as opaque strings."""

from hbasemk.errors import HbasemkError
from hbasemk.microkernel.microkernel import MicroKernel

__all__ = ["MicroKernel", "HbasemkError"]
