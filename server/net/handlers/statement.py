"""Statement: run one statement of the language."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
from millstream.engine.data.arrow import arrow_schema
from millstream.engine.data.errors import Unsupported
from millstream.protocol.batches import encode_table
from millstream.protocol.messages import Reply, Statement
from millstream.server.results.outcome import Outcome, spell

if TYPE_CHECKING:
    from millstream.server.net.session import Session

ENVELOPE_BYTES = 64 * 1024  # of a frame, beside the table


async def answer_statement(session: Session, message: Statement) -> None:
    """Answer with the table, notices and names that it gave."""
    outcome = await session.application.execute(session, message.text)
    if outcome.answer is not None:
        session.send(_answered(session, message, outcome))
        return
    session.send(Reply(message.request, outcome.columns, outcome.values, list(outcome.notices), outcome.info))


def _answered(session: Session, message: Statement, outcome: Outcome) -> Reply:
    """Return the rows of a FETCH as one Arrow table, whose metadata says up to which arrival number it answers."""
    answer = outcome.answer
    assert answer is not None
    metadata = {f"millstream.{name}": json.dumps(value) for name, value in outcome.info.items()}
    schema = arrow_schema(answer.schema).with_metadata(metadata)
    payload = encode_table(pa.Table.from_batches([b.replace_schema_metadata(metadata) for b in answer.batches], schema=schema))
    if len(payload) > session.application.config.frame_bytes_max - ENVELOPE_BYTES:
        raise Unsupported(f"the answer has {len(payload)} bytes, more than one frame holds", hint="add a LIMIT, or aggregate")
    return Reply(message.request, spell(answer.schema), [], list(outcome.notices), outcome.info, payload)
