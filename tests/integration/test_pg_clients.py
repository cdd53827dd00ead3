"""PostgreSQL's own clients before a live server: each that this machine has. Those that it lacks are skipped, and said."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from millstream.client.gateway.postgres import limits
from millstream.client.gateway.postgres.messages import SimpleQuery
from millstream.client.gateway.postgres.mirror import Mirror, programs_in

from tests.support.gateways import Gateway, run, values
from tests.support.live_server import until

HERE = Path(__file__).parent / "pg_clients"
JARS = [*Path("/usr/share/java").glob("postgresql.jar"), *Path.home().glob(".m2/repository/org/postgresql/postgresql/*/postgresql-*.jar")]
OUTPUT_S_MAX = 50.0
TABLE = """CREATE TABLE prices (item TEXT, price INT, d DECIMAL(10, 2), ts TIMESTAMP, l INT[], j JSON, PRIMARY KEY (item));
INSERT INTO prices VALUES ('pear', 3, 1.5, '2024-01-01 00:00:00Z', ARRAY[1, 2], '{"a": 1}'), ('fig', 5, NULL, NULL, NULL, NULL)"""
PEAR = ("pear", 3, Decimal("1.50"), dt.datetime(2024, 1, 1, tzinfo=dt.UTC), [1, 2], {"a": 1})

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(programs_in(None) is None, reason="PostgreSQL's programs are not installed (Debian: apt-get install postgresql)"),
]


def needs(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


async def output(*command: str, **environment: str) -> str:
    """Return what a program says, both ways; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **environment}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        told, _ = await asyncio.wait_for(process.communicate(), OUTPUT_S_MAX)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, told.decode()
    return told.decode()


def with_table(test: Callable[[Gateway], Any]) -> None:
    async def whole(gateway: Gateway) -> None:
        client = await gateway.harness.client()
        for statement in TABLE.split(";\n"):
            await client.execute(statement)
        await test(gateway)

    run(whole, catalogue=True)


def test_a_gateway_that_stops_while_postgresql_begins_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    ended: list[int | None] = []
    run_program, stop = Mirror._run, Mirror.stop

    async def noted(self: Mirror, *command: str, **options: Any) -> Any:
        begun.append(await run_program(self, *command, **options))
        return begun[-1]

    async def stopped(self: Mirror) -> None:
        await stop(self)
        ended.extend(process.returncode for process in begun)

    monkeypatch.setattr(Mirror, "_run", noted)
    monkeypatch.setattr(Mirror, "stop", stopped)

    async def begin(gateway: Gateway) -> None:
        await until(lambda: bool(begun), "initdb runs")

    run(begin, catalogue=True)
    assert [code is None for code in ended] == [False]


def test_the_private_postgresql_has_room_for_as_many_peers_as_the_gateway() -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        ((found,),) = values(await peer.ask(SimpleQuery("SELECT current_setting('max_connections')")))
        assert int(found or 0) > 300
        await peer.close()

    run(test, catalogue=True, connections_max=300)


def test_psql_describes_and_asks_and_copies() -> None:
    psql = needs("psql")

    async def test(gateway: Gateway) -> None:
        script = "\n".join(
            (r"\d", r"\dt", r"\d+ prices", r"\d nosuch", r"\timing", "SELECT item FROM prices WHERE price > 4;", "SELECT nope FROM prices;",
             "COPY prices (item, price) FROM STDIN;", "kiwi\t7", "\\.", "SELECT COUNT(*) AS n FROM prices;")
        )  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            psql, "-X", f"{gateway.dsn} sslmode=disable", "-f", "-", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        told, _ = await asyncio.wait_for(process.communicate(script.encode()), OUTPUT_S_MAX)
        text = told.decode()
        for part in (
            " public | prices | table | millstream_owner",
            " d      | numeric(10,2)",
            '"prices_pkey" PRIMARY KEY',
            'Did not find any relation named "nosuch".',
            " fig\n",
            "ERROR:  there is no column nope\nLINE 1: SELECT nope FROM prices;\n               ^",
            "COPY 1",
            " n \n---\n 3\n",
            "Time: ",
        ):
            assert part in text, (part, text)

    with_table(test)


def test_psycopg_asks_in_both_formats_and_copies_and_follows() -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    from psycopg.types.json import Jsonb

    def use(dsn: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for binary in (False, True):
                cursor = connection.cursor(binary=binary)
                assert cursor.execute("SELECT * FROM prices WHERE price < %s", (4,)).fetchall() == [PEAR]
            values = ("o'x", -4, Decimal("-1.25"), PEAR[3], [1, None], {"b": [1]})
            insert = "INSERT INTO prices VALUES (%s, %s, %s, %s, %s, %s)"
            assert connection.execute(insert, (*values[:5], Jsonb(values[5]))).rowcount == 1
            assert connection.execute("SELECT * FROM prices WHERE item = %s", ("o'x",)).fetchone() == values
            cursor = connection.cursor()
            for form in ("text", "binary"):
                with cursor.copy(f"COPY prices (item, price) FROM STDIN (FORMAT {form})") as copy:
                    copy.set_types(["text", "int4"])
                    copy.write_row((form, 9))
                with cursor.copy(
                    f"COPY (SELECT item, price FROM prices WHERE price = 9 ORDER BY item LIMIT 1) TO STDOUT (FORMAT {form})"
                ) as copy:
                    copy.set_types(["text", "int4"])
                    assert list(copy.rows()) == [("binary" if form == "binary" else "text", 9)]
            connection.execute("CREATE STREAM s (ts BIGINT, v INT) TIMESTAMP BY ts UNIT s")
            connection.execute("CREATE QUERY q AS SELECT v FROM s")
            connection.cursor().executemany("INSERT INTO s VALUES (%s, %s)", [(i, i) for i in range(5)])
            with connection.transaction(), connection.cursor("c") as named:
                named.execute("SUBSCRIBE q FROM START")
                found: list[Any] = []
                while len(found) < 5:
                    found += named.fetchmany(3)
            assert found == [(i,) for i in range(5)]
            with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
                connection.execute("SELECT nope FROM prices")
            assert caught.value.diag.statement_position == "8"

    with_table(lambda gateway: asyncio.to_thread(use, gateway.dsn))


def test_sqlalchemy_reflects_and_pandas_reads() -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")

    def use(port: int) -> None:
        engine = sqlalchemy.create_engine(f"postgresql+psycopg://admin@127.0.0.1:{port}/millstream")
        metadata = sqlalchemy.MetaData()
        metadata.reflect(engine)
        table = metadata.tables["prices"]
        assert [str(column.type) for column in table.columns] == ["TEXT", "INTEGER", "NUMERIC(10, 2)", "TIMESTAMP", "ARRAY", "JSONB"]
        assert [column.name for column in table.primary_key] == ["item"]
        with engine.connect() as connection:
            connection.execute(table.insert().values(item="alc", price=3, ts=dt.datetime(2024, 1, 1)))
            connection.commit()
            counted = sqlalchemy.select(sqlalchemy.func.count()).select_from(table).where(table.c.price >= 3)
            assert connection.execute(counted).scalar() == 3
        frame = pandas.read_sql("SELECT item, price FROM prices ORDER BY item LIMIT 5", engine)
        assert frame["price"].tolist() == [3, 5, 3]
        assert pandas.read_sql("prices", engine).shape == (3, 6)
        engine.dispose()

    with_table(lambda gateway: asyncio.to_thread(use, gateway.ports.pg or 0))


def test_asyncpg_prepares_and_copies() -> None:
    asyncpg = pytest.importorskip("asyncpg", reason="asyncpg is not installed")

    async def test(gateway: Gateway) -> None:
        connection = await asyncpg.connect(f"postgresql://admin@127.0.0.1:{gateway.ports.pg}/millstream", ssl=False)
        (row,) = await connection.fetch("SELECT item, price, d, ts, l FROM prices WHERE price < $1 AND item = $2", 4, "pear")
        assert tuple(row) == PEAR[:5]
        await connection.execute("INSERT INTO prices (item, price, ts) VALUES ($1, $2, $3)", "apg", 9, PEAR[3])
        await connection.copy_records_to_table("prices", records=[("r1", 1), ("r2", 2)], columns=["item", "price"])
        assert await connection.fetchval("SELECT COUNT(*) FROM prices") == 5
        async with connection.transaction():
            found = [r["item"] async for r in connection.cursor("SELECT item FROM prices ORDER BY item LIMIT 3", prefetch=2)]
        assert found == ["apg", "fig", "pear"]
        await connection.close()

    with_table(test)


def test_jdbc_reads_the_catalogue_and_pages_through_results() -> None:
    java = needs("java")
    if not JARS:
        pytest.skip("pgJDBC is not installed (Debian: apt-get install libpostgresql-jdbc-java)")

    async def test(gateway: Gateway) -> None:
        text = await output(java, "-XX:TieredStopAtLevel=1", "-cp", str(JARS[0]), str(HERE / "Jdbc.java"), str(gateway.ports.pg))
        assert text.splitlines() == [
            "product PostgreSQL", "table prices table", "column item text", "column price int4", "column d numeric",
            "column ts timestamptz", "column l _int4", "column j jsonb", "key item", "inserted 1", "jdbc -7 1.50", "fetched 3",
        ]  # fmt: skip

    with_table(test)


def test_nodes_pg_asks_with_parameters() -> None:
    node = needs("node")
    path = os.environ.get("NODE_PATH", "")
    if not any((Path(folder) / "pg").is_dir() for folder in path.split(":") if folder):
        pytest.skip("node's pg is not installed where NODE_PATH says (npm install pg)")

    async def test(gateway: Gateway) -> None:
        text = await output(node, str(HERE / "node.js"), str(gateway.ports.pg))
        assert text.splitlines() == ['[{"item":"fig","price":5}]', "1", '[{"n":"3"}]', "42703 8"]

    with_table(test)


# Queries of the kind that Grafana's PostgreSQL source sends, with $__timeFilter and $__timeGroup expanded.
GRAFANA_DAY = "ts BETWEEN '2023-12-31T00:00:00Z' AND '2024-01-02T00:00:00Z'"
GRAFANA = (
    """SELECT quote_ident(table_name) AS "table" FROM information_schema.tables
        WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog', '_timescaledb_cache')
        AND table_type = 'BASE TABLE' AND quote_ident(table_schema) = 'public' ORDER BY 1""",
    """SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns
        WHERE quote_ident(table_name) = 'prices'""",
    f'SELECT ts AS "time", price FROM prices WHERE {GRAFANA_DAY} ORDER BY 1',
    f"""SELECT floor(extract(epoch from ts)/60)*60 AS "time", item AS metric, avg(price) AS value FROM prices
        WHERE {GRAFANA_DAY} GROUP BY 1, 2 ORDER BY 1""",
)


def test_a_grafana_panels_queries_are_answered() -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

    def use(dsn: str) -> list[Any]:
        with psycopg.connect(dsn, autocommit=True) as connection:
            return [connection.execute(query, prepare=True).fetchall() for query in GRAFANA]

    async def test(gateway: Gateway) -> None:
        tables, columns, points, series = await asyncio.to_thread(use, gateway.dsn)
        assert (tables, ("price", "integer") in columns, points) == ([("prices",)], True, [(PEAR[3], 3)])
        assert [(float(row[0]), *row[1:]) for row in series] == [(1704067200.0, "pear", 3.0)]

    with_table(test)


def test_the_catalogue_has_the_columns_that_a_select_from_a_view_gives() -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        await peer.ask(SimpleQuery("CREATE MATERIALIZED VIEW cheap AS SELECT item, price FROM prices WHERE price < 4"))
        asked = "SELECT column_name FROM information_schema.columns WHERE table_name = 'cheap' ORDER BY ordinal_position"
        assert values(await peer.ask(SimpleQuery(asked))) == [["item"], ["price"]]
        await peer.close()

    with_table(test)


def test_a_peer_cannot_hold_or_change_the_private_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        for statement, code in (
            ("SELECT set_config('default_transaction_read_only', 'off', false)", None),
            ("SELECT lo_create(0)", "42501"),
            ("SELECT pg_terminate_backend(pid) FROM pg_stat_activity", "42501"),
            ("SELECT pg_read_file('/etc/passwd')", "42501"),
            ("WITH x AS (INSERT INTO prices VALUES ('x') RETURNING item) SELECT * FROM x, pg_class", "42501"),
            ("SELECT 1 INTO stolen FROM pg_class", "42501"),
            ("SELECT repeat('x', 600000000)", "53200"),
            (f"SELECT repeat('x', {limits.CATALOGUE_BYTES_MAX})", "54000"),
        ):
            heard = await peer.ask(SimpleQuery(statement))
            codes = [body.split(b"\0C")[1].split(b"\0")[0].decode() for kind, body in heard if kind == b"E"]
            assert codes == ([code] if code else []), statement
        monkeypatch.setattr(limits, "CATALOGUE_S_MAX", 0.3)
        assert (await peer.error(SimpleQuery("SELECT pg_sleep(60)")))["C"] == "57014"
        await peer.until(b"Z")
        monkeypatch.setattr(limits, "CATALOGUE_S_MAX", 10.0)
        assert values(await peer.ask(SimpleQuery("SELECT 40 + 2"))) == [["42"]]
        await peer.close()

    with_table(test)
