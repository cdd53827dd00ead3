"""What a peer may hold of the gateway, and for how long it may keep it waiting."""

from __future__ import annotations

STARTUP_BYTES_MAX = 10_000  # as in PostgreSQL: nothing longer greets
PASSWORD_BYTES_MAX = 4_096
STATEMENT_BYTES_MAX = 262_144  # twice what the server takes as one statement; reading it keeps the loop for a tenth of a second
BIND_BYTES_MAX = 4 * 1_048_576
COPY_BYTES_MAX = 4 * 1_048_576  # of one message of COPY
OTHER_BYTES_MAX = 65_536
PARAMETERS_MAX = 4_096  # of a statement; the server's statement has at most 10,000 words
NEGOTIATIONS_MAX = 2  # requests for TLS and GSS before the greeting

MESSAGES_WAITING_MAX = 256  # messages read and not yet carried out
BYTES_WAITING_MAX = 1_048_576  # and their bytes, beyond one message: the socket is not read until some are done
WRITE_BYTES_HIGH = 262_144  # bytes not yet taken by the peer, beyond which nothing more is made for it
ROWS_AT_ONCE = 4_096  # rows turned into messages before the socket is asked whether it takes more

STATEMENTS_MAX = 256  # prepared statements of a session
STATEMENTS_BYTES_MAX = 4 * 1_048_576  # and their text
PORTALS_MAX = 64  # portals and cursors of a session
RESULTS_BYTES_MAX = 64 * 1_048_576  # answers that its portals hold
SETTINGS_MAX = 128  # settings of PostgreSQL that a session has set
SUBSCRIPTION_ROWS = 16_384  # results under way to a cursor or COPY, and their bytes
SUBSCRIPTION_BYTES = 4 * 1_048_576
COPY_ROWS_AT_ONCE = 4_096  # rows of COPY FROM STDIN handed to the publisher together

STARTUP_S_MAX = 10.0
WRITE_S_MAX = 60.0  # a peer that takes nothing for so long is let go
CATALOGUE_S_MAX = 10.0  # a question to the private PostgreSQL; its own bound is shorter
CATALOGUE_BYTES_MAX = 16 * 1_048_576  # of one message of its answer
