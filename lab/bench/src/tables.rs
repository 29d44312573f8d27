//! Turns a benchmark's JSON into tables, for a terminal and for the document about all
//! benchmarks.

use serde_json::Value;

use crate::report::number;

pub(crate) const FIGURES: [&str; 7] =
    ["figure", "median", "95 %", "each CPU-s", "bar", "paper", ""];

/// The row of a figure in its benchmark's table.
pub(crate) fn figure_row(figure: &Value) -> [String; 7] {
    let of = |name: &str| figure[name].as_f64();
    let text = |name: &str| of(name).map(number).unwrap_or_default();
    let interval = of("low").zip(of("high")).map(|(low, high)| interval(low, high));
    let sign = if figure["at_most"] == true { "<=" } else { ">=" };
    [
        plain(&figure["name"]),
        text("median"),
        interval.unwrap_or_default(),
        text("median_per_cpu"),
        of("bar").map(|bar| format!("{sign} {}", number(bar))).unwrap_or_default(),
        text("paper"),
        figure["verdict"].as_str().unwrap_or_default().to_owned(),
    ]
}

/// An interval, unless it is a single value.
pub(crate) fn interval(low: f64, high: f64) -> String {
    if low < high { format!("{} to {}", number(low), number(high)) } else { String::new() }
}

/// A string without quotation marks, or a number as in a table.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(n) => n.as_f64().map_or(n.to_string(), number),
        other => other.to_string(),
    }
}

pub(crate) fn list(values: &Value) -> String {
    let values = values.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let values = values.map(|(name, value)| format!("{} {}", name.replace('_', " "), plain(value)));
    values.collect::<Vec<_>>().join(", ")
}

/// Formats the settings of a benchmark in one line.
pub(crate) fn settings(told: &Value) -> String {
    let mut settings = told["settings"].clone();
    // The directory of the data is private.
    settings.as_object_mut().map(|settings| settings.remove("data"));
    list(&settings)
}

/// A column: its heading, and the place of its cell in a row's JSON.
type Column = (&'static str, &'static str);

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) about: &'static str,
    pub(crate) header: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// A table of one benchmark: its subject, the place of its rows, and its columns.
struct Rows {
    about: &'static str,
    at: &'static str,
    columns: &'static [Column],
}

const fn rows(about: &'static str, at: &'static str, columns: &'static [Column]) -> Rows {
    Rows { about, at, columns }
}

/// All tables; each benchmark has some of them. A row without its key number is left out.
const TABLES: [Rows; 11] = [
    rows(
        "The arms:",
        "/arms",
        &[
            ("arm", "/name"),
            ("operations/s", "/ops_per_s"),
            ("each CPU-s", "/ops_per_cpu_s"),
            ("p50 µs", "/p50_us"),
            ("p99 µs", "/p99_us"),
            ("one operation", "/operation"),
        ],
    ),
    rows(
        "Requests to the store for a write of one cell:",
        "/ladder",
        &[
            ("arm", "/arm"),
            ("reads", "/per_transaction/reads"),
            ("writes", "/per_transaction/writes"),
            ("conditions", "/per_transaction/conditions"),
            ("cells changed", "/per_transaction/cells_changed"),
            ("beyond the line above", "/gains"),
        ],
    ),
    rows(
        "Ours, at each rate (parts of the repository in the time of a pass of rows):",
        "/ours",
        &[
            ("rate", "/rate"),
            ("documents/s", "/documents_per_s"),
            ("clustered/s", "/clustered/documents_per_s"),
            ("each CPU-s", "/clustered/documents_per_cpu_s"),
            ("median delay, s", "/delay/median_s"),
            ("95 %", "/delay/p95_s"),
            ("99 %", "/delay/p99_s"),
            ("not kept up with", "/saturated"),
        ],
    ),
    rows(
        "The others, as fast as they go, and what documents wait at the lowest rate:",
        "/rivals",
        &[
            ("program", "/name"),
            ("documents/s", "/documents_per_s"),
            ("each CPU-s", "/documents_per_cpu_s"),
            ("median delay, s", "/rates/0/delay/median_s"),
            ("95 %", "/rates/0/delay/p95_s"),
        ],
    ),
    rows(
        "As fast as it goes:",
        "/arms",
        &[
            ("arm", "/name"),
            ("Trade-Results/s", "/trade_results_per_s/median"),
            ("all/s", "/transactions_per_s/median"),
            ("Trade-Results/CPU-s", "/trade_results_per_cpu_s/median"),
            ("cores used", "/cores_used/median"),
            ("conflicts", "/conflicts"),
        ],
    ),
    rows(
        "At half that rate:",
        "/stores",
        &[
            ("store", "/store"),
            ("all/s", "/open_loop/per_second"),
            ("p50, ms", "/open_loop/p50_ms"),
            ("p99, ms", "/open_loop/p99_ms"),
            ("sent late, p99, ms", "/open_loop/lateness_p99_ms"),
            ("waited when it was given up", "/open_loop/saturated"),
            ("loaded in, s", "/loaded_s"),
            ("violations of the books", "/violations"),
        ],
    ),
    rows(
        "The cost of one operation:",
        "/profile",
        &[
            ("arm", "/arm"),
            ("instructions", "/instructions"),
            ("ours", "/ours"),
            ("the engine's", "/engine"),
            ("the allocator's", "/allocator"),
            ("others'", "/others"),
            ("allocations", "/allocations"),
            ("file calls", "/file_calls"),
            ("written bytes", "/written_bytes"),
        ],
    ),
    rows(
        "Nearer to that rate:",
        "/open_loops",
        &[
            ("store", "/store"),
            ("share", "/share"),
            ("all/s", "/per_second"),
            ("p50, ms", "/p50_ms"),
            ("p99, ms", "/p99_ms"),
            ("sent late", "/sent_late"),
            ("waited when it was given up", "/saturated"),
        ],
    ),
    rows(
        "Minute by minute:",
        "/minutes",
        &[
            ("program", "/program"),
            ("minute", "/minute"),
            ("CPU µs", "/cpu_us"),
            ("p50 µs", "/p50_us"),
            ("p99 µs", "/p99_us"),
            ("slowest ms", "/slowest_ms"),
            ("slow calls", "/slow"),
            ("old get µs", "/old_get_us"),
            ("written MB", "/written_mb"),
            ("disk MB", "/disk_mb"),
            ("memory MB", "/memory_mb"),
        ],
    ),
    rows(
        "As the store grows, microseconds:",
        "/grown",
        &[
            ("rows", "/rows"),
            ("program", "/program"),
            ("load", "/load/us"),
            ("get", "/get/us"),
            ("absent get", "/absent/us"),
            ("update", "/update/us"),
            ("p99", "/update/p99_us"),
            ("two rows", "/two/us"),
            ("observed, CPU", "/observed/cpu_us"),
            ("scan, a row", "/scan/us"),
            ("open, ms", "/open_ms"),
            ("memory, MB", "/memory_mb"),
            ("disk, MB", "/disk_mb"),
        ],
    ),
    rows(
        "Requests for columns:",
        "/reads",
        &[
            ("values", "/values"),
            ("one by one", "/one_by_one"),
            ("with columns read ahead", "/ahead"),
        ],
    ),
];

pub(crate) fn of(told: &Value) -> Vec<Table> {
    let table = |Rows { about, at, columns }: &Rows| {
        let rows = told.pointer(at).and_then(Value::as_array).into_iter().flatten();
        let rows: Vec<Vec<String>> = rows.filter_map(|row| cells(row, columns)).collect();
        let header = columns.iter().map(|(heading, _)| *heading).collect();
        (!rows.is_empty()).then_some(Table { about, header, rows })
    };
    TABLES.iter().filter_map(table).collect()
}

/// The cells of a row; `None` if the row belongs to another table.
fn cells(row: &Value, columns: &[Column]) -> Option<Vec<String>> {
    // The second column identifies the table, because each table has a different one there.
    row.pointer(columns.get(1)?.1).filter(|value| !value.is_null())?;
    let cell = |(_, at): &Column| match row.pointer(at) {
        None | Some(Value::Null) => String::new(),
        Some(Value::Number(n)) => n.as_f64().map_or(n.to_string(), number),
        Some(Value::Bool(yes)) => if *yes { "yes" } else { "" }.to_owned(),
        // Violations appear as their number.
        Some(Value::Array(all)) => all.len().to_string(),
        Some(value) => plain(value),
    };
    Some(columns.iter().map(cell).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_known_by_what_they_have() {
        let of = |told: Value| {
            let rows = of(&told).into_iter().flat_map(|table| table.rows);
            rows.map(|row| row.join("|")).collect::<Vec<_>>().join("\n")
        };
        let arm =
            json!({ "name": "get", "ops_per_s": 12_345.0, "p50_us": 1.25, "operation": "a get" });
        let arms = of(json!({ "arms": [arm] }));
        assert_eq!(arms, "get|12,345||1.25||a get");
        let arm =
            json!({ "name": "rpc_2", "trade_results_per_s": { "median": 96.0 }, "conflicts": 0.0 });
        let arms = of(json!({ "arms": [arm] }));
        assert_eq!(arms, "rpc_2|96||||0");
        let store = json!({ "store": "rpc", "open_loop": { "per_second": 5 }, "violations": [] });
        assert_eq!(of(json!({ "stores": [store] })), "rpc|5||||||0");
        let rate = json!({ "rate": 0.003, "documents_per_s": 9.0, "saturated": true });
        assert_eq!(of(json!({ "ours": [rate] })), "0.0030|9||||||yes");
        assert_eq!(of(json!({})), "");
    }
}
