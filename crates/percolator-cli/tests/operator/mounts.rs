//! Makes a directory read-only, or mounts it at another place, for tests.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory that is mounted at another place until this value is dropped.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a directory at another place. Returns `None`, and says so loudly, where the system
    /// does not allow it.
    pub(crate) fn bind(from: &Path, to: &Path) -> Option<Mounted> {
        if !mount(&["--bind", text(from), text(to)]) {
            // The test harness captures the output of print macros.
            let _ = writeln!(std::io::stderr(), "SKIPPED: this user may not mount {from:?}");
            return None;
        }
        Some(Mounted(to.to_owned()))
    }

    /// Mounts a directory over itself, so that not even the superuser can write there.
    pub(crate) fn read_only(dir: &Path) -> Option<Mounted> {
        let mounted = Mounted::bind(dir, dir)?;
        assert!(mount(&["-o", "remount,ro,bind", text(dir)]), "the directory was mounted");
        Some(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn mount(args: &[&str]) -> bool {
    Command::new("mount").args(args).output().is_ok_and(|output| output.status.success())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
