"""How the network is cut into things that can be scheduled. One cut a file; `base` holds what all of them share."""
