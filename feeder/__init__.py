"""Stored data as live streams: Spark reads and times it, one thread publishes it. And the demo that shows the whole.

Knows: files, Spark, the client. Must not know: protocol, engine, scheduler, server; all goes through `millstream.client`. Start reading at
`feed.py` (a feed from beginning to end), then `job.py` (the Spark side), `pace.py` (the pacing thread), `arrivals.py` (when rows are
due). The demo is in `demo/`.

pyspark is imported only inside functions that need it.
"""
