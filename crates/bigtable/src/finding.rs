//! Describes what the examination of a store found.

/// The state of one thing that a store depends on, such as a setting of its servers.
///
/// ```
/// use bigtable::{Finding, Verdict};
/// let finding = Finding::wrong("table t", "it has a garbage collection rule", "remove the rule");
/// assert_eq!(finding.verdict, Verdict::Wrong);
/// assert_eq!(finding.help.as_deref(), Some("remove the rule"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The thing, with its place.
    pub about: String,
    /// Whether it is as Percolator needs it.
    pub verdict: Verdict,
    /// Its state, in words.
    pub found: String,
    /// The next step, if one is needed.
    pub help: Option<String>,
}

/// Whether something is as Percolator needs it.
///
/// ```
/// assert_eq!(bigtable::Verdict::Advice.name(), "advice");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The thing is as Percolator needs it.
    Sound,
    /// The thing works, and another state would be better.
    Advice,
    /// The thing's state could not be read.
    Unknown,
    /// Data may be lost, or requests are refused.
    Wrong,
}

impl Verdict {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Sound => "sound",
            Verdict::Advice => "advice",
            Verdict::Unknown => "unknown",
            Verdict::Wrong => "wrong",
        }
    }
}

impl Finding {
    /// Reports that a thing is as it must be.
    pub fn sound(about: impl Into<String>, found: impl Into<String>) -> Self {
        let (about, found) = (about.into(), found.into());
        Finding { about, verdict: Verdict::Sound, found, help: None }
    }

    /// Reports that a thing must be mended.
    pub fn wrong(
        about: impl Into<String>,
        found: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        let help = Some(help.into());
        Finding { verdict: Verdict::Wrong, help, ..Finding::sound(about, found) }
    }
}
