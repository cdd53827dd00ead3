"""COPY: results to the peer, as they are or as they come, and rows from the peer to a stream or table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.client.gateway.postgres import messages
from millstream.client.gateway.postgres.copy_input import CopyInput
from millstream.client.gateway.postgres.output_values import (
    COPY_SIGNATURE,
    COPY_TRAILER,
    copy_header,
    copy_rows_binary,
    copy_rows_text,
)
from millstream.client.gateway.postgres.sqlstates import CANCELLED, PROTOCOL_VIOLATION, UNDEFINED_COLUMN, PgError
from millstream.client.gateway.postgres.statements import Asked, CopyForm
from millstream.client.statements import quoted

if TYPE_CHECKING:
    from millstream.client.gateway.postgres.results import Source
    from millstream.client.gateway.postgres.session import Session
    from millstream.client.publisher import Acknowledgement, Publisher

REASONS_MAX = 3  # of refused rows that are told


async def copy_out(session: Session, source: str, asked: Asked, literals: dict[int, str]) -> None:
    """Send the rows of a SELECT, or the results of a query until it ends."""
    rows = await session.rows_of(source, asked, literals)
    try:
        form = asked.form
        is_binary = form.name == "binary"
        session.link.send(messages.copy_response(b"H", int(is_binary), len(rows.columns)))
        if form.header and not is_binary:
            session.link.send(messages.copy_data(copy_header(rows.columns, form.delimiter, csv=form.name == "csv")))
        count = await _send(session, rows, form)
        session.link.send(messages.COPY_DONE)
        session.complete(f"COPY {count}")
    finally:
        await rows.close()


async def _send(session: Session, rows: Source, form: CopyForm) -> int:
    count = 0
    is_binary, csv = form.name == "binary", form.name == "csv"
    async for batch in rows.take(None):
        if is_binary and not count and batch.num_rows:
            # The head goes with the first row, as clients take one message for one row.
            first = copy_rows_binary(batch.slice(0, 1), rows.columns)[5:]
            session.link.send(messages.copy_data(COPY_SIGNATURE + first))
            session.link.send(copy_rows_binary(batch.slice(1), rows.columns))
        elif is_binary:
            session.link.send(copy_rows_binary(batch, rows.columns))
        else:
            session.link.send(copy_rows_text(batch, rows.columns, form.delimiter, form.null, csv=csv))
        count += batch.num_rows
        session.tell_losses(rows)
        await session.link.drain()
    if is_binary:
        session.link.send(messages.copy_data(COPY_TRAILER if count else COPY_SIGNATURE + COPY_TRAILER))
    return count


async def copy_in(session: Session, asked: Asked) -> None:
    """Publish what the peer sends. Rows that the stream refuses are an error at the end, which says that the others are accepted."""
    publisher = await session.client.publisher(asked.name)
    try:
        described = [str(row["column"]) for row in await session.client.execute(f"DESCRIBE {quoted(asked.name)}")]
        known = {column.name: column for column in publisher.columns if column.name in described}  # a table is also sent its `op`
        for name in asked.columns:
            if name not in known:
                raise PgError(UNDEFINED_COLUMN, f'column "{name}" of "{asked.name}" does not exist', f"its columns are {', '.join(known)}")
        columns = [known[name] for name in asked.columns] or list(known.values())
        session.link.send(messages.copy_response(b"G", int(asked.form.name == "binary"), len(columns)))
        await session.link.drain()
        ack = await _take(session, publisher, CopyInput(asked.form, columns))
    finally:
        publisher.abandon()
    if ack.rejected_rows:
        reasons = "; ".join(f"row {one.index + 1}: {one.reason}" for one in ack.rejected[:REASONS_MAX])
        more = f" and {ack.rejected_rows - REASONS_MAX} more" if ack.rejected_rows > REASONS_MAX else ""
        message = f"{ack.rejected_rows} of {ack.accepted + ack.rejected_rows} rows were refused: {reasons}{more}"
        raise PgError("22000", message, f"the other {ack.accepted} rows are accepted: send only the refused ones again")
    session.complete(f"COPY {ack.accepted}")


async def _take(session: Session, publisher: Publisher, rows: CopyInput) -> Acknowledgement:
    while True:
        match await session.link.next():
            case messages.CopyData(data):
                found = rows.feed(data)
                if found:
                    await publisher.send(found)
            case messages.CopyDone():
                found = rows.feed(b"", last=True)
                if found:
                    await publisher.send(found)
                return await publisher.flush()
            case messages.CopyFail(reason):
                ack = await publisher.flush()
                hint = f"{ack.accepted} rows had been accepted before" if ack.accepted else None
                raise PgError(CANCELLED, f"COPY from stdin failed: {reason}", hint)
            case messages.Flush() | messages.Sync():
                pass
            case other:
                what = "the connection ended" if other is None else f"{type(other).__name__} came"
                raise PgError(PROTOCOL_VIOLATION, f"{what} during COPY from stdin", fatal=True)
