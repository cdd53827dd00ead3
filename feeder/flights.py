"""The month of flights that comes with the package: where it lies, and how it was cut from the year.

`python -m millstream.feeder.flights YEAR_FOLDER` reads the whole year (`flights.csv.xz`, `weather.csv.gz`, `airports.csv.gz`,
`airlines.csv.gz` of the nycflights13 data) and writes the month into `demo_data/`. Three streams in the order in which a live
feed would give them, that is by event time, and two tables.

A departure's event time is its actual departure: scheduled hour (UTC) + scheduled minute + delay. An arrival's is the departure
plus the air time. Cancelled flights, which have neither, are left out.
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("demo_data")
YEAR, MONTH = 2013, 2  # the month of the snow storm of 8 February

DEPARTURES = FOLDER / "departures.parquet"
ARRIVALS = FOLDER / "arrivals.parquet"
WEATHER = FOLDER / "weather.parquet"
AIRLINES = FOLDER / "airlines.csv"
AIRPORTS = FOLDER / "airports.csv"


def cut(year: Path, folder: Path) -> dict[str, int]:
    """Write the month's five files into `folder`; return the rows of each by file name."""
    flights = _flown(_read(year / "flights.csv.xz"))
    departures = flights.select(
        ["ts", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "air_time", "distance"]
    ).sort_by([("ts", "ascending"), ("carrier", "ascending"), ("flight", "ascending")])
    tables = {
        DEPARTURES.name: departures,
        ARRIVALS.name: _arrivals(departures),
        WEATHER.name: _weather(_read(year / "weather.csv.gz")),
    }
    for name, table in tables.items():
        _write_parquet(table, folder / name)
    airlines = _read(year / "airlines.csv.gz")
    airports = _read(year / "airports.csv.gz").select(["faa", "name", "lat", "lon", "alt"])
    served = {*departures["dest"].to_pylist(), *departures["origin"].to_pylist()}
    tables[AIRLINES.name] = _keep(airlines, "carrier", set(departures["carrier"].to_pylist()))
    tables[AIRPORTS.name] = _keep(airports, "faa", served)
    for name in (AIRLINES.name, AIRPORTS.name):
        _write_csv(tables[name], folder / name)
    return {name: table.num_rows for name, table in tables.items()}


def _read(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    options = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True, column_types={"time_hour": pa.timestamp("us", "UTC")})
    if path.suffix == ".xz":  # Arrow opens gz by itself
        with lzma.open(path) as file:
            return csv.read_csv(file, convert_options=options)
    return csv.read_csv(path, convert_options=options)


def _month(table: Any) -> Any:
    import pyarrow.compute as pc

    return table.filter(pc.and_(pc.equal(table["year"], YEAR), pc.equal(table["month"], MONTH)))


def _after(instants: Any, minutes: Any) -> Any:
    """Return the instants moved by whole minutes (a column of int64, may be null)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.add(instants, pc.multiply(pc.cast(minutes, pa.int64()), 60_000_000).cast(pa.duration("us")))


def _flown(flights: Any) -> Any:
    import pyarrow.compute as pc

    month = _month(flights)
    month = month.filter(pc.is_valid(month["dep_delay"]))
    return month.append_column("ts", _after(month["time_hour"], pc.add(month["minute"], month["dep_delay"])))


def _arrivals(departures: Any) -> Any:
    import pyarrow.compute as pc

    landed = departures.filter(pc.is_valid(departures["air_time"]))
    landed = landed.set_column(0, "ts", _after(landed["ts"], landed["air_time"]))
    order = [("ts", "ascending"), ("carrier", "ascending"), ("flight", "ascending")]
    return landed.select(["ts", "carrier", "flight", "origin", "dest", "arr_delay", "distance"]).sort_by(order)


def _weather(weather: Any) -> Any:
    month = _month(weather).rename_columns({"time_hour": "ts"})
    columns = ["ts", "origin", "temp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib"]
    return month.select(columns).sort_by([("ts", "ascending"), ("origin", "ascending")])


def _keep(table: Any, column: str, wanted: set[str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return table.filter(pc.is_in(table[column], value_set=pa.array(sorted(wanted)))).sort_by(column)


def _write_parquet(table: Any, path: Path) -> None:
    from pyarrow import parquet

    parquet.write_table(table.combine_chunks(), path, compression="zstd", compression_level=19, store_schema=False)


def _write_csv(table: Any, path: Path) -> None:
    from pyarrow import csv

    csv.write_csv(table, path)


def main() -> int:
    """Cut the month from the year in the folder given as the only argument."""
    if len(sys.argv) != 2:
        print("usage: python -m millstream.feeder.flights YEAR_FOLDER", file=sys.stderr)
        return 2
    for name, rows in cut(Path(sys.argv[1]), FOLDER).items():
        print(f"{name}: {rows} rows, {(FOLDER / name).stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
