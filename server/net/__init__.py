"""The network end: sockets, sessions, publishers, and one handler a message. Start at `session.py`."""
