"""The gateway: a client of the server, in a process of its own, for those who speak PostgreSQL's protocol or HTTP.

`serving` runs both in one loop. `postgres` and `http` know nothing of each other. Whatever a peer does here, the server sees one more
client, bounded like any other.
"""
