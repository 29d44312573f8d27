# Clusters documents by three keys with DuckDB, column by column; driven by `percolator bench fig7`.
#
# One request a line on stdin, one answer a line on stdout, both JSON:
#   {"base": CSV, "parquet": FILE}       stores the repository that each cycle begins with
#   {"cycle": CSV or null, "out": FILE}  clusters repository and arrivals: id, cluster
#   {"read": FILE, "csv": FILE}          writes the clusters of a cycle in the order of ids
# The CSV files hold id, k1, k2, k3. Answers: {"cpu": SECONDS} since the process began, or {"error": TEXT}.
import json
import os
import resource
import sys

import duckdb

# DuckDB draws a progress bar on stdout when a query takes long; stdout is for answers alone.
answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

threads, memory, scratch = sys.argv[1:4]
db = duckdb.connect()
db.execute(f"SET threads = {int(threads)}")
db.execute(f"SET memory_limit = '{memory}'")
db.execute("SET temp_directory = ?", [scratch])
db.execute("SET preserve_insertion_order = false")
db.execute("SET enable_progress_bar = false")
COLUMNS = "columns = {'id': 'UBIGINT', 'k1': 'UBIGINT', 'k2': 'UBIGINT', 'k3': 'UBIGINT'}"
base = None


def quoted(path):
    return "'" + path.replace("'", "''") + "'"


def csv(path):
    return f"read_csv({quoted(path)}, header = false, {COLUMNS})"


def cycle(arrivals, out):
    source = f"SELECT id, k1, k2, k3 FROM {base}"
    if arrivals:
        source += f" UNION ALL SELECT * FROM {csv(arrivals)}"
    # Each pass groups the representatives of the one before; ids are joined back once, at the end.
    db.execute(f"CREATE OR REPLACE TEMP TABLE docs AS {source}")
    db.execute(
        "CREATE OR REPLACE TEMP TABLE pass1 AS SELECT k1, min(id) AS id, "
        "arg_min(k2, id) AS k2, arg_min(k3, id) AS k3 FROM docs GROUP BY k1"
    )
    db.execute(
        "CREATE OR REPLACE TEMP TABLE pass2 AS SELECT k2, min(id) AS id, "
        "arg_min(k3, id) AS k3 FROM pass1 GROUP BY k2"
    )
    db.execute("CREATE OR REPLACE TEMP TABLE pass3 AS SELECT k3, min(id) AS id FROM pass2 GROUP BY k3")
    db.execute(
        "COPY (SELECT docs.id AS id, pass3.id AS cluster FROM docs "
        "JOIN pass1 ON docs.k1 = pass1.k1 JOIN pass2 ON pass1.k2 = pass2.k2 "
        f"JOIN pass3 ON pass2.k3 = pass3.k3) TO {quoted(out)} (FORMAT parquet)"
    )


for line in sys.stdin:
    request = json.loads(line)
    try:
        if "base" in request:
            base = quoted(request["parquet"])
            db.execute(f"COPY (SELECT * FROM {csv(request['base'])}) TO {base} (FORMAT parquet)")
        elif "cycle" in request:
            cycle(request["cycle"], request["out"])
        else:
            source = f"SELECT cluster FROM {quoted(request['read'])} ORDER BY id"
            db.execute(f"COPY ({source}) TO {quoted(request['csv'])} (FORMAT csv, HEADER false)")
        usage = resource.getrusage(resource.RUSAGE_SELF)
        answer = {"cpu": usage.ru_utime + usage.ru_stime}
    except duckdb.Error as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), file=answers, flush=True)
