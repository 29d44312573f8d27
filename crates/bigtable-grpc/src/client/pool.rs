//! Connections to one server: several, each warmed up before it is used, none of them old.
//!
//! Google's servers end a connection after an hour, and what is sent at that moment is slow. So
//! each is replaced before that, one after the other, by one that has carried a request already.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, Either, FutureExt, MapErr, TryFutureExt};
use http::header::AUTHORIZATION;
use http::{Request, Response};
use rand::Rng;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::transport::channel::ResponseFuture;
use tonic::transport::{Channel, Endpoint, Error};
use tower::Service;

use super::credentials::Credentials;
use super::retry::{once, repeat};

/// A connection is used for this long, and a little longer if its successor cannot be made.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(45 * 60);
/// The pause after a successor could not be made.
pub(crate) const AGAIN: Duration = Duration::from_secs(60);

/// What is sent over a connection before anything else.
pub(crate) type WarmUp =
    Box<dyn Fn(Connection) -> BoxFuture<'static, Result<(), Status>> + Send + Sync>;

/// A connection with what its requests are authorized by.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    channel: Channel,
    credentials: Option<Arc<Credentials>>,
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Body>;
    type Error = StdError;
    type Future = Either<
        MapErr<ResponseFuture, fn(Error) -> StdError>,
        BoxFuture<'static, Result<Response<Body>, StdError>>,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        self.channel.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Some(credentials) = self.credentials.clone() else {
            let sent = self.channel.call(request);
            return Either::Left(sent.map_err(Into::into));
        };
        // The one that is ready goes; the other one has still to become so.
        let next = self.channel.clone();
        let mut ready = std::mem::replace(&mut self.channel, next);
        let sent = async move {
            let header = credentials.header().await?;
            request.headers_mut().insert(AUTHORIZATION, header);
            Ok(ready.call(request).await?)
        };
        Either::Right(sent.boxed())
    }
}

/// The connections.
#[derive(Debug)]
pub(crate) struct Pool {
    slots: Arc<Slots>,
    next: AtomicUsize,
    /// Replaces them; ends with this.
    refreshing: JoinHandle<()>,
}

struct Slots {
    endpoint: Endpoint,
    credentials: Option<Arc<Credentials>>,
    channels: Vec<RwLock<Channel>>,
    warm_up: WarmUp,
    deadline: Duration,
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slots").field("channels", &self.channels.len()).finish_non_exhaustive()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.refreshing.abort();
    }
}

impl Pool {
    /// Connects, and warms every connection up.
    pub(crate) async fn open(
        endpoint: Endpoint,
        count: usize,
        credentials: Option<Arc<Credentials>>,
        deadline: Duration,
        warm_up: WarmUp,
    ) -> Result<Pool, Status> {
        let count = count.max(1);
        let channels = (0..count).map(|_| RwLock::new(endpoint.connect_lazy())).collect();
        let slots = Arc::new(Slots { endpoint, credentials, channels, warm_up, deadline });
        let warm = |slot| slots.warm(slot);
        futures::future::try_join_all((0..count).map(warm)).await?;
        let refreshing = tokio::spawn(slots.clone().refresh());
        Ok(Pool { slots, next: AtomicUsize::new(0), refreshing })
    }

    /// One of the connections, each in its turn.
    pub(crate) fn connection(&self) -> Connection {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.slots.connection(next % self.slots.channels.len())
    }
}

impl Slots {
    fn connection(&self, slot: usize) -> Connection {
        let channel = self.channels[slot].read().unwrap_or_else(PoisonError::into_inner).clone();
        Connection { channel, credentials: self.credentials.clone() }
    }

    async fn warm(&self, slot: usize) -> Result<(), Status> {
        repeat(self.deadline, || (self.warm_up)(self.connection(slot))).await
    }

    /// Replaces one connection after the other, so that none becomes old.
    async fn refresh(self: Arc<Self>) {
        let gap = AGE_MAX / u32::try_from(self.channels.len()).unwrap_or(u32::MAX);
        for slot in (0..self.channels.len()).cycle() {
            // Clients that started together must not connect together.
            let part = rand::rng().random_range(0.8..1.0);
            tokio::time::sleep(gap.mul_f64(part)).await;
            while let Err(status) = self.replace(slot).await {
                tracing::warn!(code = ?status.code(), "an old connection stays: no new one could be made");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// Requests that run over the old connection end there, and it ends with them.
    async fn replace(&self, slot: usize) -> Result<(), Status> {
        let made = once(self.deadline, async {
            let channel = self.endpoint.connect().await;
            let channel = channel.map_err(|error| Status::from_error(error.into()))?;
            let credentials = self.credentials.clone();
            (self.warm_up)(Connection { channel: channel.clone(), credentials }).await?;
            Ok(channel)
        });
        let channel = made.await?;
        *self.channels[slot].write().unwrap_or_else(PoisonError::into_inner) = channel;
        Ok(())
    }
}
