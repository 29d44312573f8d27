# Overwrites the rows of a table of SQLite at a fixed rate, for `percolator-bench micro churn`.
# Arguments: the directory, rows, updates a second, the length of a minute in seconds, seconds of
# retention (not used: SQLite keeps no older versions), seed. Prints a line of JSON for each minute,
# one for each line that it reads.
import json
import os
import random
import sqlite3
import struct
import sys
import time

directory, rows, rate, minute, _, seed = sys.argv[1:7]
rows, rate, minute = int(rows), int(rate), float(minute)
random.seed(int(seed))
# As in work.rs and bed.rs, and the cache as in an embedded store.
KEY_BYTES, VALUE_BYTES, NUMBER_BYTES, SLOW, CACHE_MB = 24, 300, 8, 0.020, 128
GET, SET = "SELECT value FROM rows WHERE name = ?", "UPDATE rows SET value = ? WHERE name = ?"
updated = [0] * rows


def name(row):
    return f"{row:0{KEY_BYTES}}"


def value(number):
    tail = random.randbytes(VALUE_BYTES // 2 - NUMBER_BYTES) + b"\7" * (VALUE_BYTES // 2)
    return struct.pack(">Q", number) + tail


def update(row, new):
    db.execute("BEGIN IMMEDIATE")
    found = db.execute(GET, (name(row),)).fetchone()
    db.execute(SET, (new, name(row)))
    db.execute("COMMIT")
    return struct.unpack_from(">Q", found[0])[0] if found else None


def of_system(file, field):
    """A number that the system tells of this process; None if it does not."""
    try:
        with open(f"/proc/self/{file}") as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith(field)), None)
    except OSError:
        return None


def megabytes(number, unit=1):
    return None if number is None else round(number * unit / 1e6)


def one_minute():
    times, done, wrong = [], 0, 0
    written, cpu, begun = of_system("io", "wchar:"), time.process_time(), time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < minute:
        if done >= int(elapsed * rate):
            time.sleep(0.001)
            continue
        row = random.randrange(rows)
        new = value(updated[row] + 1)
        start = time.perf_counter()
        old = update(row, new)
        times.append(time.perf_counter() - start)
        wrong += old != updated[row]
        updated[row] += 1
        done += 1
    cpu, after = time.process_time() - cpu, of_system("io", "wchar:")
    times.sort()
    us = lambda share: times[int((done - 1) * share)] * 1e6 if done else 0
    return {
        "cpu_us": cpu * 1e6 / done if done else None,
        "updates": done,
        "p50_us": us(0.5),
        "p99_us": us(0.99),
        "slowest_ms": us(1) / 1e3,
        "slow": sum(took > SLOW for took in times),
        "written_mb": None if None in (written, after) else megabytes(after - written),
        "memory_mb": megabytes(of_system("status", "VmRSS:"), 1024),
        "wrong": wrong,
    }


os.makedirs(directory, exist_ok=True)
db = sqlite3.connect(os.path.join(directory, "rows.sqlite"), isolation_level=None)
for pragma in ("journal_mode = wal", "synchronous = normal", f"cache_size = -{CACHE_MB * 1024}"):
    db.execute(f"PRAGMA {pragma}")
db.execute("CREATE TABLE rows (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
for first in range(0, rows, 1000):
    db.execute("BEGIN")
    cells = ((name(row), value(0)) for row in range(first, min(first + 1000, rows)))
    db.executemany("INSERT INTO rows VALUES (?, ?)", cells)
    db.execute("COMMIT")
for _ in sys.stdin:
    print(json.dumps(one_minute()), flush=True)
db.close()
