//! Names the sender of a request, and checks the role of its certificate.

use std::net::SocketAddr;
use std::sync::Arc;

use tonic::{Request, Status};

use crate::Role;
use crate::certificate::Facts;
use crate::refusals::{Reason, Refusals};

/// The other end of an accepted connection. Each request has it in its extensions.
///
/// ```
/// fn sender(request: &tonic::Request<()>) -> Option<std::net::SocketAddr> {
///     request.extensions().get::<cluster_net::Peer>().map(cluster_net::Peer::address)
/// }
/// assert!(sender(&tonic::Request::new(())).is_none());
/// ```
#[derive(Debug, Clone)]
pub struct Peer {
    address: SocketAddr,
    /// The facts of its certificate; `None` for plain text.
    facts: Option<Arc<Facts>>,
    refusals: Arc<Refusals>,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr, facts: Option<Facts>, refusals: Arc<Refusals>) -> Self {
        Peer { address, facts: facts.map(Arc::new), refusals }
    }

    /// The address of the peer.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Logs that a service refuses this peer. `why` names the fault of the peer.
    pub fn refuse(&self, reason: Reason, why: impl FnOnce() -> String) {
        self.refusals.refuse(reason, self.address, why);
    }

    fn check(&self, roles: &[Role]) -> Result<(), Status> {
        let Some(facts) = &self.facts else { return Err(without_certificate()) };
        if roles.iter().any(|role| facts.roles().contains(role)) {
            return Ok(());
        }
        let wanted: Vec<_> = roles.iter().map(|role| role.name()).collect();
        let (wanted, names) = (wanted.join(" or "), facts.names());
        self.refuse(Reason::WrongRole, || {
            format!("its certificate ({facts}) names {names}, and does not name {wanted}")
        });
        Err(Status::permission_denied(format!(
            "this client's certificate ({facts}) names {names}, and does not name {wanted}: give \
             the client a certificate of the role"
        )))
    }
}

/// Checks that the sender of a request has shown a certificate of one of these roles. The
/// handshake has already checked the authority. A refusal is logged.
///
/// # Errors
/// `Unauthenticated` without a certificate, `PermissionDenied` for one of another role.
pub fn check_peer<T>(request: &Request<T>, roles: &[Role]) -> Result<(), Status> {
    request.extensions().get::<Peer>().ok_or_else(without_certificate)?.check(roles)
}

fn without_certificate() -> Status {
    Status::unauthenticated(
        "the client showed no certificate: show one that the cluster's authority has signed",
    )
}
