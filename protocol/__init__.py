"""The wire protocol, without a socket: bytes in, messages out; messages in, buffers out. One code for both ends.

Knows: frames, messages, which message is legal when, credits, limits, versions. Must not know: sockets, asyncio, clocks,
the engine. Start reading in `messages` (what can be said), then `states` (when), `framing` and `codec` (how it looks in
bytes), `flow` (how much), `connection` (all joined). The byte by byte reference is docs/protocol.md.
"""
