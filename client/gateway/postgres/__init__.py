"""PostgreSQL's protocol 3.0. Start reading in `session`, what is done with each message.

Without sockets and clocks: `messages` (how they lie), `connection` (bytes to messages), `scram`, `types`, `output_values` and
`input_values` (how values lie), `sql_words` and `statements` (what a statement asks for). `listener` owns the sockets, `mirror` a private
PostgreSQL that answers questions about the catalogue.
"""
