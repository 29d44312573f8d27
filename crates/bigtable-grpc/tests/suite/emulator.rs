//! Finds Google's emulator for the tests that need it. `BIGTABLE_EMULATOR_HOST` names one;
//! otherwise `scripts/emulator.sh` starts one, which ends with the process of the tests.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Exit code of the script if there is no emulator to start.
const NONE: i32 = 77;

/// The emulator's `HOST:PORT`. Without an emulator, this prints a warning and returns `None`.
///
/// # Panics
/// If there is an emulator, but it cannot be started.
pub(crate) fn address() -> Option<&'static str> {
    // The child ends when its standard input is closed, which stays open as long as this
    // process lives.
    static EMULATOR: OnceLock<Option<(String, Option<Child>)>> = OnceLock::new();
    let emulator = EMULATOR.get_or_init(|| match std::env::var("BIGTABLE_EMULATOR_HOST") {
        Ok(address) => Some((address, None)),
        Err(_) => start(),
    });
    match emulator {
        Some((address, _)) => Some(address),
        None => {
            // The macros' output is captured, so this writes to standard error directly.
            let text = b"SKIPPED: a test that needs Google's emulator (see scripts/emulator.sh)\n";
            let _ = std::io::stderr().write_all(text);
            None
        }
    }
}

fn start() -> Option<(String, Option<Child>)> {
    const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/emulator.sh");
    let mut child = Command::new("bash")
        .args([SCRIPT, "sh", "-c", "echo \"$BIGTABLE_EMULATOR_HOST\"; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut address = String::new();
    let output = child.stdout.take().expect("standard output is a pipe");
    BufReader::new(output).read_line(&mut address).expect("a line of the script");
    if address.is_empty() {
        let status = child.wait().expect("the script ends");
        assert_eq!(status.code(), Some(NONE), "scripts/emulator.sh has failed");
        return None;
    }
    Some((address.trim_end().to_owned(), Some(child)))
}

/// A name of an instance that no other test or run uses.
pub(crate) fn instance(of: &str) -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.map_or(0, |since| since.as_nanos());
    format!("{of}-{}-{since}", std::process::id())
}
