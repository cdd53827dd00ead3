"""`& | #` (and, or, exclusive or) of integers, in 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from millstream.engine.data.column import Column
from millstream.engine.data.types import BIGINT
from millstream.engine.expressions.arithmetic import binary
from millstream.engine.expressions.contract import EvaluationContext, Kernel
from millstream.engine.expressions.ir import Call
from millstream.engine.expressions.kernel import Compiler, always_null, both_valid, is_null_literal

OPERATIONS: dict[str, Any] = {"&": np.bitwise_and, "|": np.bitwise_or, "#": np.bitwise_xor}


def build_bitwise(call: Call, compiler: Compiler) -> Kernel:
    """Build one of the three."""
    left, right = call.arguments
    if is_null_literal(left) or is_null_literal(right):
        return always_null(call.type)
    operation = OPERATIONS[call.function]

    def core(a: Column, b: Column, context: EvaluationContext) -> Column:
        return Column(BIGINT, operation(a.values, b.values), both_valid(a.valid, b.valid))

    return binary(left, right, compiler, core)
