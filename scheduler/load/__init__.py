"""Load management: how much may come in, how much of the processor each class gets (Pham 2013).

Start reading at `contract` (what a manager sees and says), then `aloma` (one class's headroom and drop), then the managers in
`shedders` and `dilos`. They decide; `monitors` measures what they see, `control` runs a cycle for the core.
"""
