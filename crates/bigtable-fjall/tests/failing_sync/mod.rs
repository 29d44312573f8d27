//! Simulates a disk whose syncs fail, for a separate process. `scripts/failing-sync.c` is
//! built with the machine's C compiler and preloaded before the C library.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable with the directory through which the process and its test communicate.
pub(crate) const VARIABLE: &str = "FAILING_SYNC";

/// Controls which syncs fail, and records the result of each.
#[derive(Debug, Clone)]
pub(crate) struct FailingSync(PathBuf);

/// A sync call and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// `synced`, `failed` or `repeated`.
    pub(crate) what: String,
    /// The device number and the inode number of the file.
    pub(crate) file: String,
    pub(crate) path: String,
}

impl FailingSync {
    /// Builds the library into a directory. Prints a note and returns `None` if there is no C
    /// compiler.
    pub(crate) fn build(dir: &Path) -> Option<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/failing-sync.c");
        let mut cc = Command::new("cc");
        let cc = cc.args(["-shared", "-fPIC", "-o"]).arg(dir.join("failing-sync.so"));
        match cc.arg(source).arg("-ldl").output() {
            Ok(built) if built.status.success() => Some(FailingSync(dir.to_owned())),
            Ok(failed) => panic!("{}", String::from_utf8_lossy(&failed.stderr)),
            Err(_) => {
                let why = "there is no C compiler (cc)";
                let _ = writeln!(std::io::stderr(), "SKIPPED: syncs that fail, because {why}");
                None
            }
        }
    }

    /// The control of this process, which was started by [`under`](FailingSync::under).
    #[allow(dead_code, reason = "of the test whose own process it is")]
    pub(crate) fn own() -> Option<Self> {
        std::env::var_os(VARIABLE).map(|dir| FailingSync(dir.into()))
    }

    /// Runs the command on this disk.
    pub(crate) fn under(&self, command: &mut Command) {
        command.env(VARIABLE, &self.0).env("LD_PRELOAD", self.0.join("failing-sync.so"));
    }

    /// Makes the next sync fail of a file whose path contains `part`.
    pub(crate) fn fail_once(&self, part: &str) {
        self.control(&format!("once {part}"));
    }

    /// Makes the first sync fail of each file whose path contains `part`.
    pub(crate) fn fail_always(&self, part: &str) {
        self.control(&format!("always {part}"));
    }

    fn control(&self, text: &str) {
        let new = self.0.join("fail.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.0.join("fail")).unwrap();
    }

    /// Whether the next matching sync will still fail.
    #[allow(dead_code, reason = "not every test asks")]
    pub(crate) fn is_armed(&self) -> bool {
        self.0.join("fail").exists()
    }

    /// The sync calls so far, in order.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let text = fs::read_to_string(self.0.join("log")).unwrap_or_default();
        let call = |line: &str| {
            let mut words = line.splitn(3, ' ').map(str::to_owned);
            let mut word = || words.next().expect("a line has three words");
            Call { what: word(), file: word(), path: word() }
        };
        text.lines().map(call).collect()
    }

    /// Checks that the store in `dir` contains no file whose sync has failed: each was
    /// replaced. Returns the paths of the failed syncs.
    pub(crate) fn none_is_kept(&self, dir: &Path) -> Vec<String> {
        let failed: Vec<Call> = self.calls().into_iter().filter(|c| c.what == "failed").collect();
        let files: BTreeSet<&str> = failed.iter().map(|call| &*call.file).collect();
        let mut left = vec![dir.to_owned()];
        while let Some(path) = left.pop() {
            let about = fs::metadata(&path).unwrap();
            let file = format!("{}:{}", about.dev(), about.ino());
            assert!(!files.contains(&*file), "{} is kept after its sync failed", path.display());
            if about.is_dir() {
                left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        failed.into_iter().map(|call| call.path).collect()
    }
}
