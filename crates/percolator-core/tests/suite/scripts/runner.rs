//! The commands of golden scripts.
//!
//! ```text
//! t1: begin | snapshot TS | own-writes on|off                        a transaction, a view of the past
//! t1: get ROW COL | scan [FROM] [TO] [divisible=N]                   reads
//! t1: set ROW COL VALUE | delete ROW COL | notify ROW COL            buffered writes
//! t1: prewrite | commit-primary | commit-secondaries | commit        the steps of commit
//! t1: result                      the answer of a step that said `waits`
//! t1: crash | lose-token          the process dies; it lives on but is taken for dead
//! hold|hold-reply|lose-reply|late|duplicate|fail OP ROW [TIMES]      what befalls the next requests
//! release                         lets go of what is held, then delivers what is late
//! observe NAME COL nothing|count|count-down|fail [TARGET] "[weak]"    an observer, in the schema
//! work | heal NAME | replay       runs the observers; mends one; brings back what was set aside
//! wait 10s | timestamps N         virtual time passes; the oracle hands out N
//! gc [RETENTION] | dump           collects garbage; draws the paper's table
//! anomaly NAME FACT=VALUE...      it occurred if all this is so (t1=committed, t1.x=10, t1.scan=...)
//! ```
//!
//! Each prefix is a process of its own, opened when it is first needed; timestamps count from one.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{Either, select};
use goldenscript::{Argument, Command, Context, Runner};
use percolator_core::testing::VirtualRuntime;
use percolator_core::{Column, Options, Runtime};

use super::actor::{Actor, Done, Pending, State, Step};
use super::dump::dump;
use super::watch::{Deed, Log, Watch, register, work};
use crate::faults::{Caught, Fault, Op};
use crate::world::World;

/// How long a step may take before it counts as waiting.
const SETTLE: Duration = Duration::from_millis(10);
/// How long `result` waits.
const PATIENCE: Duration = Duration::from_secs(1000);
/// The process of commands without a prefix.
const MAIN: &str = "main";

/// What a script found out about an anomaly.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) anomaly: String,
    pub(super) occurred: bool,
    pub(super) script: String,
}

/// A script that runs.
pub(super) struct Script {
    name: String,
    runtime: VirtualRuntime,
    world: Option<World>,
    actors: BTreeMap<String, Actor>,
    /// Every incarnation so far, with the name it has in answers.
    incarnations: Vec<(String, String)>,
    rules: Vec<(Op, Arc<Caught>)>,
    watches: BTreeMap<String, Vec<Watch>>,
    log: Log,
    facts: BTreeMap<String, String>,
    findings: Vec<Finding>,
}

impl Script {
    pub(super) fn new(name: &str) -> Self {
        Script {
            name: name.to_owned(),
            runtime: VirtualRuntime::new(1),
            world: None,
            actors: BTreeMap::new(),
            incarnations: Vec::new(),
            rules: Vec::new(),
            watches: BTreeMap::new(),
            log: Log::default(),
            facts: BTreeMap::new(),
            findings: Vec::new(),
        }
    }

    pub(super) fn findings(self) -> Vec<Finding> {
        self.findings
    }

    fn world(&self) -> World {
        self.world.clone().unwrap()
    }

    fn actor(&mut self, name: &str) -> &mut Actor {
        if !self.actors.contains_key(name) {
            let world = self.world();
            // No values inside locks and write records: what the dump shows is what is there.
            let options = Options { short_value_bytes_max: 0, ..Options::default() };
            let (process, table) = self.runtime.block_on(async {
                let process = world.process(options, 0).await;
                let table = process.client.table("t").await.unwrap();
                (process, table)
            });
            let incarnation = process.client.incarnation().to_string();
            self.incarnations.push((incarnation, name.to_owned()));
            let actor = Actor { process, table, state: State::Nothing, pending: None };
            self.actors.insert(name.to_owned(), actor);
        }
        self.actors.get_mut(name).unwrap()
    }

    /// Takes a step of an actor's transaction, as far as it goes at once.
    fn step(&mut self, name: &str, step: Step) -> String {
        let actor = self.actor(name);
        assert!(actor.pending.is_none(), "{name} waits for its last step");
        let state = std::mem::replace(&mut actor.state, State::Nothing);
        let step = step.take(actor.process.clone(), actor.table.clone(), state);
        self.start(name, step)
    }

    fn start(&mut self, name: &str, step: impl Future<Output = Done> + Send + 'static) -> String {
        let (done, result) = oneshot::channel();
        let since = self.runtime.now();
        let actor = self.actor(name);
        actor.process.spawn(async move {
            // Nobody asks for the result of a process that crashed.
            let _ = done.send(step.await);
        });
        actor.pending = Some(Pending { result, since });
        self.result(name, SETTLE)
    }

    /// Waits for the actor's step.
    fn result(&mut self, name: &str, longest: Duration) -> String {
        let runtime = self.runtime.clone();
        let actor = self.actor(name);
        let Some(Pending { result, since }) = actor.pending.take() else {
            return "nothing to wait for".to_owned();
        };
        match runtime.block_on(select(result, runtime.sleep(longest))) {
            Either::Left((done, _)) => {
                let Ok(Done { state, text, facts }) = done else { return "gone".to_owned() };
                actor.state = state;
                for (of, value) in facts {
                    let of = if of.is_empty() { String::new() } else { format!(".{of}") };
                    self.facts.insert(format!("{name}{of}"), value);
                }
                match (runtime.now() - since).as_secs() {
                    0 => text,
                    seconds => format!("{text} (after {seconds}s)"),
                }
            }
            Either::Right(((), result)) => {
                actor.pending = Some(Pending { result, since });
                "waits".to_owned()
            }
        }
    }

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
                    // The predicate of a prewrite is what must not be there.
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

    fn observe(&mut self, process: &str, weak: bool, args: &[&str]) -> String {
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
            deed => panic!("unknown deed: {deed}"),
        };
        let column = Column::new(column.to_owned()).unwrap();
        let watch = Watch { name: name.to_owned(), column, weak, deed };
        let (runtime, log) = (self.runtime.clone(), self.log.clone());
        let client = self.actor(process).process.client.clone();
        let text = runtime.block_on(register(&client, &watch, &log));
        self.watches.entry(process.to_owned()).or_default().push(watch);
        text.unwrap_or_else(|error| format!("error: {error}"))
    }

    fn work(&mut self, process: &str) -> String {
        let watches = self.watches.get(process).cloned().unwrap_or_default();
        let log = self.log.clone();
        let client = self.actor(process).process.client.clone();
        let work = async move {
            let text = work(client, watches, log).await;
            let text = text.unwrap_or_else(|error| format!("error: {error}"));
            Done { state: State::Nothing, text, facts: Vec::new() }
        };
        match self.start(process, work).as_str() {
            // Pauses between two looks are no waiting.
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

    fn anomaly(&mut self, anomaly: &str, facts: &[(&str, &str)]) -> String {
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

    /// Commands of the world, without a transaction.
    fn world_command(&mut self, who: &str, name: &str, args: &[&str]) -> String {
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
            ("work", []) => self.work(who),
            ("heal", [observer]) => {
                self.log.healed.lock().unwrap().insert((*observer).to_owned());
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
            _ => panic!("unknown command: {name} {args:?}"),
        }
    }
}

fn duration(text: &str) -> Duration {
    match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(ms), _) => Duration::from_millis(ms.parse().unwrap()),
        (None, Some(s)) => Duration::from_secs(s.parse().unwrap()),
        (None, None) => panic!("a duration is 5ms or 10s, not {text}"),
    }
}

/// A step of a transaction, if the command is one.
fn step(name: &str, args: &[&str], divisor: Option<i64>) -> Option<Step> {
    let own = |text: &str| text.to_owned();
    Some(match (name, args) {
        ("begin", []) => Step::Begin,
        ("snapshot", [ts]) => Step::Snapshot(ts.parse().unwrap()),
        ("own-writes", [how]) => Step::OwnWrites(*how == "on"),
        ("get", [row, column]) => Step::Get(own(row), own(column)),
        ("scan", []) => Step::Scan { from: None, to: None, divisor },
        ("scan", [from]) => Step::Scan { from: Some(own(from)), to: None, divisor },
        ("scan", [from, to]) => Step::Scan { from: Some(own(from)), to: Some(own(to)), divisor },
        ("set", [row, column, value]) => Step::Set(own(row), own(column), own(value)),
        ("delete", [row, column]) => Step::Delete(own(row), own(column)),
        ("notify", [row, column]) => Step::Notify(own(row), own(column)),
        ("prewrite", []) => Step::Prewrite,
        ("commit-primary", []) => Step::CommitPrimary,
        ("commit-secondaries", []) => Step::CommitSecondaries,
        ("commit", []) => Step::Commit,
        _ => return None,
    })
}

impl Runner for Script {
    type Command = Command;

    fn start_script(&mut self) -> Result<(), Box<dyn Error>> {
        self.world = Some(self.runtime.block_on(World::open(self.runtime.clone())));
        self.actor(MAIN);
        Ok(())
    }

    fn run(&mut self, command: &Command, context: &Context) -> Result<String, Box<dyn Error>> {
        let (mut args, mut pairs) = (Vec::new(), Vec::new());
        for arg in &command.args {
            match arg {
                Argument::Positional(arg) => args.push(arg.as_str()),
                Argument::KeyValue(key, value) => pairs.push((key.as_str(), value.as_str())),
                arg => return Err(format!("unknown kind of argument: {arg}").into()),
            }
        }
        let who = context.prefix.as_deref().unwrap_or(MAIN);
        let divisor = pairs.iter().find(|(key, _)| *key == "divisible");
        let divisor = divisor.map(|(_, value)| value.parse()).transpose()?;
        let mut text = match (command.name.as_str(), &args[..]) {
            ("anomaly", [anomaly]) => self.anomaly(anomaly, &pairs),
            ("observe", args) => self.observe(who, context.tags.contains("weak"), args),
            (name, args) => match step(name, args, divisor) {
                Some(step) => self.step(who, step),
                None => self.world_command(who, name, args),
            },
        };
        for (incarnation, name) in &self.incarnations {
            text = text.replace(incarnation, name);
        }
        Ok(text)
    }

    /// What must hold of every cell at any moment holds at the end.
    fn end_script(&mut self) -> Result<(), Box<dyn Error>> {
        let (world, runtime) = (self.world(), self.runtime.clone());
        let table = self.actor(MAIN).table.clone();
        runtime.block_on(world.audit(&table));
        Ok(())
    }
}
