"""The same core in virtual time, which `drivers.virtual` moves on from event to event.

`executor` is the cost model of universal boxes; `express` decides much at once where outcomes are foreseen, with `quick_selectors`;
`arrivals` and `workloads` make input and networks. Nothing here reads a clock; what is random comes from a stated seed.
"""
