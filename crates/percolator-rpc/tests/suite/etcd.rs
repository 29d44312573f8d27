//! Tests the lock service in a real etcd, which the tests start themselves (H17).

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use percolator::admin::Incarnation;
use percolator::cluster::{Holder, LockService};
use percolator_rpc::etcd::{EtcdLocks, EtcdOptions};
use percolator_rpc::{Address, Role, Tls};

use crate::refusals::authority::Authority;

/// A worker of a client.
fn by(owner: Incarnation) -> Holder {
    Holder { owner, work: 0 }
}

/// An etcd server, which ends when this is dropped.
struct Etcd {
    child: Child,
    address: Address,
    dir: std::path::PathBuf,
    /// The certificate that its clients show.
    tls: Option<Tls>,
}

impl Etcd {
    /// Starts a server. Without etcd on this machine, it prints a warning and returns `None`.
    async fn start(name: &str) -> Option<Self> {
        Etcd::start_with(name, None).await
    }

    /// Starts a server that demands certificates of this authority.
    async fn start_with(name: &str, authority: Option<&Authority>) -> Option<Self> {
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (client, peer) = (free(), free());
        let dir = std::env::temp_dir().join(format!("etcd-{name}-{}", std::process::id()));
        let scheme = if authority.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{client}");
        let child = Command::new("etcd")
            .args(["--name", "n", "--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &format!("http://{peer}")])
            .args(["--initial-advertise-peer-urls", &format!("http://{peer}")])
            .args(["--initial-cluster", &format!("n=http://{peer}")])
            .args(authority.map(|authority| secured(authority, &dir)).unwrap_or_default())
            .arg("--data-dir")
            .arg(dir.join("data"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED: {name}: no etcd ({error}); `apt-get install etcd-server`"
                );
                return None;
            }
        };
        let tls = authority.map(|authority| authority.tls(&[Role::Client]));
        let etcd = Etcd { child, address: client.into(), dir, tls };
        let (locks, since) = (etcd.locks(), Instant::now());
        while let Err(error) = locks.is_alive(Incarnation(0)).await {
            assert!(since.elapsed() < Duration::from_secs(60), "etcd does not start: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Some(etcd)
    }

    fn locks(&self) -> EtcdLocks {
        self.locks_of(self.tls.as_ref())
    }

    fn locks_of(&self, tls: Option<&Tls>) -> EtcdLocks {
        let options = EtcdOptions { lifetime: Duration::from_secs(2), ..EtcdOptions::default() };
        let members = vec![self.address.clone()];
        match tls {
            Some(tls) => EtcdLocks::with_tls(members, options, tls).unwrap(),
            None => EtcdLocks::new(members, options).unwrap(),
        }
    }
}

/// The flags of a member that shows a certificate of its host, and demands one of its clients.
fn secured(authority: &Authority, dir: &Path) -> Vec<String> {
    let (certificate, key) = authority.issue(&["127.0.0.1"], 2090);
    std::fs::create_dir_all(dir).unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (ca, certificate) = (file("ca.pem", &authority.pem()), file("member.pem", &certificate));
    vec![
        format!("--trusted-ca-file={ca}"),
        format!("--cert-file={certificate}"),
        format!("--key-file={}", file("member.key", &key)),
        "--client-cert-auth".to_owned(),
    ]
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Waits until the condition holds.
async fn until(mut holds: impl AsyncFnMut() -> bool) -> Duration {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < Duration::from_secs(20), "it does not come about");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    since.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn h17_tokens_in_etcd_live_as_long_as_their_process() {
    let Some(etcd) = Etcd::start("tokens").await else { return };
    let (a, b) = (etcd.locks(), etcd.locks());
    let (first, second, third) = (Incarnation(1), Incarnation(2), Incarnation(u128::MAX));
    a.register(first).await.unwrap();
    a.register(first).await.unwrap();
    a.register(third).await.unwrap();
    assert!(b.is_alive(first).await.unwrap() && !b.is_alive(second).await.unwrap());
    // Longer than the lifetime of its lease, so the lease must be kept alive.
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(5) {
        assert!(b.is_alive(first).await.unwrap() && b.is_alive(third).await.unwrap());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    a.unregister(third);
    let gone = until(async || !b.is_alive(third).await.unwrap()).await;
    assert!(gone < Duration::from_millis(1500), "given up, not run out: {gone:?}");
    assert!(b.is_alive(first).await.unwrap());
    // From now on nothing keeps the lease alive, as after the process's death.
    drop(a);
    let again = etcd.locks();
    again.register(second).await.unwrap();
    until(async || !b.is_alive(first).await.unwrap()).await;
    assert!(b.is_alive(second).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn advisory_locks_in_etcd_exclude_are_given_up_and_run_out() {
    let Some(etcd) = Etcd::start("locks").await else { return };
    let (a, b) = (etcd.locks(), etcd.locks());
    let (one, two) = (Incarnation(1), Incarnation(2));
    let (short, long) = (Duration::from_millis(1), Duration::from_secs(300));
    for name in [&b""[..], b"row", &[0xff; 5000]] {
        assert!(a.try_lock(name, by(one), long).await.unwrap());
        assert!(!b.try_lock(name, by(two), long).await.unwrap());
        assert!(!a.try_lock(name, by(one), long).await.unwrap(), "nor its holder again");
        b.unlock(name, by(one));
        a.unlock(name, by(two));
        assert!(!b.try_lock(name, by(two), long).await.unwrap(), "it is not theirs to give up");
        a.unlock(name, by(one));
        until(async || b.try_lock(name, by(two), long).await.unwrap()).await;
        b.unregister(two);
        until(async || a.try_lock(name, by(one), short).await.unwrap()).await;
        until(async || b.try_lock(name, by(two), long).await.unwrap()).await;
    }
}

#[tokio::test]
async fn an_etcd_that_is_not_there_is_an_error_and_bad_settings_are_refused() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let locks = EtcdLocks::new(vec![unused.into()], EtcdOptions::default()).unwrap();
    let error = locks.register(Incarnation(1)).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("etcd"), "{error}");
    assert!(EtcdLocks::new(Vec::new(), EtcdOptions::default()).is_err());
    let options = EtcdOptions { lifetime: Duration::from_secs(1), ..EtcdOptions::default() };
    assert!(EtcdLocks::new(vec![unused.into()], options).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_over_tls_wants_certificates_of_its_authority_and_shows_one() {
    let (ours, other) = (Authority::new(), Authority::new());
    let Some(etcd) = Etcd::start_with("tls", Some(&ours)).await else { return };
    let (locks, owner) = (etcd.locks(), Incarnation(1));
    locks.register(owner).await.unwrap();
    assert!(etcd.locks().is_alive(owner).await.unwrap());
    assert!(locks.try_lock(b"row", by(owner), Duration::from_secs(9)).await.unwrap());
    let foreign = ours.tls_of_another(&other, Role::Client);
    for refused in [None, Some(other.tls(&[Role::Client])), Some(foreign)] {
        let refused = etcd.locks_of(refused.as_ref()).is_alive(owner).await.unwrap_err();
        assert!(refused.is_retryable() && refused.to_string().contains("etcd"), "{refused}");
    }
}
