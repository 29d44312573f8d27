"""Google's Python client against the server at BIGTABLE_EMULATOR_HOST: the classic client and the
data client, every request that they have. Ends with 0 if all answers were right."""

from google.api_core.exceptions import AlreadyExists, NotFound
from google.cloud import bigtable
from google.cloud.bigtable import column_family, row_filters
from google.cloud.bigtable.data import (
    BigtableDataClient,
    DeleteAllFromRow,
    ReadRowsQuery,
    RowMutationEntry,
    RowRange,
    SetCell,
)
from google.cloud.bigtable.data.read_modify_write_rules import AppendValueRule, IncrementRule
from google.cloud.bigtable.data.row_filters import (
    CellsColumnLimitFilter,
    PassAllFilter,
    ValueRegexFilter,
)
from google.cloud.bigtable.row_set import RowSet


def expect(what, got, wanted):
    if got != wanted:
        raise SystemExit(f"{what}: got {got!r}, wanted {wanted!r}")


def classic():
    client = bigtable.Client(project="p", admin=True)
    instance = client.instance("i")
    expect("the instance exists", instance.exists(), True)
    table = instance.table("classic")
    expect("the table exists", table.exists(), False)
    rule = column_family.MaxVersionsGCRule(2)
    table.create(column_families={"a": rule, "b": None}, initial_split_keys=["m"])
    expect("the table exists", table.exists(), True)
    try:
        table.create()
        raise SystemExit("created twice")
    except AlreadyExists:
        pass
    expect("families", sorted(table.list_column_families()), ["a", "b"])
    table.column_family("c").create()
    table.column_family("b").delete()
    expect("families", sorted(table.list_column_families()), ["a", "c"])
    expect("tables", [t.table_id for t in instance.list_tables()], ["classic"])

    rows = []
    for number in range(20):
        row = table.direct_row(f"row{number:02}")
        row.set_cell("a", b"q", f"value{number}")
        row.set_cell("c", b"\x00\xff", b"\x80" * number)
        rows.append(row)
    expect("outcomes", {status.code for status in table.mutate_rows(rows)}, {0})
    row = table.read_row("row07")
    expect("a value", row.cells["a"][b"q"][0].value, b"value7")
    expect("a value", row.cells["c"][b"\x00\xff"][0].value, b"\x80" * 7)
    expect("a row that is absent", table.read_row("nothing"), None)
    expect("rows", len(list(table.read_rows())), 20)
    some = RowSet()
    some.add_row_key("row03")
    some.add_row_range_from_keys(start_key=b"row10", end_key=b"row13")
    got = [row.row_key for row in table.read_rows(row_set=some)]
    expect("rows", got, [b"row03", b"row10", b"row11", b"row12"])
    only = row_filters.RowFilterChain(
        filters=[
            row_filters.FamilyNameRegexFilter("a"),
            row_filters.ValueRangeFilter(start_value=b"value18"),
        ]
    )
    got = [row.row_key for row in table.read_rows(filter_=only, limit=2)]
    expect("rows", got, [b"row02", b"row03"])

    conditional = table.conditional_row("row01", row_filters.ValueRegexFilter(b"value1"))
    conditional.set_cell("a", b"matched", b"yes", state=True)
    conditional.set_cell("a", b"matched", b"no", state=False)
    expect("the predicate", conditional.commit(), True)
    append = table.append_row("row01")
    append.append_cell_value("a", b"matched", b"!")
    append.increment_cell_value("a", b"count", 3)
    changed = append.commit()
    expect("appended", changed["a"][b"matched"][0][0], b"yes!")
    expect("counted", changed["a"][b"count"][0][0], b"\0\0\0\0\0\0\0\3")
    samples = [sample.row_key for sample in table.sample_row_keys()]
    expect("samples", samples, [b"m", b"row19", b""])
    table.drop_by_prefix("row1")
    expect("rows", len(list(table.read_rows())), 10)
    table.truncate()
    expect("rows", len(list(table.read_rows())), 0)
    table.delete()
    expect("the table exists", table.exists(), False)
    try:
        table.read_row("row01")
        raise SystemExit("read a deleted table")
    except NotFound:
        pass


def data():
    admin = bigtable.Client(project="p", admin=True)
    admin.instance("i").table("data").create(column_families={"a": None})
    with BigtableDataClient(project="p") as client, client.get_table("i", "data") as table:
        table.mutate_row("r", [SetCell("a", b"q", b"v", timestamp_micros=1000)])
        large = b"x" * (3 << 20)
        entries = [
            RowMutationEntry(f"s{n}", [SetCell("a", b"q", large if n == 5 else b"w")])
            for n in range(10)
        ]
        table.bulk_mutate_rows(entries)
        cell = table.read_row("r").cells[0]
        expect("a cell", (cell.qualifier, cell.timestamp_micros, cell.value), (b"q", 1000, b"v"))
        query = ReadRowsQuery(row_ranges=[RowRange("s4", "s7")], row_filter=CellsColumnLimitFilter(1))
        got = [(row.row_key, len(row.cells[0].value)) for row in table.read_rows(query)]
        expect("rows", got, [(b"s4", 1), (b"s5", len(large)), (b"s6", 1)])
        expect("a row exists", (table.row_exists("r"), table.row_exists("x")), (True, False))
        matched = table.check_and_mutate_row(
            "r",
            ValueRegexFilter(b"v"),
            true_case_mutations=SetCell("a", b"then", b"1"),
            false_case_mutations=SetCell("a", b"else", b"1"),
        )
        expect("the predicate", matched, True)
        absent = table.check_and_mutate_row(
            "absent", PassAllFilter(True), false_case_mutations=DeleteAllFromRow()
        )
        expect("the predicate", absent, False)
        rules = [AppendValueRule("a", b"then", b"2"), IncrementRule("a", b"n", 2)]
        changed = table.read_modify_write_row("r", rules)
        expect("changed", [cell.value for cell in changed], [b"\0\0\0\0\0\0\0\2", b"12"])
        expect("samples", table.sample_row_keys()[-1][0], b"")


classic()
data()
