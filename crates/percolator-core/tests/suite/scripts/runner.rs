//! Runs the commands of golden scripts.
//!
//! ```text
//! t1: begin | snapshot TS | own-writes on|off                     a transaction; the past
//! t1: get ROW COL | scan [FROM] [TO] [divisible=N]                reads
//! t1: set ROW COL VALUE | delete ROW COL | notify ROW COL         buffered writes
//! t1: prewrite | commit-primary | commit-secondaries | commit     the steps of commit
//! t1: result                      the answer of a step that said `waits`
//! t1: crash | lose-token          the process dies; it lives on but is taken for dead
//! hold|hold-reply|lose-reply|late|duplicate|fail OP ROW [TIMES]   befalls the next requests
//! release                         lets go of what is held, then delivers what is late
//! observe NAME COL nothing|count|count-down|fail|read [TARGET]    weak if tagged [weak]
//! work [1s] | heal NAME | replay  runs the observers; mends one; brings back what was set aside
//! wait 10s | timestamps N         virtual time passes; the oracle hands out N
//! gc [RETENTION] | dump           collects garbage; draws the paper's table
//! explain ROW COL [TS]            what the cell's records mean, and what a reader would do
//! anomaly NAME FACT=VALUE...      it occurred if all is so: t1=committed, t1.x=10, t1.scan=...
//! ```
//!
//! A script whose name ends in `-apart` runs on a store without locality groups. Each prefix
//! is a process of its own, opened when it is first needed. Timestamps count from one.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{Either, select};
use goldenscript::{Argument, Command, Context, Runner};
use percolator_core::testing::VirtualRuntime;
use percolator_core::{Options, Runtime};

use super::actor::{Actor, Done, Pending, State, Step};
use super::watch::{Log, Watch};
use crate::faults::{Caught, Op};
use crate::stores::store;
use crate::world::World;

/// How long a step may take before the script counts it as waiting.
pub(super) const SETTLE: Duration = Duration::from_millis(10);
/// How long `result` waits.
pub(super) const PATIENCE: Duration = Duration::from_secs(1000);
/// The process of commands without a prefix.
pub(super) const MAIN: &str = "main";

/// The finding of a script about an anomaly.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) anomaly: String,
    pub(super) occurred: bool,
    pub(super) script: String,
}

/// A running script.
pub(super) struct Script {
    pub(super) name: String,
    pub(super) runtime: VirtualRuntime,
    world: Option<World>,
    pub(super) actors: BTreeMap<String, Actor>,
    /// Every incarnation so far, with its name in answers.
    incarnations: Vec<(String, String)>,
    pub(super) rules: Vec<(Op, Arc<Caught>)>,
    pub(super) watches: BTreeMap<String, Vec<Watch>>,
    logs: BTreeMap<String, Log>,
    pub(super) facts: BTreeMap<String, String>,
    pub(super) findings: Vec<Finding>,
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
            logs: BTreeMap::new(),
            facts: BTreeMap::new(),
            findings: Vec::new(),
        }
    }

    pub(super) fn findings(self) -> Vec<Finding> {
        self.findings
    }

    pub(super) fn world(&self) -> World {
        self.world.clone().unwrap()
    }

    /// The log of a process's observers.
    pub(super) fn log(&mut self, process: &str) -> Log {
        self.logs.entry(process.to_owned()).or_default().clone()
    }

    pub(super) fn actor(&mut self, name: &str) -> &mut Actor {
        if !self.actors.contains_key(name) {
            let world = self.world();
            // Values are never stored inside locks and write records, so that the dump shows
            // them in `data`.
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

    /// Takes a step of an actor's transaction, as far as it goes without waiting.
    fn step(&mut self, name: &str, step: Step) -> String {
        let actor = self.actor(name);
        assert!(actor.pending.is_none(), "{name} waits for its last step");
        let state = std::mem::replace(&mut actor.state, State::Nothing);
        let step = step.take(actor.process.clone(), actor.table.clone(), state);
        self.start(name, step)
    }

    pub(super) fn start(
        &mut self,
        name: &str,
        step: impl Future<Output = Done> + Send + 'static,
    ) -> String {
        let (done, result) = oneshot::channel();
        let since = self.runtime.now();
        let actor = self.actor(name);
        actor.process.spawn(async move {
            // If the process has crashed, no script asks for the result.
            let _ = done.send(step.await);
        });
        actor.pending = Some(Pending { result, since });
        self.result(name, SETTLE)
    }

    /// Waits for the actor's step.
    pub(super) fn result(&mut self, name: &str, longest: Duration) -> String {
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
        let store = store(!self.name.ends_with("-apart"));
        self.world = Some(self.runtime.block_on(World::open(self.runtime.clone(), store)));
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

    /// Checks at the end the invariants of every cell.
    fn end_script(&mut self) -> Result<(), Box<dyn Error>> {
        let (world, runtime) = (self.world(), self.runtime.clone());
        let table = self.actor(MAIN).table.clone();
        runtime.block_on(world.audit(&table));
        Ok(())
    }
}
