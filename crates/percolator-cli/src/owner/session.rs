//! Serves one connection in the owner: reads the request, runs the command, sends its output.
//!
//! Each connection has a thread of its own, which blocks while the asker does not read the
//! output. So a pager at the other end holds up neither the owner's runtime nor its memory. A
//! second thread reads from the connection, to notice at once that the asker has gone.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::asked::{Asked, Open};
use super::frame::{self, Kind};
use super::hello::Request;
use crate::exit::Exit;

/// How long an asker may take to send its request.
const REQUEST_MAX: Duration = Duration::from_secs(5);
/// How long an asker may leave output unread. A command that waits longer would hold garbage
/// collection back with its open snapshot.
const UNREAD_MAX: Duration = Duration::from_secs(60);

/// A command to run for another process.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) asked: Arc<Asked>,
    pub(crate) request: Request,
    /// Whether the command's user has pressed Ctrl-C.
    pub(crate) interrupt: watch::Receiver<bool>,
    /// Whether the command is to be dropped where it is.
    pub(crate) cut_off: watch::Receiver<bool>,
    pub(crate) runtime: Handle,
}

/// Runs a command for another process, on this thread. Returns `None` if the command was cut off.
pub(crate) type Run = fn(Call) -> Option<Exit>;

/// Serves one connection, after its hello. Returns when the command has ended.
pub(super) fn serve(
    mut stream: UnixStream,
    (dir, open): (&Path, &Open),
    run: Run,
    cut_off: watch::Sender<bool>,
    runtime: Handle,
) -> io::Result<()> {
    stream.set_read_timeout(Some(REQUEST_MAX))?;
    let Some(request) = Request::read(&mut stream)? else { return Ok(()) };
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(Some(UNREAD_MAX))?;
    let asked = Asked::new(dir, open, request.asker.clone(), stream.try_clone()?);
    let (interrupt, interrupted) = watch::channel(false);
    let is_cut_off = cut_off.subscribe();
    let mut reading = stream.try_clone()?;
    let reader = std::thread::Builder::new().name("owner-read".to_owned()).spawn(move || {
        while let Ok(Some((Kind::Interrupt, _))) = frame::read(&mut reading) {
            interrupt.send_replace(true);
        }
        cut_off.send_replace(true);
    })?;
    // The reading thread ends with the connection, even if the command panics.
    let _closing = Closing(&stream, Some(reader));
    let call = Call {
        asked: asked.clone(),
        request,
        interrupt: interrupted,
        cut_off: is_cut_off,
        runtime,
    };
    match run(call) {
        Some(exit) => asked.exit(exit),
        None => Ok(()),
    }
}

/// Closes the connection when it is dropped, and waits for the thread that reads from it.
struct Closing<'a>(&'a UnixStream, Option<std::thread::JoinHandle<()>>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        // The other end can still read what was sent.
        let _ = self.0.shutdown(Shutdown::Both);
        let _ = self.1.take().map(std::thread::JoinHandle::join);
    }
}
