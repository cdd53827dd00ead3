"""Every bound on what one peer may make the server hold or do, each with its reason. Those that operators set are in `config.py`."""

from __future__ import annotations

# Unsent bytes at which a peer gets no more results or answers and is not read from; a frame larger than that is written whole.
WRITE_BUFFER_BYTES_MAX = 1024 * 1024
# Requests that wait for their turn, by their frames: from here on the peer is not read from until half of them are answered.
REQUEST_BYTES_WAITING_MAX = 1024 * 1024
# What a peer holds below this is not counted: the block that every connection reads into, a few small answers.
COUNTED_BYTES_MIN = 64 * 1024

# Messages that carry no rows (those have credit). A peer may send so many at once, and earns so many a second …
OWN_MESSAGES_MAX = 128
OWN_MESSAGES_PER_S = 64
# … and has what is beyond them in turns of so many, so that a peer that sends without end is one among those that wait.
TURN_MESSAGES = 32
# Rows that are refused use no credit up. So many cost the loop as much as a message, and count as one.
REFUSED_ROWS_A_MESSAGE = 4
# How far the shared allowance (messages_per_s_max) fills up while nobody wants it: some 3 ms of the loop's time.
SHARED_MESSAGES_MAX = 256
# Between two turns of those that wait: as long as the loop is busy with them for a millisecond.
TURN_S = 0.005

# What of a client's names goes into the log.
LOGGED_NAME_MAX = 128

assert COUNTED_BYTES_MIN < REQUEST_BYTES_WAITING_MAX
assert TURN_MESSAGES <= OWN_MESSAGES_MAX <= SHARED_MESSAGES_MAX
