"""The server: the only folder that ties engine, scheduler and protocol together, live (`serve`) and in one process (`run`).

Knows: sockets, threads, the clock, the disk, who may do what. Must not know: the client, the feeder, Spark; how an operator works or why
a policy chose it. Start reading in `assembly.py` (the wiring) and `host/engine_host.py` (what both ways share), then `run/embedded.py` for
`millstream run`, or `live`, `app` and `net/` for `millstream serve`; `statements/` has what each statement does.
"""
