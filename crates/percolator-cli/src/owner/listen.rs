//! Accepts connections at an owner's socket, and ends the commands that run for others when the
//! owner ends.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bigtable::sync::locked;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::asked::Open as OpenHere;
use super::hello::{CONNECTIONS_MAX, Hello, State};
use super::place::{self, Elsewhere, SocketFile, may_ask};
use super::session::{self, Run};

/// How long commands of others may go on when the owner wants to end, and how long cutting them
/// off may take.
const DRAIN_MAX: Duration = Duration::from_secs(1);
const CUT_OFF_MAX: Duration = Duration::from_secs(1);
/// The pause after a connection that could not be accepted, for instance because too many files
/// are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The stack of a command: as large as that of a process's first thread, where commands usually
/// run.
const STACK_BYTES: usize = 8 << 20;

/// The function that runs the commands of this program for others.
static RUN: OnceLock<Run> = OnceLock::new();

/// Makes this process listen, from now on, at each directory that a command opens.
pub(crate) fn run_commands_by(run: Run) {
    RUN.get_or_init(|| run);
}

/// Listens for other processes that want to run commands on a database, until it is dropped.
///
/// See [`listen`](super::listen).
#[derive(Debug)]
pub struct Listener {
    /// Removed first: a process that connects from now on must find no socket rather than wait.
    socket: Option<SocketFile>,
    accepting: JoinHandle<()>,
    sessions: Arc<Sessions>,
}

/// The commands that run for others.
#[derive(Debug)]
struct Sessions {
    /// The directory, what is open in it, and how commands are run.
    dir: PathBuf,
    here: OpenHere,
    run: Run,
    runtime: Handle,
    open: Mutex<Open>,
    count: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Open {
    /// No command may begin any more, because the database is about to be closed.
    closing: bool,
    /// The sender that cuts each command off, by the number of its connection.
    commands: BTreeMap<u64, watch::Sender<bool>>,
}

/// Listens at a directory that a command has opened, if the commands of this
/// process are run for others. A failure is one warning.
pub(crate) fn begin(here: OpenHere, dir: &Path) -> Option<Listener> {
    let run = *RUN.get()?;
    let begun = start(here, run, dir);
    begun
        .inspect_err(|error| {
            tracing::warn!(
                target: "percolator::owner",
                "other commands cannot use {} until this one ends, because no socket could be \
                 made: {error}",
                dir.display(),
            );
        })
        .ok()
}

/// Listens at a directory. Runs in a tokio runtime.
pub(super) fn start(here: OpenHere, run: Run, dir: &Path) -> io::Result<Listener> {
    let dir = dir.canonicalize()?;
    let (listener, socket) = place::bind(&dir, &Elsewhere::of_this_process())?;
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let sessions = Arc::new(Sessions {
        dir,
        here,
        run,
        runtime: Handle::current(),
        open: Mutex::default(),
        count: watch::Sender::new(0),
    });
    let accepting = tokio::spawn(accept(listener, sessions.clone()));
    Ok(Listener { socket: Some(socket), accepting, sessions })
}

impl Listener {
    /// Stops listening, and waits a second for the commands that run. Then it cuts them off,
    /// which to the database is the end of their processes.
    pub async fn close(mut self) {
        self.stop();
        if !self.sessions.ended_within(DRAIN_MAX).await {
            self.sessions.cut_off();
            self.sessions.ended_within(CUT_OFF_MAX).await;
        }
    }

    fn stop(&mut self) {
        self.socket = None;
        self.accepting.abort();
        // The task that was just aborted may still hand over a connection.
        locked(&self.sessions.open).closing = true;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
        self.sessions.cut_off();
    }
}

async fn accept(listener: UnixListener, sessions: Arc<Sessions>) {
    let mut number = 0;
    loop {
        let accepted = match listener.accept().await {
            Ok((stream, _)) => {
                number += 1;
                sessions.admit(number, stream)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = accepted {
            tracing::debug!(target: "percolator::owner", event = "not_accepted", %error);
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

impl Sessions {
    /// Introduces this process, and serves the connection on a thread of its own.
    fn admit(self: &Arc<Self>, number: u64, stream: UnixStream) -> io::Result<()> {
        if !may_ask(stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw()) {
            return Ok(());
        }
        let mut stream = stream.into_std()?;
        let cut_off = watch::Sender::new(false);
        let (state, session) = match self.enter(number, cut_off.clone()) {
            Entered::Closing => return Ok(()),
            Entered::Full => (State::Full, None),
            Entered::Session(session) => match self.here {
                OpenHere::Database(_) => (State::Open, Some(session)),
                OpenHere::Store(_) => (State::Alone, Some(session)),
            },
        };
        // The buffer of the socket is still empty, so this write does not block.
        if Hello::of_this_process(&self.dir, state).write(&mut stream).is_err() {
            return Ok(());
        }
        let Some(session) = session else { return Ok(()) };
        let run = self.run;
        stream.set_nonblocking(false)?;
        let thread = std::thread::Builder::new().name(format!("owner-{number}"));
        thread.stack_size(STACK_BYTES).spawn(move || {
            let all = &session.sessions;
            // The other end of the connection sees every failure itself.
            let _ =
                session::serve(stream, (&all.dir, &all.here), run, cut_off, all.runtime.clone());
        })?;
        Ok(())
    }

    fn enter(self: &Arc<Self>, number: u64, cut_off: watch::Sender<bool>) -> Entered {
        let mut open = locked(&self.open);
        if open.closing {
            return Entered::Closing;
        }
        if open.commands.len() >= CONNECTIONS_MAX {
            return Entered::Full;
        }
        open.commands.insert(number, cut_off);
        self.count.send_replace(open.commands.len());
        Entered::Session(Session { sessions: self.clone(), number })
    }

    fn cut_off(&self) {
        locked(&self.open).commands.values().for_each(|cut_off| {
            cut_off.send_replace(true);
        });
    }

    /// Waits for the end of all commands; `false` if `longest` was not enough.
    async fn ended_within(&self, longest: Duration) -> bool {
        let mut count = self.count.subscribe();
        let ended = count.wait_for(|count| *count == 0);
        matches!(tokio::time::timeout(longest, ended).await, Ok(Ok(_)))
    }
}

/// The fate of a connection.
enum Entered {
    Closing,
    Full,
    Session(Session),
}

/// A command that runs, until this is dropped.
struct Session {
    sessions: Arc<Sessions>,
    number: u64,
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut open = locked(&self.sessions.open);
        open.commands.remove(&self.number);
        self.sessions.count.send_replace(open.commands.len());
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::net::UnixStream as Stream;

    use percolator::Percolator;

    use super::super::frame::{self, Kind};
    use super::super::hello::Request;
    use super::super::session::Call;
    use super::*;
    use crate::exit::Exit;

    /// Runs until it is cut off, or ends at once if the test says so.
    fn run(mut call: Call) -> Option<Exit> {
        if call.request.args == ["end"] {
            call.asked.stdout(b"ended").unwrap();
            return Some(Exit::No);
        }
        let _ = call.runtime.block_on(call.cut_off.wait_for(|cut_off| *cut_off));
        None
    }

    struct Bed {
        dir: tempfile::TempDir,
        runtime: tokio::runtime::Runtime,
        listener: Listener,
    }

    fn bed() -> Bed {
        let (dir, runtime) =
            (tempfile::tempdir().unwrap(), tokio::runtime::Runtime::new().unwrap());
        let listener = runtime.block_on(async {
            let db = Percolator::in_memory().await.unwrap();
            start(OpenHere::Database(db), run, dir.path()).unwrap()
        });
        Bed { dir, runtime, listener }
    }

    fn connect(bed: &Bed, word: &str) -> (Stream, State) {
        let mut stream = Stream::connect(bed.dir.path().join("owner.sock")).unwrap();
        let state = Hello::read(&mut stream).unwrap().state;
        if state == State::Open {
            let args = vec![OsString::from(word)];
            Request { args, ..Request::default() }.write(&mut stream).unwrap();
        }
        (stream, state)
    }

    fn frames(mut stream: &Stream) -> Vec<(Kind, Vec<u8>)> {
        std::iter::from_fn(|| frame::read(&mut stream).unwrap()).collect()
    }

    #[test]
    fn a_command_prints_and_ends() {
        let bed = bed();
        let (stream, _) = connect(&bed, "end");
        let exit = (Kind::Exit, vec![Exit::No as u8]);
        assert_eq!(frames(&stream), [(Kind::Stdout, b"ended".to_vec()), exit]);
        bed.runtime.block_on(bed.listener.close());
    }

    #[test]
    fn connections_are_bounded_and_make_room_when_they_end() {
        let bed = bed();
        let open: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect(&bed, "stay")).collect();
        assert!(open.iter().all(|(_, state)| *state == State::Open));
        let (refused, state) = connect(&bed, "end");
        assert_eq!((state, frames(&refused)), (State::Full, Vec::new()));
        drop(open);
        let ended = bed.listener.sessions.ended_within(Duration::from_secs(60));
        assert!(bed.runtime.block_on(ended), "a command outlives its connection");
        assert_eq!(connect(&bed, "end").1, State::Open);
    }

    #[test]
    fn closing_cuts_commands_off_and_takes_the_socket_away() {
        let bed = bed();
        let (stream, _) = connect(&bed, "stay");
        bed.runtime.block_on(bed.listener.close());
        assert_eq!(frames(&stream), []);
        assert!(!bed.dir.path().join("owner.sock").exists());
    }

    /// The task that accepts connections ends some time after it was asked to.
    #[test]
    fn no_command_begins_once_the_listener_is_closing() {
        let mut bed = bed();
        bed.listener.stop();
        let entered = bed.listener.sessions.enter(1, watch::Sender::new(false));
        assert!(matches!(entered, Entered::Closing));
    }

    #[test]
    fn a_connection_that_asks_nothing_ends_by_itself() {
        let bed = bed();
        let stream = Stream::connect(bed.dir.path().join("owner.sock")).unwrap();
        let hello = frame::read(&mut &stream).unwrap().unwrap();
        assert_eq!(hello.0, Kind::Hello);
        assert_eq!(frames(&stream), [], "within five seconds");
    }
}
