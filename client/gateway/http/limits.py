"""What bounds a peer of the HTTP gateway. Bytes and rows are counted, times are in seconds."""

HEAD_BYTES_MAX = 16_384  # of a request's line and headers
REQUEST_S_MAX = 15.0  # between a connection's begin, or its last answer, and the next whole head
KEEP_ALIVE_S = 5  # without a byte after an answer
ANSWER_S_MAX = 60.0  # for a body to come and be taken by the stream, and for a statement
WRITE_S_MAX = 60.0  # a peer that takes nothing for so long is let go
STOP_S = 2  # for answers under way when the gateway stops

BODY_BYTES_MAX = 16 * 1_048_576  # unpacked
BODY_ROWS_MAX = 1_000_000
ROW_BYTES_MAX = 1_048_576  # a line of JSON or a record of CSV
INFLATED_AT_ONCE = 65_536
STATEMENT_BYTES_MAX = 262_144
REJECTIONS_TOLD_MAX = 1_000
HELD_BYTES_MAX = 256 * 1_048_576  # bodies and answers of all peers together

ANSWER_BYTES_WHOLE = 65_536  # an answer of no more, and of so few rows, is written whole and not counted
ROWS_AT_ONCE = 1_024  # rows turned into text before the socket is asked whether it takes more
SUBSCRIPTION_ROWS = 16_384  # results under way to a peer, and their bytes
SUBSCRIPTION_BYTES = 512 * 1_024
STREAMS_PART = 0.75  # of all connections, those that may read results: the others remain for who asks and publishes
SILENCE_S = 15.0  # after which an event stream is told that it lives
IDLE_MAX = 16  # connections to the server kept for the next request
CONNECTING_MAX = 4  # connections to the server that are being made at a time
GUESS_S = 0.25  # that one with a wrong token holds its place
