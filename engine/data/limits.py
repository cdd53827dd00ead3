"""Bounds of the engine, each with its reason. Relations between them are asserted at import."""

from __future__ import annotations

# Rows of one call of an operator. Beyond this the columns of a train no longer fit the second-level cache, so a longer queue is
# worked off in several calls of one step.
TRAIN_ROWS_MAX = 65_536

# Rows of one call that goes to another process, which works on them in parts as they arrived: each crossing costs as much as 50,000 rows.
CROSSING_ROWS_MAX = 262_144

# Rows up to which waiting trains are joined for one call; beyond, copying their columns costs more than the calls saved.
JOINED_ROWS_MAX = 8_192

# Rows and bytes that one log holds for its slowest reader before the operator behind it is told not to run. One order may overshoot.
LOG_ROWS_MAX = 1_000_000
LOG_BYTES_MAX = 256 * 1024 * 1024

# Pairs that one call of a join looks at, and values that one call of a sliding window goes through, before its train is cut: 20 to 80 ms
# of work, so that others have their turn. Rows with one arrival number are worked off together, however many they make.
CALL_PAIRS_MAX = 500_000
CALL_VALUES_MAX = 1_000_000

# Bytes of one column: Arrow counts the places of text in 32 bits.
COLUMN_BYTES_MAX = 2_000_000_000

# Smaller things are made without asking, and an operator's state is looked at when so much has reached it: a look takes some µs.
CLAIM_BYTES_MIN = 1024 * 1024

# A window whose range / slide makes more panes than this is refused at registration: each pane of each group is state.
PANES_PER_WINDOW_MAX = 1_000_000

# Distinct trace of evaluation errors kept per query to count a row once (K8, K10).
FAILED_ROWS_REMEMBERED_MAX = 1_000_000
# Late rows kept per query for the same reason; a row is late in all places of a query within moments.
LATE_ROWS_REMEMBERED_MAX = 100_000

# Ranges of arrival numbers whose stream is remembered, to tell which stream a row behind a union came from.
ARRIVAL_RANGES_REMEMBERED_MAX = 100_000

assert TRAIN_ROWS_MAX <= CROSSING_ROWS_MAX <= LOG_ROWS_MAX
assert TRAIN_ROWS_MAX <= CALL_PAIRS_MAX
