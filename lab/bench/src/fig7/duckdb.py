# Clusters documents by three keys with DuckDB, column by column or row by row; driven by
# `percolator-bench fig7`. Arguments: threads, most memory, a directory for data beyond it, and the bytes of
# each document's body. Column by column, no body is carried.
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

# DuckDB draws a progress bar on stdout when a query takes long; stdout is only for answers.
answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

threads, memory, scratch, body_bytes = sys.argv[1:5]
db = duckdb.connect()
db.execute(f"SET threads = {int(threads)}")
db.execute(f"SET memory_limit = '{memory}'")
db.execute("SET temp_directory = ?", [scratch])
db.execute("SET preserve_insertion_order = false")
db.execute("SET enable_progress_bar = false")
COLUMNS = "columns = {'id': 'UBIGINT', 'k1': 'UBIGINT', 'k2': 'UBIGINT', 'k3': 'UBIGINT'}"
# As random as another body, so that no file is smaller for being compressed; an MD5 sum is of 16 bytes.
SUMS = [f"md5(concat(id, '-', {n}))" for n in range(-(-int(body_bytes) // 16))]
BODY = f"unhex(left({' || '.join(SUMS)}, {2 * int(body_bytes)}))" if SUMS else None
base = None


def quoted(path):
    return "'" + path.replace("'", "''") + "'"


def csv(path):
    return f"read_csv({quoted(path)}, header = false, {COLUMNS})"


def rows(arrivals, out):
    """Each pass reads and writes every row, its body with it."""
    source = f"SELECT id, k1, k2, k3, body FROM {base}"
    if arrivals:
        source += f" UNION ALL SELECT id, k1, k2, k3, {BODY} AS body FROM {csv(arrivals)}"
    passes = [quoted(os.path.join(scratch, f"pass{n}.parquet")) for n in (1, 2)]
    # The representative of a document so far goes with it, with the keys that are still to come.
    write(
        f"WITH docs AS ({source}), first AS (SELECT k1, min(id) AS cluster, arg_min(k2, id) AS c2, "
        "arg_min(k3, id) AS c3 FROM docs GROUP BY k1) "
        "SELECT docs.id, first.cluster, first.c2, first.c3, docs.body FROM docs JOIN first USING (k1)",
        passes[0],
    )
    write(
        "WITH second AS (SELECT c2, min(cluster) AS cluster, arg_min(c3, cluster) AS c3 "
        f"FROM {passes[0]} GROUP BY c2) SELECT docs.id, second.cluster, second.c3, docs.body "
        f"FROM {passes[0]} AS docs JOIN second USING (c2)",
        passes[1],
    )
    write(
        f"WITH third AS (SELECT c3, min(cluster) AS cluster FROM {passes[1]} GROUP BY c3) "
        f"SELECT docs.id, third.cluster, docs.body FROM {passes[1]} AS docs JOIN third USING (c3)",
        quoted(out),
    )


def write(query, to):
    db.execute(f"COPY ({query}) TO {to} (FORMAT parquet)")


def columns(arrivals, out):
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
    write(
        "SELECT docs.id AS id, pass3.id AS cluster FROM docs JOIN pass1 ON docs.k1 = pass1.k1 "
        "JOIN pass2 ON pass1.k2 = pass2.k2 JOIN pass3 ON pass2.k3 = pass3.k3",
        quoted(out),
    )


for line in sys.stdin:
    request = json.loads(line)
    try:
        if "base" in request:
            base = quoted(request["parquet"])
            body = f", {BODY} AS body" if BODY else ""
            write(f"SELECT *{body} FROM {csv(request['base'])}", base)
        elif "cycle" in request:
            (rows if BODY else columns)(request["cycle"], request["out"])
        else:
            source = f"SELECT cluster FROM {quoted(request['read'])} ORDER BY id"
            db.execute(f"COPY ({source}) TO {quoted(request['csv'])} (FORMAT csv, HEADER false)")
        usage = resource.getrusage(resource.RUSAGE_SELF)
        answer = {"cpu": usage.ru_utime + usage.ru_stime}
    except duckdb.Error as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), file=answers, flush=True)
