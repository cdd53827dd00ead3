"""Memory release capacity of a segment (Pajjuri 2004, 4.1.4 and 4.1.5): the policies `segment` and `simplified-segment`.

    rank(g) = C_g (in_bytes - S_g out_bytes)

    C_g        capacity of segment g by the path formula, in tuples per ns
    S_g        product of the selectivities of its operators
    in_bytes   size of a tuple that enters it, out_bytes of one that leaves it

Aim: small memory in queues. Moves with time: no.
"""

from __future__ import annotations

from millstream.scheduler.contracts import FloatColumn, RankingBase
from millstream.scheduler.view import View


class MemoryRelease(RankingBase):
    """Bytes per ns that running the segment gives back."""

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return C_g (in_bytes - S_g out_bytes)."""
        return (view.bytes_in - view.chain_output * view.bytes_out) / view.chain_cost_ns
