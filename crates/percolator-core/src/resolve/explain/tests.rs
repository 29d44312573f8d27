//! Explains records that hardly any real run leaves behind.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::Strength;
use crate::resolve::inspect::WriteView;

fn ts(n: u64) -> Timestamp {
    Timestamp::new(n).unwrap()
}

fn moment(n: u64) -> Moment {
    Moment { timestamp: ts(n), ..Moment::default() }
}

fn committed(n: u64, start_ts: u64) -> Moment {
    Moment { write: Some(WriteView { start_ts: ts(start_ts), delete: false }), ..moment(n) }
}

/// A cell with these records, which one strong observer observes.
fn state(moments: Vec<Moment>) -> CellState {
    let column = Column::literal("f:a");
    let (table, row) = ("t".to_owned(), RowKey::from("r"));
    let observer = "o".to_owned();
    let observed = Observed {
        table: table.clone(),
        column: column.clone(),
        observer,
        strength: Strength::Strong,
    };
    CellState {
        cell: CellName { table, row, column },
        moments,
        fates: BTreeMap::new(),
        observers: vec![observed],
        paused: Vec::new(),
        floor: ts(0),
        latest: ts(100),
        wall_ms: 0,
        patience: Duration::from_secs(30),
    }
}

fn kinds(state: &CellState) -> Vec<(u64, &'static str)> {
    let lines = state.explain(None).lines;
    lines.iter().map(|line| (line.timestamp.as_u64(), line.kind.name())).collect()
}

#[test]
fn a_value_without_a_record_is_left_over_and_never_read() {
    let state = state(vec![Moment { data: Some("v".into()), ..moment(5) }]);
    assert_eq!(kinds(&state), [(5, "leftover")]);
    assert_eq!(state.explain(None).reader.outcome, ReadOutcome::Absent);
}

#[test]
fn a_record_without_its_value_is_damage() {
    let state = state(vec![committed(6, 5)]);
    let reader = state.explain(None).reader;
    assert_eq!(reader.outcome, ReadOutcome::Damaged);
    assert!(reader.because.contains("Its value at 5 is missing"), "{reader:?}");
    assert_eq!(state.explain(Some(ts(5))).reader.outcome, ReadOutcome::Absent);
}

#[test]
fn a_notification_is_stale_once_all_have_acknowledged_the_newest_change() {
    let notified = |upto| {
        let acks = vec![("o".to_owned(), ts(upto))];
        let change = Moment { notify: true, ..committed(6, 5) };
        state(vec![Moment { acks, ..moment(9) }, change])
    };
    let kind = |upto| kinds(&notified(upto))[2];
    assert_eq!([kind(7), kind(5)], [(6, "stale"), (6, "dirty")]);
    let mut retired = notified(5);
    retired.observers.clear();
    assert_eq!(kinds(&retired)[2], (6, "stale"));
    let mut paused = notified(5);
    paused.paused = paused.observers.clone();
    let text = &paused.explain(None).lines[2].text;
    assert!(text.contains("o (it has seen changes up to 5, paused)"), "{text}");
}
