//! Simulates the lock service: a server process over [`ProcessLocks`], and its clients.
//!
//! Liveness tokens live as long as sessions. The token of a dead process ends after a
//! time-out. A live process may lose its token, and registers it again some time later. A
//! restart of the server forgets all tokens and locks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::sync::locked;
use bytes::Bytes;
use futures::FutureExt;
use percolator_core::{Error, Holder, Incarnation, LockService, ProcessLocks, Result, async_trait};

use crate::codec::{LockReply, LockRequest, decode, encode};
use crate::executor::{Executor, ProcessId};
use crate::failures::unavailable;
use crate::process::ProcessRuntime;
use crate::transport::{ReplyTo, Server, Transport};

const READY: &str = "the lock service in memory answers at once";

/// The server process of the lock service.
pub(crate) struct LockServer {
    pub(crate) process: ProcessId,
    runtime: Arc<ProcessRuntime>,
    state: Mutex<State>,
}

struct State {
    locks: Arc<ProcessLocks>,
    sessions: BTreeMap<ProcessId, BTreeSet<Incarnation>>,
}

shown_by_name!(LockServer);

impl LockServer {
    pub(crate) fn new(runtime: ProcessRuntime) -> Self {
        let (process, runtime) = (runtime.process, Arc::new(runtime));
        let locks = Arc::new(ProcessLocks::new(runtime.clone()));
        let state = Mutex::new(State { locks, sessions: BTreeMap::new() });
        LockServer { process, runtime, state }
    }

    fn executor(&self) -> &Executor {
        &self.runtime.executor
    }

    /// Ends the sessions of a process. If the process is dead, they end after the delay. If it
    /// lives, they end now, and it registers again after the delay.
    pub(crate) fn end_sessions(self: &Arc<Self>, of: ProcessId, after: Duration) {
        if self.executor().is_dead(of) {
            let server = self.clone();
            self.executor().after(after, self.process, move || drop(server.forget(of)));
            return;
        }
        let owners = self.forget(of);
        let server = self.clone();
        self.executor().after(after, self.process, move || {
            for owner in owners {
                server.register(of, owner);
            }
        });
    }

    /// Forgets everything; live processes register again after a while.
    pub(crate) fn restart(self: &Arc<Self>, after: Duration) {
        let sessions = {
            let mut state = locked(&self.state);
            state.locks = Arc::new(ProcessLocks::new(self.runtime.clone()));
            std::mem::take(&mut state.sessions)
        };
        let server = self.clone();
        self.executor().after(after, self.process, move || {
            for (process, owners) in sessions {
                owners.into_iter().for_each(|owner| server.register(process, owner));
            }
        });
    }

    fn forget(&self, process: ProcessId) -> BTreeSet<Incarnation> {
        let mut state = locked(&self.state);
        let owners = state.sessions.remove(&process).unwrap_or_default();
        owners.iter().for_each(|owner| state.locks.unregister(*owner));
        owners
    }

    fn register(&self, process: ProcessId, owner: Incarnation) {
        // A late request of a dead process creates no session.
        if !self.executor().is_dead(process) {
            let mut state = locked(&self.state);
            state.sessions.entry(process).or_default().insert(owner);
            state.locks.register(owner).now_or_never().expect(READY).unwrap_or_default();
        }
    }

    fn answer(&self, request: LockRequest, from: ProcessId) -> LockReply {
        let locks = locked(&self.state).locks.clone();
        let answer = match request {
            LockRequest::Register(owner) => {
                self.register(from, owner);
                return LockReply::Done;
            }
            LockRequest::Unregister(owner) => {
                if let Some(owners) = locked(&self.state).sessions.get_mut(&from) {
                    owners.remove(&owner);
                }
                locks.unregister(owner);
                return LockReply::Done;
            }
            LockRequest::Unlock(name, holder) => {
                locks.unlock(&name, holder);
                return LockReply::Done;
            }
            LockRequest::IsAlive(owner) => locks.is_alive(owner).now_or_never().expect(READY),
            LockRequest::TryLock(name, holder, lifetime) => {
                locks.try_lock(&name, holder, lifetime).now_or_never().expect(READY)
            }
            LockRequest::Renew(name, holder, lifetime) => {
                locks.renew(&name, holder, lifetime).now_or_never().expect(READY)
            }
        };
        LockReply::Answer(answer.unwrap_or(false))
    }
}

/// The server as the network reaches it.
#[derive(Debug)]
pub(crate) struct LockEndpoint(pub(crate) Arc<LockServer>);

impl Server for LockEndpoint {
    fn receive(&self, request: Bytes, from: ProcessId, reply: ReplyTo) {
        let request: LockRequest = decode(request).expect("what a client encodes decodes");
        self.0.executor().note("locks", (0, 0), || format!("{request:?}"));
        reply.send(encode(&self.0.answer(request, from)));
    }
}

/// The lock service as one process reaches it.
pub(crate) struct RemoteLocks {
    pub(crate) process: ProcessId,
    pub(crate) transport: Transport,
    pub(crate) server: Arc<LockServer>,
    pub(crate) endpoint: Arc<dyn Server>,
    pub(crate) timeout: Duration,
}

shown_by_name!(RemoteLocks);

impl RemoteLocks {
    async fn call(&self, request: LockRequest) -> Result<bool> {
        let to = (self.server.process, &self.endpoint);
        let reply = self.transport.call(self.process, to, encode(&request), self.timeout).await;
        let reply = reply.ok_or_else(|| Error::Store(unavailable("no lock service")))?;
        match decode(reply).expect("what the lock service encodes decodes") {
            LockReply::Answer(yes) => Ok(yes),
            LockReply::Done => Ok(true),
        }
    }

    fn tell(&self, request: &LockRequest) {
        self.transport.tell(self.process, (self.server.process, &self.endpoint), encode(request));
    }
}

#[async_trait]
impl LockService for RemoteLocks {
    async fn register(&self, owner: Incarnation) -> Result<()> {
        self.call(LockRequest::Register(owner)).await.map(drop)
    }

    fn unregister(&self, owner: Incarnation) {
        self.tell(&LockRequest::Unregister(owner));
    }

    async fn is_alive(&self, owner: Incarnation) -> Result<bool> {
        self.call(LockRequest::IsAlive(owner)).await
    }

    async fn try_lock(&self, name: &[u8], holder: Holder, lifetime: Duration) -> Result<bool> {
        self.call(LockRequest::TryLock(Bytes::copy_from_slice(name), holder, lifetime)).await
    }

    async fn renew(&self, name: &[u8], holder: Holder, lifetime: Duration) -> Result<bool> {
        self.call(LockRequest::Renew(Bytes::copy_from_slice(name), holder, lifetime)).await
    }

    fn unlock(&self, name: &[u8], holder: Holder) {
        self.tell(&LockRequest::Unlock(Bytes::copy_from_slice(name), holder));
    }
}
