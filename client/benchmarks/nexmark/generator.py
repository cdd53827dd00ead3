"""The events of NEXMark: persons who join an auction site, auctions that they open, and bids.

Proportions, hot keys, delays and disorder as the benchmark documents them (github.com/nexmark/nexmark, Apache-2.0; told anew in
docs/nexmark.md). The events are made in chunks that depend on the seed and their number alone, so any part of them can be made by itself.
The reference has no fixed seed: two implementations agree in shape, not in values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CHUNK_EVENTS = 50_000
BASE_US = 1_436_918_400_000_000  # 2015-07-15 00:00:00 UTC
FIRST_PERSON = FIRST_AUCTION = 1_000
FIRST_CATEGORY = 10
CATEGORIES = 5
PERSONS_ACTIVE = 1_000
AUCTIONS_ACTIVE = 100
LEADS = 10  # newest ids that are named before they exist
HOT_EVERY = 100
CHANNELS = 10_000
BLOCK, PERSONS_PER_BLOCK, AUCTIONS_PER_BLOCK = 50, 1, 3
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100  # a record on average
SCATTER = 953  # by which events of a group are put out of order

FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_SPECIAL_ODDS = 13  # one character in so many is the special one

TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class Chunk:
    """The events of one chunk, a record batch a stream, each in order of arrival."""

    person: pa.RecordBatch
    auction: pa.RecordBatch
    bid: pa.RecordBatch

    def items(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Return the streams' names and rows."""
        yield from (("person", self.person), ("auction", self.auction), ("bid", self.bid))


@dataclass(frozen=True)
class Generator:
    """`events` of a seed at `rate_per_s` of event time. Within groups of `disorder` events arrival is out of order; 1 is none."""

    events: int
    seed: int = 1
    rate_per_s: int = 10_000
    disorder: int = 1

    def chunks(self) -> Iterator[Chunk]:
        """Make the events, a chunk at a time."""
        for number in range(-(-self.events // CHUNK_EVENTS)):
            yield self.chunk(number)

    def chunk(self, number: int) -> Chunk:
        """Make chunk `number`, counted from 0."""
        random = np.random.Generator(np.random.SFC64([self.seed, number]))
        arrived = np.arange(number * CHUNK_EVENTS, min((number + 1) * CHUNK_EVENTS, self.events), dtype=np.int64)
        events = arrived // self.disorder * self.disorder + SCATTER * arrived % self.disorder
        place = events % BLOCK
        is_person = place < PERSONS_PER_BLOCK
        is_auction = ~is_person & (place < PERSONS_PER_BLOCK + AUCTIONS_PER_BLOCK)
        return Chunk(
            self._persons(random, events[is_person]),
            self._auctions(random, events[is_auction]),
            self._bids(random, events[~is_person & ~is_auction]),
        )

    def time_us(self, events: Any) -> Any:
        """Return when events of these numbers happen, in whole milliseconds."""
        return BASE_US + events * 1_000 // self.rate_per_s * 1_000

    @cached_property
    def _channels(self) -> tuple[pa.StringArray, pa.StringArray]:
        """Channels and their addresses: the hot ones first."""
        random = np.random.Generator(np.random.SFC64([self.seed]))
        count = len(HOT_CHANNELS) + CHANNELS
        parts = [words(random, count, 5, "_") for _ in range(3)]
        urls = pc.binary_join_element_wise("https://www.nexmark.com", *parts, "item.htm?query=1", "/")
        marked = ["" for _ in HOT_CHANNELS] + [
            f"&channel_id={_reversed_bits(k)}" if has else "" for k, has in enumerate(random.random(CHANNELS) < 0.9)
        ]
        names = [*HOT_CHANNELS, *(f"channel-{k}" for k in range(CHANNELS))]
        return pa.array(names), pc.binary_join_element_wise(urls, pa.array(marked), "")

    def _persons(self, random: np.random.Generator, events: Any) -> pa.RecordBatch:
        count = len(events)
        name = pc.binary_join_element_wise(_any_of(random, FIRST_NAMES, count), _any_of(random, LAST_NAMES, count), " ")
        email = pc.binary_join_element_wise(words(random, count, 7, " "), "@", words(random, count, 5, " "), ".com", "")
        groups = [pa.array(random.integers(0, 10_000, count)).cast(pa.string()) for _ in range(4)]
        credit_card = pc.binary_join_element_wise(*(pc.utf8_lpad(group, 4, "0") for group in groups), " ")
        city, state = _any_of(random, CITIES, count), _any_of(random, STATES, count)
        size = 8 + sum(_bytes_of(column) for column in (name, email, credit_card, city, state))
        return pa.record_batch(
            {
                "id": pa.array(FIRST_PERSON + _person(events)),
                "name": name,
                "email": email,
                "creditcard": credit_card,
                "city": city,
                "state": state,
                "datetime": self._times(events),
                "extra": paddings(random, size, PERSON_BYTES),
            }
        )

    def _auctions(self, random: np.random.Generator, events: Any) -> pa.RecordBatch:
        count = len(events)
        name, description = words(random, count, 20, " "), words(random, count, 100, " ")
        initial = _prices(random, count)
        at_us = self.time_us(events)
        horizon_ms = (self.time_us(events + AUCTIONS_ACTIVE * BLOCK // AUCTIONS_PER_BLOCK) - at_us) // 1_000
        open_ms = 1 + (random.random(count) * np.maximum(2 * horizon_ms, 1)).astype(np.int64)
        is_hot = random.random(count) < 0.75
        person = _person(events)
        seller = np.where(is_hot, FIRST_PERSON + person // HOT_EVERY * HOT_EVERY, _active_person(random, person))
        return pa.record_batch(
            {
                "id": pa.array(FIRST_AUCTION + _auction(events)),
                "itemname": name,
                "description": description,
                "initialbid": pa.array(initial),
                "reserve": pa.array(initial + _prices(random, count)),
                "datetime": self._times(events),
                "expires": pa.array(at_us + 1_000 * open_ms).view(TIME),
                "seller": pa.array(seller),
                "category": pa.array(FIRST_CATEGORY + random.integers(0, CATEGORIES, count)),
                "extra": paddings(random, 48 + _bytes_of(name) + _bytes_of(description), AUCTION_BYTES),
            }
        )

    def _bids(self, random: np.random.Generator, events: Any) -> pa.RecordBatch:
        count = len(events)
        auction, person = _auction(events), _person(events)
        oldest = np.maximum(auction - AUCTIONS_ACTIVE, 0)
        some = oldest + (random.random(count) * (auction + LEADS + 1 - oldest)).astype(np.int64)
        bidden = np.where(random.random(count) < 0.5, auction // HOT_EVERY * HOT_EVERY, some)
        hot = FIRST_PERSON + person // HOT_EVERY * HOT_EVERY + 1
        bidder = np.where(random.random(count) < 0.75, hot, _active_person(random, person))
        channels, urls = self._channels
        is_hot = random.random(count) < 0.5
        channel = np.where(is_hot, random.integers(0, len(HOT_CHANNELS), count), len(HOT_CHANNELS) + random.integers(0, CHANNELS, count))
        return pa.record_batch(
            {
                "auction": pa.array(FIRST_AUCTION + bidden),
                "bidder": pa.array(bidder),
                "price": pa.array(_prices(random, count)),
                "channel": channels.take(pa.array(channel)),
                "url": urls.take(pa.array(channel)),
                "datetime": self._times(events),
                "extra": paddings(random, np.full(count, 32), BID_BYTES),
            }
        )

    def _times(self, events: Any) -> pa.Array:
        return pa.array(self.time_us(events)).view(TIME)


def _person(events: Any) -> Any:
    """Return the number of the newest person at events of these numbers."""
    return events // BLOCK


def _auction(events: Any) -> Any:
    """Return the number of the newest auction at events of these numbers."""
    return events // BLOCK * AUCTIONS_PER_BLOCK + np.clip(events % BLOCK - PERSONS_PER_BLOCK, -1, AUCTIONS_PER_BLOCK - 1)


def _active_person(random: np.random.Generator, person: Any) -> Any:
    """Return ids of persons among the newest, or of some that are yet to come."""
    active = np.minimum(person + 1, PERSONS_ACTIVE)
    return FIRST_PERSON + person + 1 - active + (random.random(len(person)) * (active + LEADS)).astype(np.int64)


def _prices(random: np.random.Generator, count: int) -> Any:
    """Return prices in cents, from 1 to a million in money, their logarithms spread evenly."""
    return np.round(100 * 10 ** (6 * random.random(count))).astype(np.int64)


def _any_of(random: np.random.Generator, names: tuple[str, ...], count: int) -> pa.StringArray:
    return pa.array(names).take(pa.array(random.integers(0, len(names), count)))


def _bytes_of(column: pa.Array) -> Any:
    return pc.binary_length(column).to_numpy()


def _reversed_bits(number: int) -> int:
    """Return the absolute value of the 32-bit number whose bits are those of `number` in reverse order."""
    turned = int(f"{number:032b}"[::-1], 2)
    return abs(turned - 2**32 if turned >= 2**31 else turned)


# Random texts, a column at a time


def _table(special: str) -> bytes:
    """Return a letter for each value of a random byte: the special one as often as it shall be, the others evenly."""
    specials = round(256 / _SPECIAL_ODDS) if special else 0
    return special.encode() * specials + bytes(_LETTERS[value % len(_LETTERS)] for value in range(256 - specials))


_TABLES = {special: _table(special) for special in ("", " ", "_")}


def texts(random: np.random.Generator, lengths: Any, special: str = "") -> pa.StringArray:
    """Return a text of random letters for each length; one letter in thirteen is `special`. Spaces at the ends of a text are cut off."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    letters = random.bytes(int(offsets[-1])).translate(_TABLES[special])
    made = pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(letters))
    return pc.utf8_trim(made, " ") if special == " " else made


def words(random: np.random.Generator, count: int, characters_max: int, special: str) -> pa.StringArray:
    """Return so many words of 3 up to `characters_max` - 1 characters."""
    return texts(random, 3 + random.integers(0, characters_max - 3, count), special)


def paddings(random: np.random.Generator, bytes_before: Any, bytes_mean: int) -> pa.StringArray:
    """Return texts that bring records of so many bytes to `bytes_mean` on average: 0.8 to 1.2 times what is missing, if anything is."""
    missing = np.maximum(bytes_mean - np.asarray(bytes_before), 0)
    spread = np.round(0.2 * missing).astype(np.int64)
    return texts(random, missing - spread + (random.random(len(missing)) * 2 * spread).astype(np.int64))
