//! Defines the first frames of a connection: the owner introduces itself, and the asker sends its
//! request.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::frame::{self, Kind};

/// The version of the frames and of their content.
const PROTOCOL: u32 = 1;
/// The version of this program. Another version may print something else, or lack the command.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How many commands an owner runs at a time for other processes.
pub(super) const CONNECTIONS_MAX: usize = 16;
/// The most bytes of a command line, and of a command's input. The owner holds both in memory as
/// a whole.
const ARGUMENTS_BYTES_MAX: usize = 4 << 20;
const INPUT_BYTES_MAX: usize = 16 << 20;
/// The most characters of the owner's command line that it sends.
const COMMAND_CHARS_MAX: usize = 200;

/// The owner's answer to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// The owner runs a command for this connection.
    Open,
    /// The owner already runs the most commands that it may run for others.
    Full,
    /// It serves the directory's tables and knows nothing of transactions: it makes backups, and
    /// runs no other command.
    Alone,
}

/// The introduction of an owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    protocol: u32,
    version: String,
    pub(super) state: State,
    /// The directory that it has open, as text.
    dir: String,
    pub(crate) pid: u32,
    /// Its command line.
    pub(crate) command: String,
}

impl Hello {
    /// Makes the introduction of this process, which has a directory open.
    pub(super) fn of_this_process(dir: &Path, state: State) -> Hello {
        Hello {
            protocol: PROTOCOL,
            version: VERSION.to_owned(),
            state,
            dir: dir.to_string_lossy().into_owned(),
            pid: std::process::id(),
            command: command_line(std::env::args_os()),
        }
    }

    /// Whether the owner has this directory open. A socket outside of the directory may belong to
    /// the owner of another one.
    pub(super) fn has(&self, dir: &Path) -> bool {
        self.dir == dir.to_string_lossy()
    }

    /// Returns why the owner cannot run a command of this version, if the versions differ.
    pub(super) fn differs(&self) -> Option<String> {
        (self.protocol != PROTOCOL || self.version != VERSION).then(|| {
            format!(
                "that process has version {}, and this command has version {VERSION}",
                self.version
            )
        })
    }

    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        frame::write(to, Kind::Hello, &serde_json::to_vec(self)?)
    }

    pub(super) fn read(from: &mut impl Read) -> io::Result<Hello> {
        match frame::read(from)? {
            Some((Kind::Hello, content)) => Ok(serde_json::from_slice(&content)?),
            _ => Err(malformed("the hello is missing")),
        }
    }
}

/// Formats a command line as people write it, shortened.
fn command_line(args: impl Iterator<Item = OsString>) -> String {
    let mut words = args.map(|word| word.to_string_lossy().into_owned());
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned());
    let mut line = name.unwrap_or(program);
    for word in words {
        line.push(' ');
        line.push_str(&word);
    }
    match line.char_indices().nth(COMMAND_CHARS_MAX) {
        None => line,
        Some((end, _)) => format!("{} ...", &line[..end]),
    }
}

/// The surroundings of a command that its owner must know, besides the arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asker {
    /// Whether its standard output is a terminal.
    pub(crate) stdout_is_terminal: bool,
    /// Whether its standard error is to be coloured.
    pub(crate) color: bool,
    /// Whether the command wants trace events.
    pub(crate) events: bool,
    /// Its working directory, in which the paths that it was given lie.
    #[serde(default)]
    pub(crate) dir: PathBuf,
}

/// A request to run a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Its command line, beginning with the name of the program.
    pub(crate) args: Vec<OsString>,
    /// The input that the command has read, such as a script.
    pub(crate) input: Vec<u8>,
    pub(crate) asker: Asker,
}

impl Request {
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        for arg in &self.args {
            frame::write(to, Kind::Argument, arg.as_encoded_bytes())?;
        }
        frame::write_pieces(to, Kind::Input, &self.input)?;
        frame::write(to, Kind::Ask, &serde_json::to_vec(&self.asker)?)
    }

    /// Reads a request; `None` if the other end only wanted to know which process has the
    /// directory open.
    pub(super) fn read(from: &mut impl Read) -> io::Result<Option<Request>> {
        let mut request = Request::default();
        let mut arguments_bytes = 0;
        while let Some((kind, mut content)) = frame::read(from)? {
            match kind {
                Kind::Argument => {
                    arguments_bytes += content.len() + 1;
                    if arguments_bytes > ARGUMENTS_BYTES_MAX {
                        return Err(malformed("the command line is too long"));
                    }
                    request.args.push(argument(content)?);
                }
                Kind::Input => {
                    if request.input.len() + content.len() > INPUT_BYTES_MAX {
                        return Err(malformed("the input is too long"));
                    }
                    request.input.append(&mut content);
                }
                Kind::Ask => {
                    request.asker = serde_json::from_slice(&content)?;
                    return Ok(Some(request));
                }
                kind => return Err(malformed(&format!("a request has an unexpected {kind:?}"))),
            }
        }
        Ok(None)
    }

    /// Returns why the owner would refuse the request, if it would.
    pub(super) fn is_too_long(&self) -> Option<String> {
        let arguments: usize = self.args.iter().map(|arg| arg.len() + 1).sum();
        if arguments > ARGUMENTS_BYTES_MAX {
            return Some(format!("its command line has {arguments} bytes, more than 4 MiB"));
        }
        (self.input.len() > INPUT_BYTES_MAX)
            .then(|| format!("its input has {} bytes, more than 16 MiB", self.input.len()))
    }
}

#[cfg(unix)]
fn argument(bytes: Vec<u8>) -> io::Result<OsString> {
    Ok(std::os::unix::ffi::OsStringExt::from_vec(bytes))
}

#[cfg(not(unix))]
fn argument(bytes: Vec<u8>) -> io::Result<OsString> {
    String::from_utf8(bytes).map(OsString::from).map_err(io::Error::other)
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_introduces_itself() {
        let hello = Hello::of_this_process(Path::new("/data"), State::Open);
        let mut sent = Vec::new();
        hello.write(&mut sent).unwrap();
        assert_eq!(Hello::read(&mut &sent[..]).unwrap(), hello);
        assert_eq!(hello.differs(), None);
        assert_eq!(hello.pid, std::process::id());
        assert!(hello.has(Path::new("/data")) && !hello.has(Path::new("/other")));
    }

    #[test]
    fn an_owner_of_another_version_is_understood_and_named() {
        let sent = r#"{"protocol":2,"version":"9.0.0","state":"open","dir":"/data","pid":7,
                       "command":"percolator demo","more":[]}"#;
        let mut bytes = Vec::new();
        frame::write(&mut bytes, Kind::Hello, sent.as_bytes()).unwrap();
        let hello = Hello::read(&mut &bytes[..]).unwrap();
        assert!(hello.differs().unwrap().contains("has version 9.0.0"));
        for (protocol, version) in [(PROTOCOL + 1, VERSION), (PROTOCOL, "0.0.1")] {
            let other = Hello { protocol, version: version.to_owned(), ..hello.clone() };
            assert!(other.differs().is_some());
        }
    }

    #[test]
    fn command_lines_are_shortened() {
        let line = |words: &[&str]| command_line(words.iter().map(OsString::from));
        assert_eq!(
            line(&["/usr/bin/percolator", "demo", "--data", "D"]),
            "percolator demo --data D"
        );
        let long = line(&["percolator", &"é".repeat(500)]);
        assert_eq!(long.chars().count(), COMMAND_CHARS_MAX + 4);
    }

    #[test]
    fn a_request_comes_as_it_was_sent() {
        let asker = Asker {
            stdout_is_terminal: true,
            events: true,
            dir: "/somewhere".into(),
            color: false,
        };
        let args = ["percolator", "set", "Bob", "", "$10"].map(OsString::from).to_vec();
        let request = Request { args, input: vec![7; 200_000], asker };
        let mut sent = Vec::new();
        request.write(&mut sent).unwrap();
        assert_eq!(Request::read(&mut &sent[..]).unwrap(), Some(request));
        assert_eq!(Request::read(&mut &[][..]).unwrap(), None);
    }

    #[test]
    fn a_request_is_bounded_at_both_ends() {
        let long = Request { input: vec![0; INPUT_BYTES_MAX + 1], ..Request::default() };
        assert!(long.is_too_long().unwrap().contains("input"));
        let arg = OsString::from("x".repeat(ARGUMENTS_BYTES_MAX / 2));
        let many = Request { args: vec![arg.clone(), arg], ..Request::default() };
        assert!(many.is_too_long().unwrap().contains("command line"));
        for request in [long, many] {
            let mut sent = Vec::new();
            request.write(&mut sent).unwrap();
            assert!(Request::read(&mut &sent[..]).unwrap_err().to_string().contains("too long"));
        }
        let mut strange = Vec::new();
        frame::write(&mut strange, Kind::Exit, &[0]).unwrap();
        assert!(Request::read(&mut &strange[..]).is_err());
    }
}
