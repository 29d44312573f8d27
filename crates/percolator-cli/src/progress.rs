//! Shows progress on stderr: as a moving line on a terminal, and as a plain line every few
//! seconds elsewhere.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::MissedTickBehavior;

use crate::interrupt::Interrupt;
use crate::output::to_stderr;
use crate::owner::asked;

/// How often a line is printed when stderr is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows how far a command has come.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    last_line: Mutex<Instant>,
}

impl Progress {
    /// Makes a display of progress towards `total` steps, or without a known end.
    pub fn new(quiet: bool, total: Option<u64>) -> Self {
        // A moving line needs the terminal of this process; a command that runs for another
        // process has none.
        let draws = asked::current().is_none() && std::io::stderr().is_terminal();
        let bar = (!quiet && draws).then(|| {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
            let form = match total {
                Some(_) => "{bar:30} {pos}/{len}  {msg}  {elapsed}, {eta} left",
                None => "{spinner} {msg}  {elapsed}",
            };
            if let Ok(style) = ProgressStyle::with_template(form) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Progress { bar, quiet, last_line: Mutex::new(Instant::now()) }
    }

    /// Shows how many steps are done, and a message.
    pub fn say(&self, done: u64, message: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(message.to_owned());
            return;
        }
        let Ok(mut last) = self.last_line.lock() else { return };
        if !self.quiet && last.elapsed() >= LINE_EVERY {
            *last = Instant::now();
            to_stderr(format!("{message}\n").as_bytes());
        }
    }

    /// Waits for the end of work. Meanwhile shows what `message` returns, about once in `every`.
    /// Returns `None` after Ctrl-C.
    ///
    /// Both are polled all the time. A future that is not polled may hold what another one needs.
    pub(crate) async fn during<T, E: Into<anyhow::Error>>(
        self,
        interrupt: &Interrupt,
        work: impl Future<Output = Result<T, E>>,
        every: Duration,
        message: impl AsyncFn() -> anyhow::Result<String>,
    ) -> anyhow::Result<Option<T>> {
        let shown = async {
            let mut look = tokio::time::interval(every);
            look.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                look.tick().await;
                match message().await {
                    Ok(message) => self.say(0, &message),
                    Err(error) => break error,
                }
            }
        };
        tokio::select! {
            done = work => done.map(Some).map_err(Into::into),
            () = interrupt.pressed() => Ok(None),
            error = shown => Err(error),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
