//! Gives servers a log: lines with time and level, as text or as JSON, on stderr or in a file of
//! bounded size.
//!
//! The process itself renames its file when the file is full, and goes on in a new one. So no line
//! goes to a file that somebody else has renamed. A file belongs to one process at a time.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bigtable::sync::locked;
use clap::{Args, ValueEnum};

use crate::exit::Failure;
use crate::private;

/// The target of events about the process itself.
pub(crate) const SERVICE: &str = "percolator::service";

/// The size at which a file of the log is full.
const FILE_BYTES_MAX: u64 = 10 << 20;
/// How many full files are kept beside the current one.
const FULL_FILES: u32 = 2;

/// The form of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line, with `time`, `level`, `target`, and mostly `event` and `message`.
    Json,
}

/// How a server logs.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// The form of the log. Each line has its time in UTC and its level.
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    /// Append the log to FILE instead of printing it on stderr. At 10 MiB, FILE becomes FILE.1,
    /// and FILE.1 becomes FILE.2; older lines are deleted.
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
}

/// The log of a command that serves.
#[derive(Debug, Clone)]
pub struct ServiceLog {
    /// The role of the server, such as `table`.
    pub(crate) role: &'static str,
    pub(crate) args: LogArgs,
}

impl ServiceLog {
    pub(crate) fn new(role: &'static str, args: &LogArgs) -> ServiceLog {
        ServiceLog { role, args: args.clone() }
    }

    /// Whether the log has the form that a program reads.
    pub(crate) fn is_json(&self) -> bool {
        self.args.log_format == LogFormat::Json
    }

    /// Whether an error that ends the process is an event of the log.
    pub(crate) fn takes_errors(&self) -> bool {
        self.is_json() || self.args.log_file.is_some()
    }

    /// Whether an error that ends the process is printed on stderr as that of any command.
    pub(crate) fn prints_errors(&self) -> bool {
        !self.is_json() || self.args.log_file.is_some()
    }

    /// Opens the log.
    pub(crate) fn open(&self) -> anyhow::Result<LogWriter> {
        let Some(path) = &self.args.log_file else { return Ok(LogWriter(None)) };
        let file = LogFile::open(path, FILE_BYTES_MAX).map_err(|error| {
            Failure::usage(
                format!("{}: cannot append to the log: {error}", path.display()),
                "give --log-file a file in a directory that exists and can be written",
            )
        })?;
        Ok(LogWriter(Some(Arc::new(Mutex::new(file)))))
    }
}

/// Writes lines to stderr or to the file of a log.
#[derive(Debug, Clone)]
pub(crate) struct LogWriter(Option<Arc<Mutex<LogFile>>>);

impl LogWriter {
    pub(crate) fn is_file(&self) -> bool {
        self.0.is_some()
    }
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Some(file) => locked(file).append(line)?,
            None => io::stderr().lock().write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The current file of a log.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
}

impl LogFile {
    fn open(path: &Path, bytes_max: u64) -> io::Result<LogFile> {
        let file = create(path)?;
        let bytes = file.metadata()?.len();
        Ok(LogFile { path: path.to_owned(), file, bytes, bytes_max })
    }

    /// Appends a line. Begins a new file first if the line exceeds the bound. If that fails, such
    /// as in a directory that is read-only now, the current file grows beyond the bound.
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let len = line.len() as u64;
        if self.bytes > 0
            && self.bytes + len > self.bytes_max
            && let Ok(next) = self.begin_next()
        {
            (self.file, self.bytes) = (next, 0);
        }
        self.bytes += len;
        self.file.write_all(line)
    }

    fn begin_next(&self) -> io::Result<File> {
        for number in (0..FULL_FILES).rev() {
            let (from, to) = (self.numbered(number), self.numbered(number + 1));
            match std::fs::rename(from, to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        create(&self.path)
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        name.into()
    }
}

/// Opens a file for appending, which only its user may read.
fn create(path: &Path) -> io::Result<File> {
    private::writing().append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_is_followed_by_another_and_the_oldest_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = LogFile::open(&path, 10).unwrap();
        for line in ["aaaa\n", "bbbb\n", "cccc\n", "dddd\n", "eeee\n", "ffff\n"] {
            log.append(line.as_bytes()).unwrap();
        }
        // A process that is started again appends.
        drop(log);
        let mut log = LogFile::open(&path, 10).unwrap();
        log.append(b"gggg\n").unwrap();
        log.append(b"a line that is longer than a file\n").unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("log"), "a line that is longer than a file\n");
        assert_eq!(read("log.1"), "gggg\n");
        assert_eq!(read("log.2"), "eeee\nffff\n");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
