//! Reports to the service manager that started this process, as systemd's `Type=notify` wants it.
//!
//! The manager names a socket in the environment (`NOTIFY_SOCKET`). Each report is one datagram.
//! A process without that variable reports nothing. The protocol is that of `sd_notify(3)`.

use std::convert::Infallible;
use std::time::Duration;

#[cfg(target_os = "linux")]
use crate::environment::NOTIFY_SOCKET;
use crate::log::SERVICE;

/// A state of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The process serves.
    Ready,
    /// The process ends.
    Stopping,
}

/// Logs that the process serves, and reports its state to the service manager.
pub(crate) fn report(state: State) {
    if state == State::Ready {
        tracing::info!(target: SERVICE, event = "serves", "ready to serve");
    }
    notify(state);
}

/// Reports a state. A report that fails is logged, because the process serves without it.
#[cfg(target_os = "linux")]
fn notify(state: State) {
    let Some(name) = NOTIFY_SOCKET.value() else { return };
    let message = match state {
        State::Ready => "READY=1\n",
        State::Stopping => "STOPPING=1\n",
    };
    if let Err(error) = send(&name, message) {
        tracing::warn!(target: "percolator::service", event = "not_reported", ?name, %error);
    }
}

/// Does nothing: only Linux has this service manager.
#[cfg(not(target_os = "linux"))]
fn notify(_: State) {}

/// Reports a state after a delay, and never completes.
pub(crate) async fn report_after(delay: Duration, state: State) -> Infallible {
    tokio::time::sleep(delay).await;
    report(state);
    std::future::pending().await
}

/// Sends a datagram to a socket: at a path, or behind `@` in the abstract namespace.
#[cfg(target_os = "linux")]
fn send(name: &std::ffi::OsStr, message: &str) -> std::io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}
