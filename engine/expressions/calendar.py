"""The proleptic Gregorian calendar in plain integers, for any year an int64 of microseconds can name."""

from __future__ import annotations

US_PER_MS = 1_000
US_PER_S = 1_000_000
US_PER_MINUTE = 60 * US_PER_S
US_PER_HOUR = 60 * US_PER_MINUTE
US_PER_DAY = 24 * US_PER_HOUR
US_PER_WEEK = 7 * US_PER_DAY

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1

DAYS_PER_ERA = 146_097  # 400 years
MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_leap(year: int) -> bool:
    """Tell whether the year has a 29th of February."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in_month(year: int, month: int) -> int:
    """Return the number of days of a month (1 to 12)."""
    return 29 if month == 2 and is_leap(year) else MONTH_DAYS[month - 1]


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a calendar date; years before 1 count 0, -1, …

    Counts in years that begin in March, so that the leap day is the last of its year.
    """
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * DAYS_PER_ERA + day_of_era - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Return (year, month, day) of a number of days since 1970-01-01."""
    era, day_of_era = divmod(days + 719_468, DAYS_PER_ERA)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year_of_era + era * 400 + (month <= 2), month, day
