"""Every bound of the protocol, each with its reason. Units are the end of a name."""

from __future__ import annotations

# Before `Welcome` a peer is unknown: what it may make us hold is small. A hello is below 1 KiB; tokens may be long.
GREETING_FRAME_BYTES_MAX = 64 * 1024
# After it: a train of a million rows of eight doubles. The server's setting may be lower or higher.
FRAME_BYTES_MAX = 64 * 1024 * 1024
# A frame's length is a u32 that does not count itself.
FRAME_BYTES_CEILING = 2**32 - 5
# Headers are unpacked into Python objects, many times their size, so they are bounded more tightly than payloads.
# A row frame with one text value of 10 MB must pass.
HEADER_BYTES_MAX = 16 * 1024 * 1024
# The prefix: frame length and header length, u32 each.
PREFIX_BYTES = 8
# A payload starts at a multiple of this from the start of its frame: the widest vector registers.
PAYLOAD_ALIGNMENT_BYTES = 64

# The receive block starts small, because idle connections are many, and doubles while reads fill it.
BLOCK_BYTES_MIN = 16 * 1024
BLOCK_BYTES_MAX = 128 * 1024
# A frame longer than this that is not yet whole gets memory of its own, so that the rest arrives in its final place.
DIRECT_FRAME_BYTES = 32 * 1024
# At most this much is allocated on the word of a length alone; then twice what has arrived. A peer that has sent a larger frame whole
# has as much at once for its next, within reason: growing costs a copy, which those who send train after train need not pay.
FIRST_ALLOCATION_BYTES = 256 * 1024
PROVEN_ALLOCATION_BYTES = 4 * 1024 * 1024
ALLOCATION_GROWTH = 2

# msgpack: an unpacker allocates an array when it has read its length. Headers up to this size are unpacked at once, since
# arrays nested as deep as they can are then below 2 MiB; longer ones are first walked without building anything.
UNCHECKED_HEADER_BYTES = 1024
# Arrays and maps of one header, counted when it is longer than this: an empty one takes one byte on the wire, 64 in memory.
UNCOUNTED_HEADER_BYTES = 64 * 1024
CONTAINERS_MAX = 262_144
ARRAY_ITEMS_MAX = 131_072
MAP_ITEMS_MAX = 16_384

# Bytes of all lists and maps in a header of a peer that sends no rows (plans, options): an empty list takes one byte and 64 in memory. Text
# beside them, a statement's, is bounded by the frame alone.
NESTED_BYTES_MAX = 64 * 1024

# Rows of one `Rows` message, and of one `Train`: what one ack settles at once.
MESSAGE_ROWS_MAX = 65_536
TRAIN_ROWS_MAX = 1_048_576
# Rejections an ack lists; the others are counted only, so that a bad train cannot make a large ack.
REJECTIONS_LISTED_MAX = 1_000
# A producer's name, and what it may have kept with its rows: both are in the journal beside every publish of it.
PRODUCER_NAME_BYTES_MAX = 255
POSITION_BYTES_MAX = 1024
# Requests a client may have open at once.
REQUESTS_MAX = 1_024
CHANNELS_MAX = 1_024
SUBSCRIPTIONS_MAX = 4_096
# Request, channel and subscription numbers, counts and credits fit a signed 64-bit integer.
NUMBER_MAX = 2**63 - 1
# Protocol versions a hello may offer.
VERSIONS_OFFERED_MAX = 64

# How much a receiver lets be under way when nothing else is said; both ends grant again when half is used.
CREDIT_ROWS = 1_048_576
CREDIT_BYTES = 16 * 1024 * 1024
# The same for answers that carry a table, of a connection, in version 2: granted by the welcome.
ANSWER_CREDIT_BYTES = 16 * 1024 * 1024

assert GREETING_FRAME_BYTES_MAX <= FRAME_BYTES_MAX <= FRAME_BYTES_CEILING
assert HEADER_BYTES_MAX <= FRAME_BYTES_MAX
assert PREFIX_BYTES < BLOCK_BYTES_MIN <= BLOCK_BYTES_MAX
assert DIRECT_FRAME_BYTES <= BLOCK_BYTES_MAX, "a frame that is not read directly must fit the block once it is at its start"
assert FIRST_ALLOCATION_BYTES <= PROVEN_ALLOCATION_BYTES
assert BLOCK_BYTES_MAX < FIRST_ALLOCATION_BYTES, "what the block holds of a frame must fit its first allocation"
assert UNCHECKED_HEADER_BYTES <= UNCOUNTED_HEADER_BYTES <= GREETING_FRAME_BYTES_MAX
assert MESSAGE_ROWS_MAX <= ARRAY_ITEMS_MAX <= CONTAINERS_MAX
assert MAP_ITEMS_MAX <= ARRAY_ITEMS_MAX
assert REJECTIONS_LISTED_MAX * 2 < CONTAINERS_MAX
