"""The MicroKernel interface of content repositories: JSOP in, JSON out, revisions as opaque strings."""

from hbasemk.errors import HbasemkError
from hbasemk.microkernel.microkernel import MicroKernel

__all__ = ["MicroKernel", "HbasemkError"]
