"""The same core in virtual time.

`driver` jumps from event to event and takes any executor; `executor` is the cost model of universal boxes; `arrivals` and `workloads`
make input and networks. Nothing here reads a clock; what is random comes from a stated seed.
"""
