//! Chooses the path of an owner's socket, and creates the socket there.
//!
//! The socket lies in the owner's directory, if the path fits into the address of a socket and
//! the file system has sockets. Otherwise it lies in the user's runtime directory, or else in a
//! private directory among the temporary files. There its name is a hash of the directory's path.
//!
//! Invariants:
//!
//! * Only the process that has the directory open calls [`bind`], so no process removes the
//!   socket of another one that listens. The socket of a killed process is replaced.
//! * Another user cannot connect at any time. The socket is created in a directory that only this
//!   user can enter, gets its mode, and is then renamed. The umask is left alone: it belongs to
//!   the whole process, and other threads create files meanwhile.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::environment::XDG_RUNTIME_DIR;

/// The most bytes of a socket's path: 108 on Linux, including the zero at its end.
const PATH_BYTES_MAX: usize = 107;
/// The name of a socket in the directory where it is created.
const NEW: &str = "s";

/// The directories outside of an owner's own where its socket may lie.
#[derive(Debug, Clone)]
pub(super) struct Elsewhere {
    /// The user's runtime directory.
    runtime: Option<PathBuf>,
    /// The directory of temporary files.
    temporary: PathBuf,
    /// The user.
    uid: u32,
}

impl Elsewhere {
    /// Returns the directories that the environment of this process names.
    pub(super) fn of_this_process() -> Elsewhere {
        let runtime = XDG_RUNTIME_DIR.value().map(PathBuf::from);
        Elsewhere {
            runtime: runtime.filter(|dir| dir.is_absolute()),
            temporary: std::env::temp_dir(),
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    fn private(&self) -> PathBuf {
        self.temporary.join(format!("percolator-{}", self.uid))
    }

    /// Returns the paths that the socket of a directory may have, the preferred one first. `dir`
    /// is canonical.
    pub(super) fn paths(&self, dir: &Path) -> Vec<PathBuf> {
        let name = format!("{}.sock", &blake3::hash(dir.as_os_str().as_bytes()).to_hex()[..32]);
        let mut paths = vec![dir.join("owner.sock")];
        paths.extend(
            self.runtime.as_ref().map(|runtime| runtime.join(format!("percolator-{name}"))),
        );
        paths.push(self.private().join(name));
        paths.retain(|path| making(path).as_os_str().len() <= PATH_BYTES_MAX);
        paths
    }
}

/// Returns the path under which a socket is created, before it is renamed.
fn making(path: &Path) -> PathBuf {
    path.with_extension("new").join(NEW)
}

/// The file of a socket. Dropping this value removes the file.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have opened the directory since, and put its own socket here.
        if fs::symlink_metadata(&self.path).is_ok_and(|there| identity(&there) == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Listens for processes that look for the owner of a directory. Only the owner may call this.
/// `dir` is canonical. If no path works, the error is that of the first one.
pub(super) fn bind(dir: &Path, elsewhere: &Elsewhere) -> io::Result<(UnixListener, SocketFile)> {
    let mut first = None;
    for path in elsewhere.paths(dir) {
        let bound = match path.parent() {
            Some(parent) if parent != dir => {
                private(parent, elsewhere).and_then(|()| bind_at(&path))
            }
            _ => bind_at(&path),
        };
        match bound {
            Ok(bound) => return Ok(bound),
            Err(error) => {
                first.get_or_insert(io::Error::new(
                    error.kind(),
                    format!("{}: {error}", path.display()),
                ));
            }
        }
    }
    Err(first.unwrap_or_else(|| {
        let what =
            format!("the path of every possible socket is longer than {PATH_BYTES_MAX} bytes");
        io::Error::new(io::ErrorKind::InvalidFilename, what)
    }))
}

fn bind_at(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let made = making(path);
    let room = path.with_extension("new");
    // A process that was killed in this function may have left both.
    ignore_missing(fs::remove_file(&made))?;
    ignore_missing(fs::remove_dir(&room))?;
    DirBuilder::new().mode(0o700).create(&room)?;
    let bound = UnixListener::bind(&made).and_then(|listener| {
        fs::set_permissions(&made, Permissions::from_mode(0o600))?;
        let file = identity(&fs::symlink_metadata(&made)?);
        // Replaces the socket that a killed process has left.
        fs::rename(&made, path)?;
        Ok((listener, SocketFile { path: path.to_owned(), file }))
    });
    let _ = fs::remove_file(&made);
    let _ = fs::remove_dir(&room);
    bound
}

/// Makes sure that only this user can enter a directory. Creates the private one among the
/// temporary files.
fn private(dir: &Path, elsewhere: &Elsewhere) -> io::Result<()> {
    if dir == elsewhere.private() {
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    let there = fs::symlink_metadata(dir)?;
    if there.is_dir() && there.uid() == elsewhere.uid && there.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "other users can enter the directory"))
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Whether a user may send commands to a process of the user `own`. The superuser can read the
/// files anyway.
pub(super) fn may_ask(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Creates a directory with a long path, whose socket must lie elsewhere.
    fn long(root: &Path) -> PathBuf {
        let dir = root.join("d".repeat(120));
        fs::create_dir(&dir).unwrap();
        dir
    }

    fn elsewhere(root: &Path) -> Elsewhere {
        let (runtime, temporary) = (root.join("run"), root.join("tmp"));
        DirBuilder::new().mode(0o700).create(&runtime).unwrap();
        fs::create_dir(&temporary).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        Elsewhere { runtime: Some(runtime), temporary, uid }
    }

    fn root() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::Builder::new().prefix("o").tempdir().unwrap();
        let path = root.path().canonicalize().unwrap();
        (root, path)
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn the_socket_lies_in_the_directory_and_goes_with_its_owner() {
        let (_root, root) = root();
        let elsewhere = elsewhere(&root);
        let dir = root.join("data");
        fs::create_dir(&dir).unwrap();
        let (_listener, file) = bind(&dir, &elsewhere).unwrap();
        assert_eq!(names(&dir), ["owner.sock"]);
        let mode = fs::symlink_metadata(dir.join("owner.sock")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        UnixStream::connect(&file.path).unwrap();
        drop(file);
        assert!(names(&dir).is_empty());
    }

    #[test]
    fn the_rests_of_a_killed_process_are_replaced() {
        let (_root, root) = root();
        let elsewhere = elsewhere(&root);
        let (listener, old) = bind(&root, &elsewhere).unwrap();
        // The socket file stays, and no process listens; a process was killed while it created
        // another one.
        drop(listener);
        UnixStream::connect(&old.path).unwrap_err();
        fs::create_dir(root.join("owner.new")).unwrap();
        drop(UnixListener::bind(root.join("owner.new/s")).unwrap());
        let (_listener, new) = bind(&root, &elsewhere).unwrap();
        UnixStream::connect(&new.path).unwrap();
        assert!(!root.join("owner.new").exists());
        // The file now belongs to the new owner, so the old one must not remove it.
        drop(old);
        UnixStream::connect(&new.path).unwrap();
    }

    #[test]
    fn a_long_path_has_its_socket_in_the_runtime_directory_or_among_temporary_files() {
        let (_root, root) = root();
        let mut elsewhere = elsewhere(&root);
        let dir = long(&root);
        let (_listener, file) = bind(&dir, &elsewhere).unwrap();
        assert!(file.path.starts_with(root.join("run")), "{file:?}");
        let other = root.join("e".repeat(120));
        assert_ne!(elsewhere.paths(&dir)[0], elsewhere.paths(&other)[0]);

        elsewhere.runtime = None;
        let (_listener, file) = bind(&dir, &elsewhere).unwrap();
        let private = elsewhere.private();
        assert!(file.path.starts_with(&private), "{file:?}");
        assert_eq!(fs::metadata(&private).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_place_that_others_can_enter_is_refused() {
        let (_root, root) = root();
        let mut elsewhere = elsewhere(&root);
        let dir = long(&root);
        fs::set_permissions(root.join("run"), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(elsewhere.private()).unwrap();
        fs::set_permissions(elsewhere.private(), Permissions::from_mode(0o777)).unwrap();
        let error = bind(&dir, &elsewhere).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("/run/percolator-"), "{error}");

        elsewhere.temporary = root.join("t".repeat(120));
        elsewhere.runtime = None;
        assert!(bind(&dir, &elsewhere).unwrap_err().to_string().contains("107 bytes"));
    }

    #[test]
    fn a_directory_without_room_for_a_socket_has_it_elsewhere() {
        let (_root, root) = root();
        let elsewhere = elsewhere(&root);
        let dir = root.join("data");
        fs::create_dir_all(dir.join("owner.sock/in the way")).unwrap();
        let (_listener, file) = bind(&dir, &elsewhere).unwrap();
        assert!(file.path.starts_with(root.join("run")), "{file:?}");
        assert_eq!(names(&dir), ["owner.sock"]);
    }

    #[test]
    fn only_the_same_user_and_the_superuser_may_ask() {
        assert!(may_ask(1000, 1000) && may_ask(0, 1000) && may_ask(0, 0));
        assert!(!may_ask(1001, 1000) && !may_ask(1000, 0));
    }
}
