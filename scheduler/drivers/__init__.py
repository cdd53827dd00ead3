"""Who drives the core: `live` with threads on the machine's clock, `virtual` in virtual time, from event to event."""
