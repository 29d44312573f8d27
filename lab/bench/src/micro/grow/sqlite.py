# Grows a table of SQLite and measures it; driven by `percolator-bench micro grow`. Arguments: the directory,
# rows before, rows to have, seconds for each operation, megabytes of cache, seed. Prints a line of JSON.
import itertools
import json
import os
import random
import sqlite3
import struct
import sys
import time

directory, first, rows, seconds, cache_mb, seed = sys.argv[1:7]
first, rows, seconds, cache_mb = int(first), int(rows), float(seconds), int(cache_mb)
random.seed(int(seed))
VALUE_BYTES, SCANNED, SORTED, CALLS = 100, 1000, 1_000_000, 100
MASK = (1 << 64) - 1
wrong = 0


def name(row):
    """As `name` of work.rs."""
    mixed = ((row ^ (row >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return f"{mixed ^ (mixed >> 31):016x}"


def value(row):
    return struct.pack(">Q", row) + random.randbytes(VALUE_BYTES // 2 - 8) + b"\7" * (VALUE_BYTES // 2)


def check(found, row):
    global wrong
    wrong += found is None or len(found[0]) != VALUE_BYTES or struct.unpack_from(">Q", found[0])[0] != row


def connect():
    db = sqlite3.connect(os.path.join(directory, "rows.sqlite"), isolation_level=None)
    for pragma in ("journal_mode = wal", "synchronous = normal", f"cache_size = -{cache_mb * 1024}"):
        db.execute(f"PRAGMA {pragma}")
    db.execute("CREATE TABLE IF NOT EXISTS rows (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
    return db


def drawn():
    row = random.randrange(rows)
    return row, name(row)


GET, SET = "SELECT value FROM rows WHERE name = ?", "UPDATE rows SET value = ? WHERE name = ?"
SCAN = "SELECT name, value FROM rows WHERE name >= ? LIMIT ?"


def call(_):
    db.execute("SELECT 1").fetchone()


def get(drawn):
    check(db.execute(GET, (drawn[1],)).fetchone(), drawn[0])


def absent(drawn):
    global wrong
    # No name begins with an x.
    wrong += db.execute(GET, ("x" + drawn[1],)).fetchone() is not None


def update(*drawn):
    db.execute("BEGIN IMMEDIATE")
    for row, name in drawn:
        check(db.execute(GET, (name,)).fetchone(), row)
        db.execute(SET, (struct.pack(">Q", row) + tails[row % len(tails)], name))
    db.execute("COMMIT")


def scan(drawn):
    global wrong
    found = db.execute(SCAN, (drawn[1], SCANNED)).fetchall()
    wrong += not found
    return len(found)


def measure(operation, rows_of_each=1):
    """The mean and quantiles of an operation in microseconds; rows are drawn before they are timed."""
    times, count, elapsed, cpu = [], 0, 0.0, 0.0
    while elapsed < seconds:
        asked = [[drawn() for _ in range(rows_of_each)] for _ in range(CALLS)]
        begun_cpu, last = time.process_time(), time.perf_counter()
        begun = last
        for one in asked:
            done = operation(*one)
            now = time.perf_counter()
            each = done or 1
            times.append((now - last) / each)
            count, last = count + each, now
        elapsed, cpu = elapsed + last - begun, cpu + time.process_time() - begun_cpu
    times.sort()
    us = lambda seconds: round(seconds * 1e6, 2)
    return {
        "us": us(elapsed / count),
        "cpu_us": us(cpu / count),
        "p50_us": us(times[len(times) // 2]),
        "p99_us": us(times[len(times) * 99 // 100]),
    }


os.makedirs(directory, exist_ok=True)
db = connect()
load, load_cpu = 0.0, 0.0
for start in range(first, rows, SORTED):
    cells = iter(sorted((name(row), value(row)) for row in range(start, min(start + SORTED, rows))))
    begun, begun_cpu = time.perf_counter(), time.process_time()
    while batch := list(itertools.islice(cells, 1000)):
        db.execute("BEGIN")
        db.executemany("INSERT INTO rows VALUES (?, ?)", batch)
        db.execute("COMMIT")
    load, load_cpu = load + time.perf_counter() - begun, load_cpu + time.process_time() - begun_cpu
each = 1e6 / (rows - first)
told = {"load": {"us": load * each, "cpu_us": load_cpu * each}}
tails = [value(0)[8:] for _ in range(1000)]
told["call"] = measure(call)
told["get"] = measure(get)
told["absent"] = measure(absent)
told["update"] = measure(update)
told["two"] = measure(update, 2)
told["scan"] = measure(scan)
with open("/proc/self/status") as status:
    memory = next((line for line in status if line.startswith("VmRSS:")), None)
told["memory_mb"] = round(int(memory.split()[1]) * 1024 / 1e6) if memory else None
db.close()
begun = time.perf_counter()
db = connect()
get(drawn())
told["open_ms"] = round((time.perf_counter() - begun) * 1000, 1)
db.close()
told["wrong"] = wrong
print(json.dumps(told))
