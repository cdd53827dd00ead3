"""Bounds of the scheduler, each with its reason. Relations between them are asserted at import."""

from __future__ import annotations

from typing import Final

NEVER_NS: Final = 2**63 - 1
"""A time that does not come: the head of an empty queue."""

EDGE_ROWS_MAX: Final = 1_048_576
"""Rows before an inner edge counts as full: some seconds of a fast stream, a bounded share of memory at 64 bytes a row."""

MAILBOX_EVENTS_MAX: Final = 65_536
"""Events waiting for the scheduler thread. Arrivals of one log merge, so this bounds logs and receipts, not tuples."""

ORDERS_PER_WORKER: Final = 2
"""One running and one waiting: the worker never idles for a decision, and a decision is at most one order old."""

ORDER_STEPS_MAX: Final = 4_096
"""Steps in one order: an order must stay small beside the run it describes."""

SCHEDULE_UNITS_LIVE: Final = 64
"""Units a live decision gives out at most: what deciding costs is shared by them, and the budget keeps an order short all the same."""

ORDER_BUDGET_NS: Final = 5_000_000
"""An order gives the worker back after this time at the next step's end, so that an urgent unit is not kept waiting for long."""

UNIT_COST_FALLS: Final = 0.3
"""Weight of the newest order in what a unit of an order takes, by which an order is given as many units as its budget has room for."""

UNIT_COST_RISES: Final = 0.02
"""The same where that order took longer than the ones before."""

OFFER_ROWS_MAX: Final = 1_024
"""Rows that the thread which brings them may run at once: with more, the hand-over to the scheduler thread weighs little. With 256, rows
that had piled up in a socket went to that thread while the next were read, the two took turns at the interpreter, and more piled up:
44,000 rows a second, one a frame, stayed at 600 a read and 30 ms, where 40 a read and 2 to 5 ms was as stable."""

OFFER_NS_MAX: Final = 4_000_000
"""Then whatever is left goes to the scheduler thread, so that reading from sockets goes on. With 1 ms the one row that took longer than
usual woke it, and rows that came meanwhile kept it awake for 100 ms and more: two threads at one interpreter."""

OFFER_COST_NS_MAX: Final = 2_000_000
"""While such turns have cost more than this on average, rows go to the scheduler thread."""

OFFER_COST_FADE: Final = 0.95
"""Weight of the past in that average."""

OFFERS_DUE_NS: Final = 5_000_000
"""While rows are offered the scheduler thread leaves what is due at a time to whoever brings them, for so long: two threads at once take
turns at the interpreter, and a row that comes meanwhile has to wait for both."""

CHAIN_RUNS_TOGETHER: Final = 32
"""Runs of a fused chain whose inner counts enter the books together: that makes them cheap, and estimates follow within as many trains."""

ESTIMATE_CALLS_LIVE: Final = 4
"""Calls of each operator, on average, after which a live core sums its estimates anew: summing and ranking stay a small share of them."""

TRAIN_ROWS_MAX: Final = 262_144
"""Rows in one live step. The engine works on them in calls of what fits the processor's cache; more would hold the worker longer, and
fewer would make a worker process dearer, which every step is sent to."""

ADAPTIVE_TRAIN_NS: Final = 4_000_000
"""An adaptive train is as long as fits into this time by the estimates, never under ADAPTIVE_ROWS_MIN."""

ADAPTIVE_ROWS_MIN: Final = 8_192
"""With so many rows the call itself is about half of what a train costs. With a smaller bound a busy machine falls into a trap: calls are
slow, so trains get short, so a row's share of the call grows, and they get shorter still (seen with 2,048: three times the time)."""

STEP_NS_MAX: Final = 50_000_000
"""What ADAPTIVE_ROWS_MIN rows may cost by the estimates; of rows that are dearer an adaptive train takes fewer. Ten times what an order is
given, so that a busy machine, which makes all rows dear, is still far from the trap."""

HEAD_WAIT_NS_MAX: Final = 1_000_000_000
"""A head that has waited this long makes its unit runnable even below the threshold τ."""

STORY_ENTRIES_MAX: Final = 100_000
"""Entries kept in the story; the oldest go first and the story then says that it is cut."""

USER_DECISION_NS_MAX: Final = 5_000_000
"""A decision for which a user policy takes more processor time is slow: a hundred orders could have run meanwhile."""

USER_SLOW_DECISIONS_MAX: Final = 3
"""Slow decisions a user policy is forgiven before round-robin replaces it."""

USER_WAIT_NS_MAX: Final = 100_000_000
"""A decision that takes longer by the clock is slow as well if those before it were too: the policy waits for something. One alone may be
the doing of a busy machine."""

USER_CALL_NS_MAX: Final = 1_000_000_000
"""After this time nobody waits for a user policy any more: round-robin replaces it at once."""

USER_LOAD_NS_MAX: Final = 5_000_000_000
"""The same for loading its file, which may import much."""

WINDOW_TUPLES: Final = 100
"""Tuples in a window of measurement (Sharaf 2007, 3.8.5: 50 to 150 were best)."""

AGING: Final = 0.175
"""α of the moving estimates (Sharaf 2007, 3.3.3: 0.1 to 0.25 were best)."""

SELECTIVITY_MIN: Final = 1e-6
"""Floor of a measured selectivity, so that a rank can be divided by it."""

COST_NS_MIN: Final = 1.0
"""Floor of a measured cost per tuple."""

assert ADAPTIVE_ROWS_MIN <= TRAIN_ROWS_MAX <= EDGE_ROWS_MAX
assert 1 <= ORDERS_PER_WORKER <= 2
assert 0.0 < AGING < 1.0
assert USER_DECISION_NS_MAX < USER_CALL_NS_MAX < USER_LOAD_NS_MAX
assert ADAPTIVE_TRAIN_NS <= ORDER_BUDGET_NS < STEP_NS_MAX
