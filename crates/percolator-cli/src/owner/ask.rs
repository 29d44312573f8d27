//! Sends a command to the owner of its directory, and prints what the owner sends back.

use std::fs::File;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use super::find::OpenElsewhere;
use super::frame::{self, Kind};
use super::hello::Request;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;

/// The end of a command that another process ran.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The command ended by itself.
    Exit(Exit),
    /// The process ended before the command, or gave it up.
    CutOff {
        /// The error for the user.
        error: anyhow::Error,
        /// Whether the command has printed something on standard output.
        printed: bool,
    },
}

/// Has the owner run the command, and prints what the command prints.
///
/// # Errors
/// If the owner does not take the command, or if its output cannot be printed here.
pub(crate) async fn ask(
    found: OpenElsewhere,
    (request, needs_database): (Request, bool),
    events: Option<File>,
    interrupt: &Interrupt,
) -> anyhow::Result<Answer> {
    found.owner.check(&found.dir, needs_database)?;
    let name = found.owner.name();
    if let Some(why) = request.is_too_long() {
        return Err(Failure::usage(
            format!("{name} has the directory open and cannot run the command: {why}"),
            "wait until that process ends, or give the command fewer arguments and less input",
        ));
    }
    let stream = found.owner.stream;
    let (to_interrupt, to_close) = (stream.try_clone()?, stream.try_clone()?);
    let mut relay = tokio::task::spawn_blocking(move || relay(stream, &request, events));
    let relayed = tokio::select! {
        relayed = &mut relay => relayed,
        () = interrupt.pressed() => {
            // If the owner is gone, the relay ends by itself.
            let _ = frame::write(&mut &to_interrupt, Kind::Interrupt, b"");
            relay.await
        }
    };
    // The command has ended, or the reader of its output has gone.
    let _ = to_close.shutdown(Shutdown::Both);
    Ok(match relayed?? {
        Relayed::Exit(exit) => Answer::Exit(exit),
        Relayed::CutOff { why, printed } => Answer::CutOff {
            error: Failure::unknown(
                format!(
                    "{} was open in {name}, which did not finish the command: {why}",
                    found.dir.display()
                ),
                "the outcome is unknown: read the cells that the command writes before you run it \
                 again",
            ),
            printed,
        },
    })
}

enum Relayed {
    Exit(Exit),
    CutOff { why: io::Error, printed: bool },
}

/// Sends the request, and prints until the command has ended.
fn relay(mut stream: UnixStream, request: &Request, events: Option<File>) -> io::Result<Relayed> {
    let mut printed = false;
    if let Err(why) = request.write(&mut stream) {
        return Ok(Relayed::CutOff { why, printed });
    }
    loop {
        let (kind, content) = match frame::read(&mut stream) {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                let why = io::Error::new(io::ErrorKind::UnexpectedEof, "the connection is closed");
                return Ok(Relayed::CutOff { why, printed });
            }
            Err(why) => return Ok(Relayed::CutOff { why, printed }),
        };
        match kind {
            Kind::Stdout => {
                printed = true;
                let mut stdout = io::stdout().lock();
                stdout.write_all(&content)?;
                stdout.flush()?;
            }
            Kind::Stderr => {
                // As for remarks of this process itself: the reader may have gone.
                let _ = io::stderr().lock().write_all(&content);
            }
            Kind::Event => {
                // A trace that cannot be written must not stop what is traced.
                let _ = events.as_ref().map(|mut file| file.write_all(&content));
            }
            Kind::Exit => {
                let exit = content.first().and_then(|code| Exit::of_code(*code));
                return exit.map(Relayed::Exit).ok_or_else(|| {
                    io::Error::other("the process with the directory sent no exit code")
                });
            }
            kind => {
                let why = io::Error::other(format!(
                    "the process with the directory sent an unexpected {kind:?}"
                ));
                return Ok(Relayed::CutOff { why, printed });
            }
        }
    }
}
