//! Logs the connections and requests that a server refuses, with the reason, in few lines.
//!
//! Anyone who reaches the port can be refused as often as they like. So each reason has at most
//! one line in [`EVERY`], which also counts the refusals since the line before. After a flood, a
//! last line has the rest of the count.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The shortest time between two lines about one reason.
const EVERY: Duration = Duration::from_secs(10);

/// The reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The listener has as many connections as it may have.
    ConnectionsMax,
    /// The service has as many clients as it may have.
    ClientsMax,
    /// The peer sends plain text, and the server demands TLS.
    PlainText,
    /// The peer sends TLS, and the server has no certificate.
    Encrypted,
    /// The peer shows no certificate.
    NoCertificate,
    /// The peer's certificate has expired.
    Expired,
    /// The peer's certificate is valid only later.
    NotYetValid,
    /// Another authority has signed the peer's certificate.
    ForeignAuthority,
    /// The peer's certificate has another flaw.
    BadCertificate,
    /// The peer's certificate does not name a role that the service serves.
    WrongRole,
    /// The peer does not accept the certificate of this server.
    NotTrusted,
    /// The peer did not complete its handshake in time.
    TooSlow,
    /// The handshake failed for another reason.
    Handshake,
}

impl Reason {
    const ALL: [Reason; 13] = [
        Reason::ConnectionsMax,
        Reason::ClientsMax,
        Reason::PlainText,
        Reason::Encrypted,
        Reason::NoCertificate,
        Reason::Expired,
        Reason::NotYetValid,
        Reason::ForeignAuthority,
        Reason::BadCertificate,
        Reason::WrongRole,
        Reason::NotTrusted,
        Reason::TooSlow,
        Reason::Handshake,
    ];

    /// The name of the reason in a log.
    fn name(self) -> &'static str {
        match self {
            Reason::ConnectionsMax => "connections_max",
            Reason::ClientsMax => "clients_max",
            Reason::PlainText => "plain_text",
            Reason::Encrypted => "encrypted",
            Reason::NoCertificate => "no_certificate",
            Reason::Expired => "certificate_expired",
            Reason::NotYetValid => "certificate_not_yet_valid",
            Reason::ForeignAuthority => "foreign_authority",
            Reason::BadCertificate => "bad_certificate",
            Reason::WrongRole => "wrong_role",
            Reason::NotTrusted => "server_not_trusted",
            Reason::TooSlow => "too_slow",
            Reason::Handshake => "handshake_failed",
        }
    }
}

/// The refusals of one listener.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let refusals = cluster_net::Refusals::default();
/// let peer = "127.0.0.1:1".parse().unwrap();
/// refusals.refuse(cluster_net::Reason::ClientsMax, peer, || "all 10 clients are here".into());
/// # });
/// ```
#[derive(Debug, Default)]
pub struct Refusals([Mutex<Count>; Reason::ALL.len()]);

/// The refusals for one reason.
#[derive(Debug, Default)]
struct Count {
    /// The time from which the next line may be logged.
    not_before: Option<Instant>,
    /// The number of refusals since the last line, and the peer of the last one.
    unlogged: u64,
    last: Option<SocketAddr>,
}

impl Refusals {
    fn counted(&self, reason: Reason) -> MutexGuard<'_, Count> {
        self.0[reason as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a refusal, and logs it unless a line about this reason was logged just now. `why`
    /// names the fault of the peer.
    pub fn refuse(&self, reason: Reason, peer: SocketAddr, why: impl FnOnce() -> String) {
        let now = Instant::now();
        let unlogged = {
            let mut count = self.counted(reason);
            if count.not_before.is_some_and(|not_before| now < not_before) {
                count.unlogged += 1;
                count.last = Some(peer);
                return;
            }
            count.not_before = Some(now + EVERY);
            std::mem::take(&mut count.unlogged)
        };
        let (reason, why) = (reason.name(), why());
        tracing::warn!(
            target: "cluster_net", event = "refused", reason, %peer, unlogged, "refused {peer}: {why}"
        );
    }

    /// Logs the refusals that were counted only, once their time has come.
    pub(crate) fn remind(&self) {
        let now = Instant::now();
        for reason in Reason::ALL {
            let (unlogged, last) = {
                let mut count = self.counted(reason);
                if count.unlogged == 0
                    || count.not_before.is_some_and(|not_before| now < not_before)
                {
                    continue;
                }
                count.not_before = Some(now + EVERY);
                (std::mem::take(&mut count.unlogged), count.last.take())
            };
            let (reason, peer) = (reason.name(), last.map(tracing::field::display));
            tracing::warn!(
                target: "cluster_net", event = "refused", reason, peer, unlogged,
                "{unlogged} more refused ({reason})"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::Recorded;

    #[tokio::test(start_paused = true)]
    async fn a_flood_costs_few_lines_and_every_refusal_is_counted() {
        let (log, _recording) = Recorded::begin();
        let refusals = Refusals::default();
        let peer = |port| SocketAddr::from(([127, 0, 0, 1], port));
        for port in 1..=1000 {
            refusals.refuse(Reason::PlainText, peer(port), || "plain text".to_owned());
            refusals.remind();
        }
        // Another reason has lines of its own.
        refusals.refuse(Reason::Expired, peer(7), || "it expired".to_owned());
        let lines = log.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("refused 127.0.0.1:1: plain text"), "{lines:?}");
        assert!(lines[0].contains("unlogged=0") && lines[0].contains("WARN"), "{lines:?}");
        tokio::time::advance(EVERY).await;
        refusals.remind();
        refusals.remind();
        let lines = log.lines();
        assert_eq!(lines.len(), 3, "{lines:?}");
        let last = &lines[2];
        assert!(last.contains("unlogged=999") && last.contains("peer=127.0.0.1:1000"), "{last}");
        // The next line counts those since.
        refusals.refuse(Reason::PlainText, peer(1), || "plain text".to_owned());
        tokio::time::advance(EVERY).await;
        refusals.refuse(Reason::PlainText, peer(2), || "plain text".to_owned());
        let lines = log.lines();
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[3].contains("unlogged=1") && lines[3].contains("127.0.0.1:2"), "{lines:?}");
    }

    #[test]
    fn each_reason_has_a_place_and_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = Reason::ALL.map(Reason::name).into();
        assert_eq!(names.len(), Reason::ALL.len());
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(place, reason as usize);
        }
    }
}
