//! Implements liveness tokens and advisory locks as keys under leases.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use percolator_core::{Error, Holder, Incarnation, LockService, Result};
use tonic::transport::{Channel, Endpoint};

use crate::etcd::keep::keep;
use crate::proto::etcd as proto;
use crate::proto::etcd::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::etcd::kv_client::KvClient;
use crate::proto::etcd::lease_client::LeaseClient;
use crate::proto::etcd::request_op::Request;
use crate::{Address, Error as Settings, Tls};

/// Shortest lifetime of a lease in etcd.
const LIFETIME_MIN: Duration = Duration::from_secs(2);
/// Longest lifetime that is requested.
const LIFETIME_MAX: Duration = Duration::from_secs(600);

/// Longest time for connecting, and for a request.
const CONNECT: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(3);

/// Most members of a cluster.
const MEMBERS_MAX: usize = 64;

/// The options of the lock service in etcd.
///
/// ```
/// let options = percolator_rpc::etcd::EtcdOptions::default();
/// assert_eq!(options.prefix, "percolator/");
/// ```
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// Prefix of all keys; each store needs its own. Default: `"percolator/"`.
    pub prefix: String,
    /// Time from a process's death until its token expires: 2 s to 600 s. Default: 6 s.
    pub lifetime: Duration,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        EtcdOptions { prefix: "percolator/".to_owned(), lifetime: Duration::from_secs(6) }
    }
}

/// The lock service in etcd.
///
/// ```no_run
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use percolator_core::{Incarnation, LockService};
/// use percolator_rpc::etcd::EtcdLocks;
/// let locks = EtcdLocks::new(vec!["127.0.0.1:2379".parse()?], Default::default())?;
/// locks.register(Incarnation(1)).await?;
/// assert!(locks.is_alive(Incarnation(1)).await?);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct EtcdLocks {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    channel: Channel,
    options: EtcdOptions,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tokens: BTreeMap<Incarnation, Arc<Token>>,
    /// Holder and lease of each advisory lock. Each worker holds one, which bounds the map.
    held: BTreeMap<Vec<u8>, (Holder, i64)>,
}

/// A token's lease; `None` after it was given up. It is locked while the lease is being made,
/// so that no lease is made after the token was given up.
pub(super) type Token = tokio::sync::Mutex<Option<i64>>;

impl EtcdLocks {
    /// Uses the etcd cluster with these members, in plain text. It connects at its first use,
    /// and keeps tokens alive by tasks of the current tokio runtime.
    ///
    /// # Errors
    /// [`crate::Error::Settings`] for no or too many members, or for a lifetime that etcd does
    /// not support.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(members: Vec<Address>, options: EtcdOptions) -> Result<Self, Settings> {
        EtcdLocks::open(members, options, None)
    }

    /// Like [`new`](EtcdLocks::new), with mutual TLS. The members' certificates name their
    /// hosts, not roles, because etcd's tools demand that. One authority signs both sides'
    /// certificates (etcd's flags `--trusted-ca-file` and `--client-cert-auth`).
    ///
    /// # Errors
    /// The same as for [`new`](EtcdLocks::new), and [`crate::Error::Transport`] for invalid
    /// certificates.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn with_tls(
        members: Vec<Address>,
        options: EtcdOptions,
        tls: &Tls,
    ) -> Result<Self, Settings> {
        EtcdLocks::open(members, options, Some(tls))
    }

    fn open(
        members: Vec<Address>,
        options: EtcdOptions,
        tls: Option<&Tls>,
    ) -> Result<Self, Settings> {
        if members.is_empty() || members.len() > MEMBERS_MAX {
            let what = format!("{} addresses of etcd members were given", members.len());
            return Err(Settings::settings(what, "give 1 to 64"));
        }
        if !(LIFETIME_MIN..=LIFETIME_MAX).contains(&options.lifetime) {
            let what =
                format!("liveness tokens in etcd cannot expire after {:?}", options.lifetime);
            return Err(Settings::settings(what, "give 2 to 600 seconds"));
        }
        let mut endpoints = Vec::with_capacity(members.len());
        for member in members {
            let scheme = if tls.is_some() { "https" } else { "http" };
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{member}"))?;
            if let Some(tls) = tls {
                endpoint = endpoint.tls_config(tls.for_client_of_host())?;
            }
            endpoints.push(endpoint.connect_timeout(CONNECT).timeout(PATIENCE).tcp_nodelay(true));
        }
        let channel = Channel::balance_list(endpoints.into_iter());
        let state = Mutex::default();
        Ok(EtcdLocks { inner: Arc::new(Inner { channel, options, state }) })
    }
}

#[async_trait]
impl LockService for EtcdLocks {
    async fn register(&self, owner: Incarnation) -> Result<()> {
        if self.inner.state().tokens.contains_key(&owner) {
            return Ok(());
        }
        let lease = self.inner.make_token(owner).await?;
        let token = Arc::new(Token::new(Some(lease)));
        self.inner.state().tokens.insert(owner, token.clone());
        tokio::spawn(keep(Arc::downgrade(&self.inner), owner, token));
        Ok(())
    }

    fn unregister(&self, owner: Incarnation) {
        let (token, mut leases) = {
            let mut state = self.inner.state();
            let token = state.tokens.remove(&owner);
            let mut leases = Vec::new();
            state.held.retain(|_, (holder, lease)| {
                let other = holder.owner != owner;
                leases.extend((!other).then_some(*lease));
                other
            });
            (token, leases)
        };
        let inner = self.inner.clone();
        detached(async move {
            if let Some(token) = token {
                leases.extend(token.lock().await.take());
            }
            for lease in leases {
                // If revoking fails, the lease expires by itself.
                let _ = inner.revoke(lease).await;
            }
        });
    }

    async fn is_alive(&self, owner: Incarnation) -> Result<bool> {
        let key = self.inner.token_key(owner);
        let range = proto::RangeRequest { key, count_only: true, ..Default::default() };
        let reply = self.inner.kv().range(range).await.map_err(unreachable)?;
        Ok(reply.into_inner().count > 0)
    }

    async fn try_lock(&self, name: &[u8], holder: Holder, lifetime: Duration) -> Result<bool> {
        let inner = &self.inner;
        let lease = inner.grant(lifetime).await?;
        let key = [inner.options.prefix.as_bytes(), b"lock/", name].concat();
        match inner.put_if_absent(key, holder.owner, lease).await {
            Ok(true) => {
                inner.state().held.insert(name.to_vec(), (holder, lease));
                Ok(true)
            }
            taken => {
                // If revoking fails, the lease expires by itself.
                let _ = inner.revoke(lease).await;
                taken
            }
        }
    }

    /// Renews the lease for the lifetime that it was granted. The lock's key goes with its
    /// lease, so an expired lock does not come back.
    async fn renew(&self, name: &[u8], holder: Holder, _lifetime: Duration) -> Result<bool> {
        let held = self.inner.state().held.get(name).copied();
        let Some((_, lease)) = held.filter(|(now, _)| *now == holder) else { return Ok(false) };
        self.inner.keep_alive(lease).await
    }

    fn unlock(&self, name: &[u8], holder: Holder) {
        let held = {
            let mut state = self.inner.state();
            match state.held.get(name) {
                Some((now, _)) if *now == holder => state.held.remove(name),
                _ => None,
            }
        };
        let Some((_, lease)) = held else { return };
        let inner = self.inner.clone();
        detached(async move {
            // If revoking fails, the lease expires by itself.
            let _ = inner.revoke(lease).await;
        });
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone())
    }

    pub(super) fn leases(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone())
    }

    pub(super) fn lifetime(&self) -> Duration {
        self.options.lifetime
    }

    fn token_key(&self, owner: Incarnation) -> Vec<u8> {
        format!("{}token/{:032x}", self.options.prefix, owner.0).into_bytes()
    }

    /// Puts a token under a new lease.
    pub(super) async fn make_token(&self, owner: Incarnation) -> Result<i64> {
        let lease = self.grant(self.options.lifetime).await?;
        let put = proto::PutRequest { key: self.token_key(owner), lease, ..Default::default() };
        match self.kv().put(put).await {
            Ok(_) => Ok(lease),
            Err(status) => {
                let _ = self.revoke(lease).await;
                Err(unreachable(status))
            }
        }
    }

    async fn grant(&self, lifetime: Duration) -> Result<i64> {
        let lifetime = lifetime.clamp(LIFETIME_MIN, LIFETIME_MAX);
        let seconds = lifetime.as_secs() + u64::from(lifetime.subsec_nanos() > 0);
        let ttl = i64::try_from(seconds).expect("at most ten minutes");
        let request = proto::LeaseGrantRequest { ttl, id: 0 };
        let granted = self.leases().lease_grant(request).await.map_err(unreachable)?.into_inner();
        if granted.error.is_empty() {
            Ok(granted.id)
        } else {
            Err(unavailable(format!("etcd granted no lease: {}", granted.error)))
        }
    }

    /// Sends one keepalive: true if the lease exists.
    async fn keep_alive(&self, id: i64) -> Result<bool> {
        let request = proto::LeaseKeepAliveRequest { id };
        let requests = futures::stream::iter([request]);
        let replies = self.leases().lease_keep_alive(requests).await.map_err(unreachable)?;
        let reply = replies.into_inner().message().await.map_err(unreachable)?;
        Ok(reply.is_some_and(|reply| reply.id == id && reply.ttl > 0))
    }

    async fn revoke(&self, id: i64) -> Result<()> {
        let request = proto::LeaseRevokeRequest { id };
        self.leases().lease_revoke(request).await.map(drop).map_err(unreachable)
    }

    async fn put_if_absent(&self, key: Vec<u8>, owner: Incarnation, lease: i64) -> Result<bool> {
        let absent = proto::Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Create.into(),
            key: key.clone(),
            target_union: Some(TargetUnion::CreateRevision(0)),
            ..Default::default()
        };
        let value = format!("{:032x}", owner.0).into_bytes();
        let put = proto::PutRequest { key, value, lease, ..Default::default() };
        let put = proto::RequestOp { request: Some(Request::RequestPut(put)) };
        let txn = proto::TxnRequest { compare: vec![absent], success: vec![put], failure: vec![] };
        Ok(self.kv().txn(txn).await.map_err(unreachable)?.into_inner().succeeded)
    }
}

/// Runs a task to its end. If the runtime has ended, nothing runs, and the leases expire by
/// themselves.
fn detached(task: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(task);
    }
}

fn unreachable(status: tonic::Status) -> Error {
    unavailable(format!("etcd did not answer: {} ({})", status.message(), status.code()))
}

fn unavailable(why: String) -> Error {
    Error::Store(bigtable::Error::Unavailable { why })
}
