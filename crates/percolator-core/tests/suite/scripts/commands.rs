//! Runs the commands of scripts that belong to no transaction: faults, observers, time,
//! garbage, judgement.

use std::time::Duration;

use percolator_core::{Column, ReadOutcome, Runtime, Timestamp};

use super::actor::{Done, State};
use super::dump::dump;
use super::runner::{Finding, MAIN, PATIENCE, SETTLE, Script};
use super::watch::{Deed, Watch, register, work};
use crate::faults::{Fault, Op};

impl Script {
    fn crash(&mut self, name: &str) -> String {
        if let Some(actor) = self.actors.remove(name) {
            actor.process.crash();
        }
        String::new()
    }

    fn fault(&mut self, fault: &str, op: &str, row: &str, times: usize) -> String {
        let fault = match fault {
            "hold" => Fault::Hold,
            "hold-reply" => Fault::HoldReply,
            "lose-reply" => Fault::DropReply,
            "late" => Fault::Late,
            "duplicate" => Fault::Duplicate,
            _ => Fault::Fail,
        };
        let op = match op {
            "read" => Op::Read,
            "prewrite" => Op::Prewrite,
            "commit-primary" => Op::CommitPrimary,
            "commit-secondary" => Op::Commit,
            "rollback-primary" => Op::RollBackPrimary,
            "rollback" => Op::RollBack,
            "heartbeat" => Op::Heartbeat,
            "clear" => Op::Clear,
            op => panic!("unknown kind of request: {op}"),
        };
        let rule = self.world().store.on(op, row, times, fault);
        self.rules.push((op, rule));
        String::new()
    }

    fn release(&mut self) -> String {
        let (mut lines, rules) = (Vec::new(), std::mem::take(&mut self.rules));
        rules.iter().for_each(|(_, rule)| rule.release());
        self.wait(SETTLE);
        for (op, rule) in rules {
            for held in self.runtime.block_on(rule.deliver()) {
                lines.push(match held {
                    // A prewrite succeeds if its predicate does not hold.
                    Ok(held) if held != (op == Op::Prewrite) => "what was late takes effect".into(),
                    Ok(_) => "what was late changes nothing".into(),
                    Err(error) => format!("what was late is refused: {error}"),
                });
            }
        }
        lines.join("\n")
    }

    fn wait(&self, time: Duration) {
        self.runtime.block_on(self.runtime.sleep(time));
    }

    pub(super) fn observe(&mut self, process: &str, weak: bool, args: &[&str]) -> String {
        let (name, column, deed, target) = match *args {
            [name, column, deed] => (name, column, deed, "hits"),
            [name, column, deed, target] => (name, column, deed, target),
            _ => panic!("observe NAME COL DEED [TARGET]"),
        };
        let target = Column::new(target.to_owned()).unwrap();
        let deed = match deed {
            "nothing" => Deed::Nothing,
            "count" => Deed::Count(target),
            "count-down" => Deed::CountDown,
            "fail" => Deed::Fail(target),
            "read" => Deed::Read(target),
            deed => panic!("unknown deed: {deed}"),
        };
        let column = Column::new(column.to_owned()).unwrap();
        let watch = Watch { name: name.to_owned(), column, weak, deed };
        self.watches.entry(process.to_owned()).or_default().push(watch.clone());
        let log = self.log(process);
        let client = self.actor(process).process.client.clone();
        self.start(process, async move {
            let text = register(&client, &watch, &log).await;
            let text = text.unwrap_or_else(|error| format!("error: {error}"));
            Done { state: State::Nothing, text, facts: Vec::new() }
        })
    }

    fn work(&mut self, process: &str, longest: Duration) -> String {
        let watches = self.watches.get(process).cloned().unwrap_or_default();
        let log = self.log(process);
        let client = self.actor(process).process.client.clone();
        let work = async move {
            let text = work(client, watches, log, longest).await;
            let text = text.unwrap_or_else(|error| format!("error: {error}"));
            Done { state: State::Nothing, text, facts: Vec::new() }
        };
        match self.start(process, work).as_str() {
            // Pauses between two passes of a worker do not count as waiting.
            "waits" if self.rules.is_empty() => self.result(process, PATIENCE),
            text => text.to_owned(),
        }
    }

    fn gc(&mut self, retention: Duration) -> String {
        let runtime = self.runtime.clone();
        let client = self.actor(MAIN).process.client.clone();
        let report = match runtime.block_on(client.gc(retention)) {
            Ok(report) => report,
            Err(error) => return format!("error: {error}"),
        };
        let mut text = format!("safe point {}", report.safe_point);
        for (name, count) in report.counts.entries().into_iter().filter(|(_, count)| *count > 0) {
            text += &format!(", {name}: {count}");
        }
        if let Some(lock) = report.blocked_by {
            let (cell, s, owner) = (lock.cell, lock.start_ts, lock.owner);
            text += &format!("; blocked by the lock of transaction {s} ({owner}) on {cell}");
        }
        text
    }

    pub(super) fn anomaly(&mut self, anomaly: &str, facts: &[(&str, &str)]) -> String {
        assert!(!facts.is_empty(), "an anomaly without evidence");
        let occurred = facts.iter().all(|(fact, value)| {
            let known = self.facts.get(*fact);
            known.unwrap_or_else(|| panic!("nothing is known of {fact}")) == value
        });
        let (anomaly, script) = (anomaly.to_owned(), self.name.clone());
        let text = format!("{anomaly}: {}", if occurred { "occurred" } else { "prevented" });
        self.findings.push(Finding { anomaly, occurred, script });
        text
    }

    /// Runs a command that belongs to no transaction.
    pub(super) fn world_command(&mut self, who: &str, name: &str, args: &[&str]) -> String {
        let runtime = self.runtime.clone();
        match (name, args) {
            ("crash", []) => self.crash(who),
            ("lose-token", []) => {
                let client = self.actor(who).process.client.clone();
                self.world().declare_dead(&client);
                String::new()
            }
            ("result", []) => self.result(who, PATIENCE),
            ("hold" | "hold-reply" | "lose-reply" | "late" | "duplicate" | "fail", [op, row]) => {
                self.fault(name, op, row, 1)
            }
            (
                "hold" | "hold-reply" | "lose-reply" | "late" | "duplicate" | "fail",
                [op, row, times],
            ) => self.fault(name, op, row, times.parse().unwrap()),
            ("release", []) => self.release(),
            ("work", []) => self.work(who, Duration::from_secs(100)),
            ("work", [longest]) => self.work(who, duration(longest)),
            ("heal", [observer]) => {
                self.log(who).healed.lock().unwrap().insert((*observer).to_owned());
                String::new()
            }
            ("replay", []) => {
                let client = self.actor(who).process.client.clone();
                let replayed = runtime.block_on(client.replay(None)).unwrap();
                format!("{replayed} replayed")
            }
            ("wait", [time]) => {
                self.wait(duration(time));
                String::new()
            }
            ("timestamps", [n]) => {
                let oracle = self.world().oracle;
                for _ in 0..n.parse().unwrap() {
                    runtime.block_on(oracle.timestamp()).unwrap();
                }
                String::new()
            }
            ("gc", []) => self.gc(Duration::ZERO),
            ("gc", [retention]) => self.gc(duration(retention)),
            ("dump", []) => {
                let world = self.world();
                let actor = self.actor(MAIN);
                runtime.block_on(dump(&world, &actor.process.client, &actor.table))
            }
            ("explain", [row, column]) => self.explain(who, row, column, None),
            ("explain", [row, column, at]) => {
                self.explain(who, row, column, Some(at.parse().unwrap()))
            }
            _ => panic!("unknown command: {name} {args:?}"),
        }
    }

    /// Explains a cell's records, and a reader's steps, as a process sees them.
    fn explain(&mut self, who: &str, row: &str, column: &str, at: Option<u64>) -> String {
        let runtime = self.runtime.clone();
        let actor = self.actor(who);
        let column = Column::new(column.to_owned()).unwrap();
        let state = actor.process.client.cell_state(&actor.table, row, &column);
        let state = runtime.block_on(state).unwrap();
        let explained = state.explain(at.map(|at| Timestamp::new(at).unwrap()));
        let lines = explained.lines.iter();
        let mut text: Vec<String> =
            lines.map(|l| format!("{} {}: {}", l.timestamp, l.kind.name(), l.text)).collect();
        let reader = explained.reader;
        let first = reader.first.map_or(String::new(), |first| format!("{}, then ", first.name()));
        let value = match &reader.outcome {
            ReadOutcome::Value { value, .. } => format!(" {}", String::from_utf8_lossy(value)),
            _ => String::new(),
        };
        let outcome = reader.outcome.name();
        text.push(format!("reader at {}: {first}{outcome}{value}. {}", reader.at, reader.because));
        text.join("\n")
    }
}

fn duration(text: &str) -> Duration {
    match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(ms), _) => Duration::from_millis(ms.parse().unwrap()),
        (None, Some(s)) => Duration::from_secs(s.parse().unwrap()),
        (None, None) => panic!("a duration is 5ms or 10s, not {text}"),
    }
}
