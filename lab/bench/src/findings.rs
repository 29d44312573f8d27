//! What a benchmark has found: arms, figures, and the conditions that the figures stand on.

use percolator_cli::output::Out;
use serde_json::{Value, json};

use crate::Turns;
use crate::report::{Figure, Report};
use crate::system::Load;
use crate::turns::Measured;

/// Something that must hold, or the figures are void.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) name: String,
    pub(crate) ok: bool,
    /// What was seen.
    pub(crate) found: String,
}

impl Condition {
    pub(crate) fn new(name: impl Into<String>, ok: bool, found: impl Into<String>) -> Self {
        Condition { name: name.into(), ok, found: found.into() }
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "condition": self.name, "ok": self.ok, "found": self.found })
    }
}

/// The result of a benchmark.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) name: &'static str,
    /// What was measured, in a sentence.
    pub(crate) about: String,
    pub(crate) settings: Value,
    pub(crate) turns: Turns,
    /// Before and after.
    pub(crate) load: [Load; 2],
    pub(crate) arms: Vec<Measured>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) conditions: Vec<Condition>,
    /// As an SVG document.
    pub(crate) plot: Option<String>,
}

impl Findings {
    fn report(&self) -> Report<'_> {
        let (turns, load, arms) = (self.turns, self.load, &self.arms);
        Report { benchmark: self.name, turns, load, arms, figures: self.figures.clone() }
    }

    /// The conditions that do not hold.
    pub(crate) fn broken(&self) -> impl Iterator<Item = &Condition> {
        self.conditions.iter().filter(|condition| !condition.ok)
    }

    pub(crate) fn json(&self) -> Value {
        let check: Vec<Value> = self.conditions.iter().map(Condition::json).collect();
        self.report().json(self.settings.clone(), json!(check), self.broken().next().is_none())
    }

    pub(crate) fn print(&self, out: Out) -> std::io::Result<()> {
        let line = |c: &Condition| {
            format!("\n  {} {}: {}", if c.ok { "yes" } else { "NO " }, c.name, c.found)
        };
        let check: String = self.conditions.iter().map(line).collect();
        self.report().print(out, &self.about, &check)
    }
}
