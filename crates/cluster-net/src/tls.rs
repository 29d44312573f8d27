//! Holds the certificates of a process for mutual TLS, and reads their files again when they
//! change.
//!
//! One authority signs all certificates of a cluster. A certificate names *roles*, as DNS names
//! in its subject alternative names: `client.percolator.internal`,
//! `oracle.percolator.internal`, `table.percolator.internal`, `admin.percolator.internal`. A
//! server accepts only clients of the roles that it serves. A client accepts only servers of the
//! role that it looks for, on any host. So a leader may run anywhere, and the holder of a client's
//! certificate cannot pose as the oracle.
//!
//! Before a connection is made, the files are looked at, at most once a second. If they have
//! changed, the connection uses the new ones. New files that cannot be used are logged, and the
//! earlier certificates stay. While files are being replaced, the key may not fit the certificate
//! for a moment. Then the next connection after the last change reads them.
//!
//! ADR-19 says what this design costs, and what would change it.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tonic::transport::ClientTlsConfig;

use crate::Error;
use crate::certificate::Facts;
use crate::loaded::{Loaded, Texts};

/// Largest file of certificates or keys, in bytes.
const PEM_BYTES_MAX: u64 = 1 << 20;
/// Longest time for a handshake.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(5);
/// The shortest time between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The authority of a cluster, and this process's own certificate and key. Clones share them, and
/// see renewed files together.
///
/// ```
/// use cluster_net::Tls;
/// assert!(Tls::from_pem("no authority", "no certificate", "no key").is_err());
/// ```
#[derive(Clone)]
pub struct Tls(Arc<Shared>);

struct Shared {
    files: Option<Files>,
    state: Mutex<State>,
}

struct State {
    loaded: Arc<Loaded>,
    /// The marks of the files at the last reading, whether or not they could be used.
    marks: Option<Marks>,
    looked: Instant,
}

/// The files of the three texts.
struct Files {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

/// The marks by which new contents of the three files are told from earlier ones. `None` for a file
/// that cannot be looked at.
type Marks = [Option<Mark>; 3];

#[derive(Clone, Copy, PartialEq, Eq)]
struct Mark {
    modified: Option<SystemTime>,
    bytes: u64,
    /// The number of the file on its file system: a renamed file may be as old as the one before.
    inode: u64,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key must never appear.
        f.write_str("Tls")
    }
}

impl Tls {
    /// Builds the settings from texts in PEM, which stay as they are.
    ///
    /// # Errors
    /// [`Error`] if a text contains nothing of its kind, or if the key does not belong to the
    /// certificate.
    pub fn from_pem(authority: &str, certificate: &str, key: &str) -> Result<Self, Error> {
        let [authority, certificate, key] = [authority, certificate, key].map(str::to_owned);
        let loaded = Loaded::new(Texts { authority, certificate, key })?;
        Ok(Tls::new(loaded, None, None))
    }

    /// Reads the settings from files in PEM. Renewed files are read before the next connection.
    ///
    /// # Errors
    /// [`Error`] names a file that cannot be read, is larger than 1 MiB, or contains nothing of
    /// its kind. It also reports a key that does not belong to the certificate.
    pub fn read(authority: &Path, certificate: &Path, key: &Path) -> Result<Self, Error> {
        let [authority, certificate, key] = [authority, certificate, key].map(Path::to_owned);
        let files = Files { authority, certificate, key };
        // The marks come first, so that a later change of a file is noticed.
        let marks = files.marks();
        let loaded = files.load()?;
        report(loaded.facts());
        Ok(Tls::new(loaded, Some(files), Some(marks)))
    }

    fn new(loaded: Loaded, files: Option<Files>, marks: Option<Marks>) -> Self {
        let state = State { loaded: Arc::new(loaded), marks, looked: Instant::now() };
        Tls(Arc::new(Shared { files, state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The certificates for the next connection.
    pub(crate) fn current(&self) -> Arc<Loaded> {
        let mut state = self.state();
        if let Some(files) = &self.0.files
            && state.looked.elapsed() >= LOOK_EVERY
        {
            state.look(files);
        }
        state.loaded.clone()
    }

    /// Reads files that have changed now instead of before the next connection, and logs the
    /// result.
    pub fn renew(&self) {
        let mut state = self.state();
        if let Some(files) = &self.0.files {
            // Files that could not be used are reported again.
            state.marks = None;
            state.look(files);
        }
        report(state.loaded.facts());
    }

    /// The configuration for servers that are identified by their hosts, such as etcd's. Their
    /// certificates name hosts, not roles. The configuration does not follow renewed files.
    pub fn for_client_of_host(&self) -> ClientTlsConfig {
        self.current().for_client_of_host().timeout(HANDSHAKE)
    }
}

/// Logs the certificate of this process.
fn report(facts: &Facts) {
    let (subject, until) = (facts.to_string(), facts.end());
    if facts.has_expired() {
        tracing::warn!(
            target: "cluster_net", event = "certificate_expired", subject, until,
            "the certificate of this process ({subject}) expired on {until}: put a renewed one in \
             its place"
        );
    } else {
        tracing::info!(
            target: "cluster_net", event = "certificate_read", subject, until,
            "the certificate of this process ({subject}) is valid until {until}"
        );
    }
}

impl State {
    /// Reads the files if they have changed. The earlier certificates stay if the new ones cannot
    /// be used.
    fn look(&mut self, files: &Files) {
        self.looked = Instant::now();
        let marks = files.marks();
        if self.marks == Some(marks) {
            return;
        }
        self.marks = Some(marks);
        match files.load() {
            Ok(loaded) if loaded.texts() == self.loaded.texts() => {}
            Ok(loaded) => {
                let facts = loaded.facts();
                let (subject, until) = (facts.to_string(), facts.end());
                tracing::info!(
                    target: "cluster_net", event = "certificates_renewed", subject, until,
                    "new connections use the renewed files; the certificate ({subject}) is valid \
                     until {until}"
                );
                self.loaded = Arc::new(loaded);
            }
            Err(error) => tracing::error!(
                target: "cluster_net", event = "certificates_not_renewed", %error,
                "the renewed files of certificates cannot be used, and the earlier ones stay in \
                 use: {error}"
            ),
        }
    }
}

impl Files {
    fn marks(&self) -> Marks {
        [&self.authority, &self.certificate, &self.key].map(|path| Mark::of(path))
    }

    fn load(&self) -> Result<Loaded, Error> {
        let (authority, certificate) = (read(&self.authority)?, read(&self.certificate)?);
        let texts = Texts { authority, certificate, key: read(&self.key)? };
        Loaded::new(texts).map_err(|Error { what, remedy }| {
            let [authority, certificate, key] =
                [&self.authority, &self.certificate, &self.key].map(|path| path.display());
            Error::settings(format!("{authority}, {certificate}, {key}: {what}"), remedy)
        })
    }
}

impl Mark {
    fn of(path: &Path) -> Option<Mark> {
        let metadata = std::fs::metadata(path).ok()?;
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
        #[cfg(not(unix))]
        let inode = 0;
        Some(Mark { modified: metadata.modified().ok(), bytes: metadata.len(), inode })
    }
}

fn read(path: &Path) -> Result<String, Error> {
    let bad =
        |why: String| Error::settings(format!("{}: {why}", path.display()), "name a file in PEM");
    let bytes = std::fs::metadata(path).map_err(|error| bad(error.to_string()))?.len();
    if bytes > PEM_BYTES_MAX {
        return Err(bad(format!(
            "the file has {bytes} bytes, at most {PEM_BYTES_MAX} are allowed"
        )));
    }
    std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))
}

/// Checks that an address for plain text is on the loopback interface.
///
/// # Errors
/// [`Error`] for an address that other machines can reach.
pub fn check_plaintext(address: SocketAddr) -> Result<(), Error> {
    if address.ip().is_loopback() {
        Ok(())
    } else {
        Err(Error::settings(
            format!(
                "the server would accept plain text on {address}, which other machines can reach"
            ),
            "give certificates, listen on 127.0.0.1, or allow it (`--insecure`) in a network you trust",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;
    use crate::authority::Authority;
    use crate::recorded::Recorded;

    struct Dir(tempfile::TempDir);

    impl Dir {
        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// Replaces the files of a certificate, as tools that renew them do.
        fn put(&self, authority: &Authority, last_year: i32) {
            let (certificate, key) = authority.issue(&[Role::Client.name()], last_year);
            for (name, text) in
                [("ca", &authority.pem()), ("certificate", &certificate), ("key", &key)]
            {
                self.replace(name, text);
            }
        }

        fn replace(&self, name: &str, text: &str) {
            std::fs::write(self.path("new"), text).unwrap();
            std::fs::rename(self.path("new"), self.path(name)).unwrap();
        }

        fn read(&self) -> Result<Tls, Error> {
            Tls::read(&self.path("ca"), &self.path("certificate"), &self.path("key"))
        }
    }

    impl Tls {
        /// Lets the time until the next look pass.
        fn wait(&self) {
            let mut state = self.state();
            state.looked = state.looked.checked_sub(LOOK_EVERY).unwrap();
        }

        fn end(&self) -> String {
            self.current().facts().end()
        }
    }

    #[test]
    fn renewed_files_are_read_and_files_that_cannot_be_used_are_not() {
        let (log, _recording) = Recorded::begin();
        let (dir, authority) = (Dir(tempfile::tempdir().unwrap()), Authority::new());
        dir.put(&authority, 2080);
        let tls = dir.read().unwrap();
        let clone = tls.clone();
        assert_eq!(tls.end(), "2080-12-31T00:00:00Z");
        dir.put(&authority, 2081);
        assert_eq!(tls.end(), "2080-12-31T00:00:00Z", "it looks once a second");
        tls.wait();
        assert_eq!(clone.end(), "2081-12-31T00:00:00Z");
        assert_eq!(log.count("certificates_renewed"), 1);

        // A key of another certificate.
        let (_, other) = authority.issue(&[Role::Client.name()], 2082);
        dir.replace("key", &other);
        for _ in 0..3 {
            tls.wait();
            assert_eq!(tls.end(), "2081-12-31T00:00:00Z");
        }
        assert_eq!(log.count("certificates_not_renewed"), 1, "{:?}", log.lines());
        assert!(log.lines().iter().any(|line| line.contains("the key does not belong")));
        // A file that is away for a moment, and then all of them anew.
        std::fs::remove_file(dir.path("key")).unwrap();
        tls.wait();
        assert_eq!(tls.end(), "2081-12-31T00:00:00Z");
        dir.put(&authority, 2083);
        tls.wait();
        assert_eq!(tls.end(), "2083-12-31T00:00:00Z");
        assert_eq!(log.count("certificates_renewed"), 2);
    }

    #[test]
    fn the_request_to_renew_reads_at_once_and_reports() {
        let (log, _recording) = Recorded::begin();
        let (dir, authority) = (Dir(tempfile::tempdir().unwrap()), Authority::new());
        dir.put(&authority, 2080);
        let tls = dir.read().unwrap();
        dir.put(&authority, 2081);
        tls.renew();
        assert_eq!(tls.end(), "2081-12-31T00:00:00Z");
        assert_eq!(log.count("certificates_renewed"), 1);
        std::fs::write(dir.path("ca"), "rubbish").unwrap();
        tls.renew();
        tls.renew();
        assert_eq!(log.count("certificates_not_renewed"), 2);
        assert_eq!(tls.end(), "2081-12-31T00:00:00Z");
    }

    #[test]
    fn texts_that_do_not_belong_together_and_expired_ones_are_reported_at_once() {
        let (log, _recording) = Recorded::begin();
        let (dir, authority) = (Dir(tempfile::tempdir().unwrap()), Authority::new());
        let (certificate, _) = authority.issue(&["a"], 2080);
        let (_, key) = authority.issue(&["b"], 2080);
        let error = Tls::from_pem(&authority.pem(), &certificate, &key).unwrap_err();
        assert!(error.what.contains("does not belong to the certificate (CN=a)"), "{error}");
        dir.put(&authority, 2020);
        let tls = dir.read().unwrap();
        assert_eq!(log.count("certificate_expired"), 1, "{:?}", log.lines());
        tls.renew();
        assert_eq!(log.count("certificate_expired"), 2, "{:?}", log.lines());
        assert!(log.lines()[0].contains("expired on 2020-12-31"), "{:?}", log.lines());
    }
}
