"""The console without a browser: who is let in, what a slow page costs, what is said when something is missing."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from millstream.client.connection import AsyncClient, connect_async
from millstream.client.console import files, pages, trying
from millstream.client.console.app import ROWS_SHOWN_MAX, STATEMENT_BYTES_MAX
from millstream.client.console.deciding import SPANS_TOLD_MAX, Simulations, digest
from millstream.client.console.experiments import RUNS_KEPT, ExperimentRuns, experiments
from millstream.client.console.pages import FOLLOWS_MAX, ROWS_KEPT, Follow, Page
from millstream.client.console.processes import OUTPUT_BYTES_MAX, Bounds, printed
from millstream.client.console.serving import ConsoleSettings, running
from millstream.client.console.watching import Watch
from millstream.client.errors import MillstreamError

from tests.support import live_server
from tests.support.live_server import Harness, until
from tests.support.tree import ROOT


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle of one page and one file: what is asked here is not what a browser makes of it."""
    (tmp_path / "index.html").write_text(f'<meta name="csp-nonce" content="{files.NONCE}">')
    (tmp_path / "main.js").write_text("1")
    return tmp_path


@asynccontextmanager
async def asking(harness: Harness, bundle: Path, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        running(ConsoleSettings(harness.address, port=0, bundle=bundle, **settings)) as address,
        httpx.AsyncClient(base_url=address) as web,
    ):
        yield web


def test_a_clone_without_the_bundle_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(MillstreamError, match="has not been bundled") as refused:
        files.load(tmp_path)
    assert "make console" in str(refused.value)


def test_the_page_comes_with_a_strict_policy_and_a_nonce_of_its_own(bundle: Path) -> None:
    async def test(harness: Harness) -> None:
        async with asking(harness, bundle) as web:
            first, second = [await web.get("/") for _ in range(2)]
            policy = first.headers["content-security-policy"]
            (nonce,) = re.findall(r"'nonce-([^']+)'", policy)
            assert f'content="{nonce}"' in first.text
            assert nonce not in second.text
            assert "unsafe" not in policy
            assert "default-src 'self'" in policy
            assert "http:" not in policy
            script = await web.get("/files/main.js")
            assert script.headers["content-type"].startswith("text/javascript")
            assert script.headers["x-content-type-options"] == "nosniff"
            for name in ("index.html", "..%2f__init__.py", "none.js"):
                assert (await web.get(f"/files/{name}")).status_code == 404

    live_server.run(test)


def test_another_sites_page_is_refused(bundle: Path) -> None:
    async def test(harness: Harness) -> None:
        async with asking(harness, bundle) as web:
            own = str(web.base_url).rstrip("/")
            asked = {"json": {"sql": "SHOW STREAMS"}}
            assert (await web.post("/api/statement", **asked, headers={"Origin": own})).status_code == 200
            for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
                assert (await web.post("/api/statement", **asked, headers=headers)).status_code == 403
            assert (await web.get("/", headers={"Host": "evil.example:7420"})).status_code == 403

    live_server.run(test)


def test_statements_go_under_the_users_token_and_are_bounded(bundle: Path) -> None:
    async def test(harness: Harness) -> None:
        async with asking(harness, bundle) as web:

            async def ask(sql: Any, token: str = "a") -> httpx.Response:
                return await web.post("/api/statement", json={"sql": sql}, headers={"Authorization": f"Bearer {token}"})

            assert (await web.post("/api/statement", json={"sql": "SHOW STREAMS"})).status_code == 401
            assert (await ask("SHOW STREAMS", "wrong")).status_code == 401
            assert (await ask("CREATE STREAM s (x INT, d DOUBLE)")).json()["rows"] == []
            refused = await ask("DROP STREAM s", "r")
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
            wrong = (await ask("SELECT\n nothing FROM s")).json()
            assert (wrong["line"], wrong["column"]) == (2, 2)
            running_on = await ask("SELECT x FROM s")
            assert "CREATE QUERY" in running_on.json()["hint"]
            assert (await ask("SHOW QUERIES")).json()["rows"] == []
            assert (await ask("x" * STATEMENT_BYTES_MAX)).json()["code"] == "limit"
            assert (await ask(5)).status_code == (await web.post("/api/statement", content="[")).status_code == 400
            client = await harness.client(token="a")
            await client.execute("CREATE TABLE t (k INT, d DOUBLE, PRIMARY KEY (k))")
            await client.publish("t", [{"k": number, "d": float("nan")} for number in range(ROWS_SHOWN_MAX + 1)])
            answer = (await ask("FETCH SELECT * FROM t")).json()
            assert (len(answer["rows"]), answer["rows_in_all"], answer["rows"][0][1]) == (ROWS_SHOWN_MAX, ROWS_SHOWN_MAX + 1, "nan")

    live_server.run(test, admin_token="a", reader_token="r")


def test_other_machines_come_in_only_where_the_server_asks_for_tokens(bundle: Path) -> None:
    async def test(harness: Harness) -> None:
        desk_settings = ConsoleSettings(harness.address, host="0.0.0.0", port=0, bundle=bundle)
        async with running(desk_settings) as address:
            port = address.rsplit(":", 1)[1].rstrip("/")
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as web:
                answer = await web.post("/api/statement", json={"sql": "SHOW STREAMS"}, headers={"Authorization": "Bearer anything"})
                assert (answer.status_code, answer.json()["hint"] is not None) == (401, True)

    live_server.run(test)


class Stuck:
    """A page that takes the first message and then nothing."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.asks: asyncio.Queue[str] = asyncio.Queue()
        self.takes = asyncio.Event()

    async def send_text(self, data: str) -> None:
        if self.sent:
            await self.takes.wait()
        self.sent.append(data)

    async def iter_text(self) -> AsyncIterator[str]:
        while True:
            yield await self.asks.get()


class OneEach:
    """Gives each use a connection of its own."""

    def __init__(self, address: str) -> None:
        self.address = address

    @asynccontextmanager
    async def one(self, token: str | None) -> AsyncIterator[AsyncClient]:
        async with connect_async(self.address, token) as client:
            yield client


def test_a_query_is_tried_on_files_by_the_servers_own_streams(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def file(text: str, name: str = "rows.CSV") -> dict[str, str]:
        return {"name": name, "data": base64.b64encode(text.encode()).decode()}

    async def test(harness: Harness) -> None:
        async with asking(harness, bundle) as web:

            async def ask(sql: str, token: str = "r", **files: Any) -> dict[str, Any]:
                answer = await web.post("/api/try", json={"sql": sql, "files": files}, headers={"Authorization": f"Bearer {token}"})
                return dict(answer.json())

            client = await harness.client(token="a")
            for statement in (
                'CREATE STREAM late ("the time" TIMESTAMP, v BIGINT, query TEXT)',
                'CREATE STREAM s ("the time" TIMESTAMP, v BIGINT NOT NULL) TIMESTAMP BY "the time" DELAY 2 SECONDS LATE INTO late '
                "DURABILITY none",
                'CREATE STREAM twice AS SELECT "the time", 2 * v AS w FROM s',
                "CREATE STREAM other (x INT)",
            ):
                await client.execute(statement)
            rows = "the time,v\n2026-01-01 00:00:00,3\n2026-01-01 00:00:01,4\n2026-01-01 00:00:09,x\n"
            answer = await ask("SELECT w FROM twice WHERE w > 6", s=file(rows))
            assert (answer["rows"], answer["rows_in_all"]) == ([{"w": 8}], 1), answer
            assert any("s:" in line or "refused" in line for line in answer["messages"]), answer
            assert len((await ask("SELECT v FROM s", s=file("the time,v\n" + "2026-01-01 00:00:00,3\n" * 1_001)))["rows"]) == 1_000
            refused = {
                "SELECT nothing FROM s": "nothing",
                "SELECT v FROM s; CREATE TABLE t FROM '/etc/passwd'": "",
                "CREATE TABLE t (k INT, PRIMARY KEY (k))": "",
                "SELECT v FROM s) ; SELECT (1": "",
            }
            for sql, word in refused.items():
                told = await ask(sql, s=file(rows))
                assert "rows" not in told, sql
                assert word in told["message"]
            assert "no stream no" in (await ask("SELECT v FROM s", no=file(rows)))["message"]
            assert "ends in .csv" in (await ask("SELECT v FROM s", s=file(rows, "rows.txt")))["hint"]
            assert (await ask("SELECT v FROM s", s={"name": "a.csv", "data": "?"}))["code"] == "invalid"
            assert (await ask("SELECT v FROM s", "wrong", s=file(rows)))["code"] == "unauthorized"
            monkeypatch.setattr(trying, "FILES_BYTES_MAX", 10)
            assert "10 bytes at most" in (await ask("SELECT v FROM s", s=file(rows)))["message"]

    live_server.run(test, admin_token="a", reader_token="r")


def test_a_page_that_takes_nothing_holds_little_and_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PACE_S", 0.01)

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM s (x INT)")

        async def connected() -> AsyncClient:
            return await connect_async(harness.address)

        watch = Watch("admin", connected, every_s=0.01)
        stuck, quick = Stuck(), Stuck()
        quick.takes.set()
        both = [Page(socket, watch, OneEach(harness.address), None) for socket in (stuck, quick)]
        tasks = [asyncio.create_task(one) for one in (watch.run(), *(page.run() for page in both))]
        for number in range(FOLLOWS_MAX + 2):
            stuck.asks.put_nowait(json.dumps({"ask": "follow", "follow": number, "query": "SELECT * FROM s", "is_text": True}))
        stuck.asks.put_nowait("no JSON")
        await until(lambda: len(both[0]._follows) == FOLLOWS_MAX and all(f.columns for f in both[0]._follows.values()), "the page follows")
        for _ in range(20):
            await client.publish("s", [{"x": number} for number in range(1_000)])
        await until(lambda: all(follow.came == 20_000 for follow in both[0]._follows.values()), "all rows came")
        told = len(quick.sent)
        await until(lambda: len(quick.sent) > told + 20, "the other page is told of more looks")
        assert len(stuck.sent) == 1
        assert all(len(follow.rows) <= ROWS_KEPT for follow in both[0]._follows.values())
        assert len(both[0]._answers) == 2  # of two follows too many and of what is no JSON; the first is under way
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: len(harness.server.application.sessions) == 1, "what the pages began is gone")

    live_server.run(test)


class Faulty:
    """Gives nobody a connection."""

    @asynccontextmanager
    async def one(self, token: str | None) -> AsyncIterator[AsyncClient]:
        raise KeyError(token)
        yield


class Broken(Stuck):
    """A page that cannot be sent anything, by a fault."""

    async def send_text(self, data: str) -> None:
        raise KeyError(data)


def test_a_fault_of_the_console_is_told_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PACE_S", 0.01)

    async def test() -> None:
        logged: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: logged.append(repr(context["exception"])))

        async def connected() -> AsyncClient:
            raise ValueError("in a test")

        watch, socket = Watch("admin", connected), Stuck()
        socket.takes.set()
        serving = asyncio.create_task(Page(socket, watch, Faulty(), None).run())
        socket.asks.put_nowait(json.dumps({"ask": "follow", "follow": 1, "query": "q"}))
        with pytest.raises(ValueError, match="in a test"):
            await watch.run()
        await until(lambda: sum("a fault of the console" in text for text in socket.sent) == 2, "the page is told of both")
        assert logged == ["KeyError(None)"]
        serving.cancel()
        with pytest.raises(KeyError):
            await Page(Broken(), watch, Faulty(), None).run()

    asyncio.run(test())


def test_a_follow_tells_the_last_rows_and_how_many_came() -> None:
    follow = Follow(7)
    assert follow.message() is None
    follow.columns, follow.came = [["x", "INT"]], 300
    follow.rows.extend(f'{{"x": {number}}}' for number in range(300))
    told = json.loads(follow.message() or "")
    assert (told["follow"], told["came"], len(told["rows"]), told["rows"][-1]) == (7, 300, ROWS_KEPT, {"x": 299})
    assert follow.message() is None


def test_a_trace_becomes_spans_and_orders_from_its_first_moment_on() -> None:
    instant = {"ph": "i", "tid": 3, "ts": 100.0, "name": "order 4", "args": {"steps": ["a", "b"], "rank": 1.5}}
    span = {"ph": "X", "tid": 2, "ts": 103.0, "dur": 2.0, "name": "b", "args": {"rows": 7, "out": 1}}
    arrived = {"ph": "i", "tid": 3, "ts": 90.0, "name": "arrived log 1", "args": {"rows": 3}}
    told = digest([{"ph": "M", "name": "thread_name"}, arrived, instant, span])
    assert told["operators"] == ["b"]
    assert told["spans"] == [[13.0, 2.0, 0, 7, 1]]
    assert told["orders"] == [{"at": 10.0, "order": "4", "steps": ["a", "b"], "rank": 1.5}]
    many = digest([{**span, "ts": float(number)} for number in range(SPANS_TOLD_MAX + 5)])
    assert (len(many["spans"]), many["spans_in_all"], many["spans"][-1][0]) == (SPANS_TOLD_MAX, SPANS_TOLD_MAX + 5, SPANS_TOLD_MAX + 4)
    assert digest([])["orders"] == []


def test_a_simulation_is_one_at_a_time_bounded_and_of_policies_only() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute("CREATE STREAM s (x INT)")
        await client.execute("CREATE QUERY q AS SELECT x FROM s")
        await client.publish("s", [{"x": number} for number in range(100)])
        connections = OneEach(harness.address)
        asked = {"last_s": 60.0, "policies": ["fcfs", "hnr:level=query"]}
        simulations = Simulations()
        first = asyncio.create_task(simulations.simulate(connections, None, asked))
        await until(lambda: simulations._alone.busy, "it runs")
        with pytest.raises(MillstreamError, match="another simulation"):
            await simulations.simulate(connections, None, asked)
        assert [run["results"] for run in (await first)["runs"]] == [100.0, 100.0]
        advice = await simulations.advise(connections, None, {"last_s": 60.0, "objective": "p99", "minutes": 0.02})
        assert advice["advice"]["present"].startswith("fcfs")
        with pytest.raises(ValueError, match="objective"):
            await simulations.advise(connections, None, {"last_s": 60.0, "objective": "luck", "minutes": 0.02})
        with pytest.raises(MillstreamError, match=r"longer than 0\.01 s"):
            await Simulations(0.01).simulate(connections, None, asked)
        with pytest.raises(MillstreamError, match="the simulation failed"):
            await simulations.simulate(connections, None, {**asked, "policies": ["nonsense"]})
        for wrong in (
            {"load": "--plot"},
            {"policies": ["user:file=/etc/passwd"]},
            {"policies": []},
            {"policies": ["--plot"]},
            {"last_s": float("nan")},
        ):
            with pytest.raises(ValueError, match=r"polic|number|load is one"):
                await simulations.simulate(connections, None, {**asked, **wrong})
        assert simulations._alone.busy is False

    live_server.run(test)


def test_a_command_is_bounded_in_time_memory_and_what_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.client.console.processes._COMMAND", "import sys; exec(sys.argv[1])")
    monkeypatch.setenv("MILLSTREAM_ADMIN_TOKEN", "a")
    heard: list[str] = []

    async def test() -> None:
        def run(code: str, seconds_max: float = 30.0) -> Any:
            return printed("the command", (code,), Bounds(seconds_max, "ask for less"), heard.append)

        told = "import os; print(7, [name for name in os.environ if name.endswith('_TOKEN') and name.startswith('MILLSTREAM_')])"
        assert await run(f"{told}; print('1/2', 'x' * 70000, 'end', file=sys.stderr)") == "7 []\n"
        assert heard[-1].endswith("end")
        with pytest.raises(MillstreamError, match=r"longer than 0\.2 s and was ended; ask for less"):
            await run("import subprocess; subprocess.run(['sleep', '100'])", 0.2)
        with pytest.raises(MillstreamError, match="printed more than"):
            await run(f"sys.stdout.write('x' * ({OUTPUT_BYTES_MAX} + 1)); import time; time.sleep(100)")
        with pytest.raises(MillstreamError, match="the command failed: no luck"):
            await run("print('first', 'error: no luck', sep=chr(10), file=sys.stderr); sys.exit(1)")

        monkeypatch.setattr("millstream.client.console.processes._COMMAND", f"{bound}({{}}, {{}}); import sys; exec(sys.argv[1])")
        with pytest.raises(MillstreamError, match="the command failed: it ended with -24"):  # SIGXCPU
            await printed("the command", ("while True: pass",), Bounds(60.0, ""))

    bound = "from millstream.client.commands.common import bound_process; bound_process"
    monkeypatch.setattr("millstream.client.console.processes.CPU_TIMES", 1 / 60)
    asyncio.run(test())
    monkeypatch.undo()

    async def with_little_memory() -> None:
        with pytest.raises(MillstreamError, match="the command failed"):
            await printed("the command", ("experiment", "run", "p-burst"), Bounds(30.0, "", memory_bytes_max=2**24))

    asyncio.run(with_little_memory())


def test_the_page_on_the_experiments_is_read_whole() -> None:
    page = (ROOT / "docs" / "experiments.md").read_text("utf-8")
    found = experiments(page)
    (held, total) = map(int, re.findall(r"\*\*(\d+) of (\d+) claims hold", page)[0])
    claims = [claim for one in found for claim in one["claims"]]
    assert (sum(claim["holds"] for claim in claims), len(claims)) == (held, total)
    assert [one["name"] for one in found] == re.findall(r"^## (\S+)$", page, re.MULTILINE)
    assert all(one["title"] and one["source"] and one["setup"] and one["scale"] for one in found)
    assert {one["name"] for one in found if one["live"]} >= {"c-threads", "d-dilos-live"}
    assert all((ROOT / "docs" / "experiments" / f"{one['name']}.svg").is_file() for one in found)
    assert experiments("") == []


def test_one_experiment_runs_at_a_time_and_only_an_admin_starts_it(bundle: Path) -> None:
    (bundle / files.EXPERIMENTS).write_text((ROOT / "docs" / "experiments.md").read_text("utf-8"))

    async def test(harness: Harness) -> None:
        async with asking(harness, bundle) as web:

            async def ask(do: Any, name: Any = "p-burst", token: str = "a") -> httpx.Response:
                return await web.post("/api/experiment", json={"do": do, "name": name}, headers={"Authorization": f"Bearer {token}"})

            for do in ("start", "stop"):
                assert (await ask(do, token="r")).json()["message"].endswith("needs the admin role, and your token grants reader")
            assert (await ask("list", token="wrong")).status_code == 401
            assert len((await ask("list", token="r")).json()["experiments"]) == 51
            assert (
                (await ask("start", "../x")).status_code
                == (await ask("start", None)).status_code
                == (await ask("dance")).status_code
                == 400
            )
            assert (await ask("figure")).json()["code"] == "not_found"
            assert (await ask("start")).json()["running"]["name"] == "p-burst"
            assert (await ask("start", "p-memory")).json()["hint"] == "one runs at a time: wait, or stop it"
            stopped = (await ask("stop")).json()
            assert (stopped["running"], stopped["ended"]["p-burst"]["problem"]) == (None, "it was stopped")

    live_server.run(test, admin_token="a", reader_token="r")


def test_few_runs_are_kept_and_one_that_takes_long_is_ended() -> None:
    async def test() -> None:
        runs = ExperimentRuns(0.05)
        runs.start("p-burst")
        await until(lambda: runs.state()["running"] is None, "it was ended")
        assert "longer than 0.05 s" in runs.state()["ended"]["p-burst"]["problem"]
        for number in range(RUNS_KEPT + 1):
            runs._keep(str(number), {}, "<svg/>")
        assert list(runs.state()["ended"]) == [str(number) for number in range(1, RUNS_KEPT + 1)]
        with pytest.raises(MillstreamError, match="no figure"):
            runs.figure("0")
        assert runs.figure("8") == "<svg/>"

    asyncio.run(test())
