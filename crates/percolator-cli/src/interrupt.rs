//! Handles Ctrl-C: the command has two seconds to finish its current work, then the process ends.
//!
//! Ending is always safe, because to the store it is a crash. The next transaction that finds a
//! lock of this process rolls it forward or back.

use std::io::Write;
use std::time::Duration;

use tokio::sync::watch;

use crate::exit::Exit;

/// How long a command may go on after Ctrl-C.
const GRACE: Duration = Duration::from_secs(2);

/// The user's request to end the command, by Ctrl-C.
#[derive(Debug, Clone)]
pub struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Listens for Ctrl-C from now on. Runs in a tokio runtime.
    pub fn listen() -> Self {
        let (asked, receiver) = watch::channel(false);
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_err() {
                // No handler could be set, so Ctrl-C ends the process at once, as by default.
                return std::future::pending().await;
            }
            asked.send_replace(true);
            let again = tokio::signal::ctrl_c();
            // A second Ctrl-C ends the wait early.
            let _ = tokio::time::timeout(GRACE, again).await;
            let text = "interrupted; unfinished transactions are left as after a crash: the next \
                        command that finds their locks rolls them forward or back\n";
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
            std::process::exit(Exit::Interrupted as i32);
        });
        Interrupt(receiver)
    }

    /// Makes the request of a user whose command this process runs for another one.
    #[cfg(unix)]
    pub(crate) fn asked_by(receiver: watch::Receiver<bool>) -> Self {
        Interrupt(receiver)
    }

    /// Whether Ctrl-C has been pressed.
    pub fn requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes when Ctrl-C is pressed.
    pub async fn pressed(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|asked| *asked).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Runs a command that may be cut off anywhere. Returns `None` if Ctrl-C cut it off.
    pub async fn cut_off<T>(&self, command: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = command => Some(result),
            () = self.pressed() => None,
        }
    }
}
