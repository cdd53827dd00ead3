"""The month of flights: what is in the package, and that the cut does what it says."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import duckdb
import pyarrow.parquet
from millstream.feeder import flights


def test_the_month_is_in_the_package_in_order_of_time() -> None:
    for path, rows in [(flights.DEPARTURES, 23_690), (flights.ARRIVALS, 23_611), (flights.WEATHER, 2_010)]:
        times = pyarrow.parquet.read_table(path, columns=["ts"])["ts"].to_pylist()
        assert len(times) == rows
        assert times == sorted(times)


def test_every_airline_and_airport_named_is_described() -> None:
    ((airlines, airports),) = duckdb.execute(
        f"""SELECT count(*) FILTER (WHERE a.carrier IS NULL), count(*) FILTER (WHERE p.faa IS NULL) FROM '{flights.DEPARTURES}' d
            LEFT JOIN '{flights.AIRLINES}' a USING (carrier) LEFT JOIN '{flights.AIRPORTS}' p ON p.faa = d.dest"""
    ).fetchall()
    assert airlines == 0
    # The data names a few Caribbean airports that its own list does not have.
    assert airports < 1_000


def test_the_package_stays_small_and_says_its_licence() -> None:
    assert sum(path.stat().st_size for path in flights.FOLDER.iterdir()) < 2_000_000
    assert "CC0" in (flights.FOLDER / "LICENSE.md").read_text()


def test_the_cut_takes_flown_flights_of_the_month_at_their_actual_times(tmp_path: Path) -> None:
    year = tmp_path / "year"
    year.mkdir()
    columns = (
        "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,dest,"
        "air_time,distance,hour,minute,time_hour"
    )
    lines = [
        columns,
        "2013,2,1,530,515,15,830,819,11,UA,1,N1,EWR,IAH,60,1400,5,15,2013-02-01T10:00:00Z",
        "2013,2,1,510,515,-5,830,819,11,AA,2,N2,JFK,MIA,NA,1000,5,15,2013-02-01T10:00:00Z",  # never landed as planned
        "2013,2,1,NA,515,NA,NA,819,NA,AA,3,N3,JFK,MIA,NA,1000,5,15,2013-02-01T10:00:00Z",  # cancelled
        "2013,3,1,515,515,0,830,819,11,UA,4,N1,EWR,IAH,60,1400,5,15,2013-03-01T10:00:00Z",  # another month
    ]
    with lzma.open(year / "flights.csv.xz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    others = {
        "weather": "origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour\n"
        "EWR,2013,2,1,1,39.02,26.06,59.37,NA,10.3,NA,0,1012,10,2013-02-01T06:00:00Z\n",
        "airports": 'faa,name,lat,lon,alt,tz,dst,tzone\nIAH,"Houston, George Bush",1,2,3,-6,A,x\nXXX,Nowhere,1,2,3,-6,A,x\n',
        "airlines": "carrier,name\nUA,United\nZZ,Nobody\n",
    }
    for name, text in others.items():
        with gzip.open(year / f"{name}.csv.gz", "wt") as file:
            file.write(text)
    counts = flights.cut(year, tmp_path)
    assert counts == {"departures.parquet": 2, "arrivals.parquet": 1, "weather.parquet": 1, "airlines.csv": 1, "airports.csv": 1}
    departures = pyarrow.parquet.read_table(tmp_path / "departures.parquet")
    assert [(row["ts"].isoformat(), row["flight"]) for row in departures.to_pylist()] == [
        ("2013-02-01T10:10:00+00:00", 2),
        ("2013-02-01T10:30:00+00:00", 1),
    ]
    (arrival,) = pyarrow.parquet.read_table(tmp_path / "arrivals.parquet").to_pylist()
    assert (arrival["ts"].isoformat(), arrival["flight"]) == ("2013-02-01T11:30:00+00:00", 1)
