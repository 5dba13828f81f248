"""Writes the times of cron expressions as PyPI's cronsim has them, which follows Debian's cron.

usage: cron_times.py FOLDER

FOLDER/times.json gets a list of rows [ZONE, EXPRESSION, FROM, UPTO, [TIME, ...]], times in Unix minutes. Each zone has
the years in which its clocks change both ways, and one in which they do not. Expressions of many times are written
around the changes alone. HIVEKEEP_CRONSIM=FOLDER has the tests of actors/manifest read it.
"""

import json
import pathlib
import sys
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from cronsim import CronSim

ZONES = {
    "America/New_York": [2018, 2026],
    "Europe/Berlin": [2018, 2026],
    "Australia/Lord_Howe": [2018, 2026],
    "America/Sao_Paulo": [2018, 2026],
    "Asia/Kathmandu": [1985, 1986, 2026],
}
HOURS = ["0", "1", "2", "3", "23", "0,1,2,3", "1-3", "8-17", "*/2", "*/3", "1-23/2", "*"]
MINUTES = ["0", "15", "30", "59", "0,30", "*/15", "*/30", "5-59/20", "10-20", "*"]
DAYS = [
    "1 * *", "15 3 *", "29 2 *", "31 * *", "L * *", "* * 0", "* * 1-5", "* * SUN", "1 * 1", "*/2 * 1",
    "1-7 * */2", "* 1-6/2 *", "* * 6#1", "* 10,11,3,2 7", "8-14 3,11 SUN",
]
MOST = 800


def minute(time):
    return int(time.timestamp()) // 60


def changes(zone, begin, end):
    found, time = [], begin
    while time < end:
        after = time + timedelta(hours=1)
        if time.astimezone(zone).utcoffset() != after.astimezone(zone).utcoffset():
            found.append(time)
        time = after
    return found


def times(zone, expression, begin, end, most):
    found = []
    for time in CronSim(expression, begin.astimezone(zone)):
        if time.astimezone(timezone.utc) > end or len(found) > most:
            return found
        found.append(minute(time))


def main():
    rows = []
    expressions = [f"{minute} {hour} * * *" for hour in HOURS for minute in MINUTES]
    expressions += [f"30 2 {day}" for day in DAYS] + [f"*/20 1 {day}" for day in DAYS]
    for name, years in ZONES.items():
        zone = ZoneInfo(name)
        for year in years:
            begin, end = (datetime(at, 1, 1, tzinfo=timezone.utc) for at in (year, year + 1))
            days = timedelta(days=2)
            around = [(at - days, at + days) for at in changes(zone, begin, end)]
            for expression in expressions:
                whole = times(zone, expression, begin, end, MOST)
                if len(whole) <= MOST:
                    rows.append([name, expression, minute(begin), minute(end), whole])
                    continue
                for start, stop in around:
                    some = times(zone, expression, start, stop, 4 * 24 * 60)
                    rows.append([name, expression, minute(start), minute(stop), some])
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "times.json").write_text(json.dumps(rows))
    print(f"{len(rows)} rows, {sum(len(row[4]) for row in rows)} times")


main()
