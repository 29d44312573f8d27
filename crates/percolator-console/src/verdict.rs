//! Computes one sentence about the whole database, and advice: a pure function of what the
//! overview knows.

use std::time::Duration;

use serde::Serialize;

use crate::said::duration_text;

/// The facts behind a verdict. `None` is "not known", which is never taken for "good".
#[derive(Debug, Clone, Default)]
pub(crate) struct Signs {
    /// The last look through the store failed with this.
    pub(crate) store_error: Option<String>,
    /// Changes that wait, and seconds since the commit of the oldest.
    pub(crate) backlog: Option<u64>,
    /// Whether there may be more of them.
    pub(crate) backlog_at_least: bool,
    pub(crate) oldest_s: Option<f64>,
    /// Whether the oldest may be older, because it was committed before this process began.
    pub(crate) oldest_at_least: bool,
    /// By how many changes a second the backlog grew lately.
    pub(crate) growth_s: Option<f64>,
    /// Runs of observers a second, lately.
    pub(crate) runs_s: f64,
    /// Cells that an observer gave up on, and the name of one such observer.
    pub(crate) set_aside: u64,
    pub(crate) set_aside_of: Option<String>,
    /// Cells that observers of this process fail on and try again.
    pub(crate) failing: u64,
    pub(crate) failing_of: Option<String>,
    /// Observers for which changes wait, and which no process runs, as far as this one sees.
    pub(crate) missing: Vec<String>,
    /// Seconds since the oldest lock was written, and whether its owner lives.
    pub(crate) oldest_lock_s: Option<f64>,
    /// The share of transactions that are aborted, lately, and their rate.
    pub(crate) abort_ratio: Option<f64>,
    pub(crate) aborts_s: f64,
}

/// The state of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Healthy,
    Behind,
    Stuck,
    Full,
    ReadOnly,
    Damaged,
    Unknown,
}

/// The sentence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) state: State,
    pub(crate) text: String,
    /// Where to look next.
    pub(crate) link: Option<&'static str>,
}

/// A piece of advice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Insight {
    pub(crate) kind: &'static str,
    pub(crate) text: String,
    pub(crate) advice: String,
    pub(crate) link: Option<&'static str>,
}

/// A change that waits longer than this, in seconds, makes a backlog worth reporting.
const WAITS_LONG_S: f64 = 60.0;
/// A lock older than this, in seconds, is worth reporting.
const OLD_LOCK_S: f64 = 60.0;
/// A share of aborts above this is worth advice.
const MANY_ABORTS: f64 = 0.2;

fn duration(seconds: f64) -> String {
    duration_text(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

fn count(n: u64, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}

/// `1 change waits`, `at least 50000 changes wait`.
fn changes(signs: &Signs, n: u64) -> String {
    let least = if signs.backlog_at_least { "at least " } else { "" };
    format!("{least}{}", count(n, "change waits", "changes wait"))
}

fn of_the_store(error: &str) -> Verdict {
    let state = if error.contains("disk is full") {
        State::Full
    } else if error.contains("read-only") || error.contains("read only") {
        State::ReadOnly
    } else if error.contains("halted") || error.contains("damaged") || error.contains("checksum") {
        State::Damaged
    } else {
        State::Unknown
    };
    let text = match state {
        State::Full => "The disk is full: nothing is written",
        State::ReadOnly => "The store is read-only: nothing is written",
        State::Damaged => "The store has stopped answering because its files are damaged",
        _ => "The store does not answer",
    };
    Verdict { state, text: format!("{text} ({})", first_line(error)), link: None }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Returns the sentence about the whole database.
pub(crate) fn judge(signs: &Signs) -> Verdict {
    if let Some(error) = &signs.store_error {
        return of_the_store(error);
    }
    let Some(backlog) = signs.backlog else {
        return Verdict {
            state: State::Unknown,
            text: "Looking through the store for the first time".to_owned(),
            link: None,
        };
    };
    if signs.set_aside > 0 {
        let of = signs.set_aside_of.as_deref().unwrap_or("an observer");
        return Verdict {
            state: State::Stuck,
            text: format!(
                "Stuck: `{of}` gave up on {} until an operator replays or skips {}",
                count(signs.set_aside, "cell", "cells"),
                if signs.set_aside == 1 { "it" } else { "them" },
            ),
            link: Some("/observers"),
        };
    }
    let oldest = signs.oldest_s.unwrap_or(0.0);
    if backlog > 0 && signs.runs_s == 0.0 && oldest > WAITS_LONG_S {
        let why = match (&signs.failing_of, signs.missing.first()) {
            (Some(of), _) => format!("`{of}` fails on {}", count(signs.failing, "cell", "cells")),
            (None, Some(missing)) => format!("no worker of this process runs `{missing}`"),
            (None, None) => "no observer has run lately".to_owned(),
        };
        return Verdict {
            state: State::Stuck,
            text: format!("Stuck: {} for {}, and {why}", changes(signs, backlog), duration(oldest),),
            link: Some("/observers"),
        };
    }
    if oldest > WAITS_LONG_S && signs.growth_s.is_none_or(|growth| growth > 0.0) {
        let rate = match signs.growth_s {
            Some(growth) => format!(", {growth:.0} more each second"),
            None => String::new(),
        };
        return Verdict {
            state: State::Behind,
            text: format!(
                "Falling behind: {}{rate}; the oldest for {}",
                changes(signs, backlog),
                duration(oldest),
            ),
            link: Some("/observers"),
        };
    }
    if backlog > 0 && (signs.oldest_s.is_none() || signs.oldest_at_least) {
        return Verdict {
            state: State::Unknown,
            text: format!(
                "{} for observers; this process began later, so it does not know for how long",
                changes(signs, backlog),
            ),
            link: Some("/observers"),
        };
    }
    let text = match (backlog, signs.oldest_s) {
        (0, _) => "Healthy: no change waits for an observer".to_owned(),
        (_, Some(oldest)) => format!("Keeping up: the oldest change waits {}", duration(oldest)),
        (n, None) => format!("Keeping up: {}", changes(signs, n)),
    };
    Verdict { state: State::Healthy, text, link: None }
}

/// Returns the problems that an operator can solve, the most urgent first.
pub(crate) fn insights(signs: &Signs) -> Vec<Insight> {
    let mut found = Vec::new();
    if signs.set_aside > 0 {
        found.push(Insight {
            kind: "set_aside",
            text: format!("Observers gave up on {}", count(signs.set_aside, "cell", "cells")),
            advice: "Read the error, correct the cause, then replay; or skip changes that cannot \
                     be handled"
                .to_owned(),
            link: Some("/observers"),
        });
    }
    if signs.failing > 0 {
        let of = signs.failing_of.as_deref().unwrap_or("an observer");
        found.push(Insight {
            kind: "failing",
            text: format!(
                "`{of}` fails on {} and tries again",
                count(signs.failing, "cell", "cells")
            ),
            advice: "Read the error: after several attempts the cell is set aside".to_owned(),
            link: Some("/observers"),
        });
    }
    if let (Some(missing), Some(1..)) = (signs.missing.first(), signs.backlog) {
        found.push(Insight {
            kind: "missing",
            text: format!("Changes may wait for `{missing}`, which no worker of this process runs"),
            advice: "Start a worker that runs it, or retire the observer if it is gone for good"
                .to_owned(),
            link: Some("/observers"),
        });
    }
    if let Some(age) = signs.oldest_lock_s.filter(|age| *age > OLD_LOCK_S) {
        found.push(Insight {
            kind: "old_lock",
            text: format!("The oldest lock is {} old", duration(age)),
            advice: "The next reader of its cell resolves it; if its owner is dead, resolve it now"
                .to_owned(),
            link: Some("/locks"),
        });
    }
    if let Some(ratio) = signs.abort_ratio.filter(|r| *r > MANY_ABORTS && signs.aborts_s > 1.0) {
        found.push(Insight {
            kind: "aborts",
            text: format!("{:.0} % of commits are aborted", ratio * 100.0),
            advice:
                "Look at the hottest cells: write fewer transactions to one cell, or spread it \
                     over several"
                    .to_owned(),
            link: Some("/locks"),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Signs {
        Signs { backlog: Some(0), ..Signs::default() }
    }

    #[test]
    fn what_is_not_known_is_never_called_healthy() {
        assert_eq!(judge(&Signs::default()).state, State::Unknown);
        let failed = Signs { store_error: Some("connection refused".into()), ..known() };
        assert_eq!(judge(&failed).state, State::Unknown);
        assert!(judge(&failed).text.contains("connection refused"));
    }

    #[test]
    fn each_state_has_its_sentence() {
        let say = |signs: Signs| {
            let verdict = judge(&signs);
            (verdict.state, verdict.text)
        };
        assert_eq!(
            say(known()),
            (State::Healthy, "Healthy: no change waits for an observer".to_owned())
        );
        let some = Signs { backlog: Some(12), oldest_s: Some(1.83), runs_s: 5.0, ..known() };
        assert_eq!(
            say(some.clone()),
            (State::Healthy, "Keeping up: the oldest change waits 1.8 s".to_owned())
        );
        let late = Signs { oldest_s: Some(300.0), growth_s: Some(40.2), ..some.clone() };
        assert_eq!(
            say(late.clone()),
            (
                State::Behind,
                "Falling behind: 12 changes wait, 40 more each second; the oldest for 5 min"
                    .to_owned()
            )
        );
        // A backlog that waits long but shrinks is not falling behind.
        let draining = Signs { growth_s: Some(-40.0), ..late.clone() };
        assert_eq!(say(draining).0, State::Healthy);
        let still = Signs { runs_s: 0.0, missing: vec!["parse".into()], ..late };
        assert_eq!(
            say(still),
            (
                State::Stuck,
                "Stuck: 12 changes wait for 5 min, and no worker of this process runs `parse`"
                    .to_owned()
            )
        );
        let aside = Signs { set_aside: 1, set_aside_of: Some("parse".into()), ..some };
        assert_eq!(
            say(aside),
            (
                State::Stuck,
                "Stuck: `parse` gave up on 1 cell until an operator replays or skips it".to_owned()
            )
        );
        let full = Signs { store_error: Some("D: the disk is full: 3 bytes".into()), ..known() };
        assert_eq!(say(full).0, State::Full);
        let halted = Signs { store_error: Some("D: the store has halted: EIO".into()), ..known() };
        assert_eq!(say(halted).0, State::Damaged);
    }

    #[test]
    fn a_change_from_before_this_process_is_not_called_young() {
        let early = Signs {
            backlog: Some(2),
            oldest_s: Some(1.0),
            oldest_at_least: true,
            runs_s: 5.0,
            ..Signs::default()
        };
        assert_eq!(judge(&early).state, State::Unknown);
        assert_eq!(judge(&Signs { oldest_s: None, ..early }).state, State::Unknown);
    }

    #[test]
    fn insights_end_in_advice_and_healthy_has_none() {
        assert_eq!(insights(&known()), []);
        let signs = Signs {
            backlog: Some(1),
            set_aside: 2,
            failing: 1,
            missing: vec!["parse".into()],
            oldest_lock_s: Some(61.0),
            abort_ratio: Some(0.5),
            aborts_s: 10.0,
            ..Signs::default()
        };
        let kinds: Vec<_> = insights(&signs).into_iter().map(|insight| insight.kind).collect();
        assert_eq!(kinds, ["set_aside", "failing", "missing", "old_lock", "aborts"]);
        assert!(insights(&signs).iter().all(|insight| !insight.advice.is_empty()));
    }
}
