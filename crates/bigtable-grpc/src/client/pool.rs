//! Keeps several connections to one server, warms each up before its first use, and replaces
//! old ones.
//!
//! Google's servers end a connection after an hour, and requests sent at that moment are slow.
//! So the pool replaces each connection earlier, one after the other. Each successor has
//! already carried a request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use cluster_net::Dialer;
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

/// Longest use of a connection. It stays in use longer only while no successor can be made.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(45 * 60);
/// Pause after a successor could not be made.
pub(crate) const AGAIN: Duration = Duration::from_secs(60);

/// Sends the first request over a new connection.
pub(crate) type WarmUp =
    Box<dyn Fn(Connection) -> BoxFuture<'static, Result<(), Status>> + Send + Sync>;

/// A connection, and the credentials for its requests.
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
        // The polled channel is ready and sends this request. Its clone has not been polled
        // yet.
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

/// The way to a server.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) endpoint: Endpoint,
    /// Connects to servers of a cluster. Without it, tonic connects by itself.
    pub(crate) dialer: Option<Dialer>,
}

impl Line {
    fn connect_lazy(&self) -> Channel {
        match &self.dialer {
            Some(dialer) => dialer.connect_lazy(&self.endpoint),
            None => self.endpoint.connect_lazy(),
        }
    }

    async fn connect(&self) -> Result<Channel, Error> {
        match &self.dialer {
            Some(dialer) => dialer.connect(&self.endpoint).await,
            None => self.endpoint.connect().await,
        }
    }
}

/// A fixed number of connections, used in turn.
#[derive(Debug)]
pub(crate) struct Pool {
    slots: Arc<Slots>,
    next: AtomicUsize,
    /// The task that replaces connections. Dropping the pool stops it.
    refreshing: JoinHandle<()>,
}

struct Slots {
    line: Line,
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
    /// Connects, and warms up every connection.
    pub(crate) async fn open(
        line: Line,
        count: usize,
        credentials: Option<Arc<Credentials>>,
        deadline: Duration,
        warm_up: WarmUp,
    ) -> Result<Pool, Status> {
        let count = count.max(1);
        let channels = (0..count).map(|_| RwLock::new(line.connect_lazy())).collect();
        let slots = Arc::new(Slots { line, credentials, channels, warm_up, deadline });
        let warm = |slot| slots.warm(slot);
        futures::future::try_join_all((0..count).map(warm)).await?;
        let refreshing = tokio::spawn(slots.clone().refresh());
        Ok(Pool { slots, next: AtomicUsize::new(0), refreshing })
    }

    /// Returns the next connection in turn.
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
            // A random gap keeps clients that started together from reconnecting together.
            let part = rand::rng().random_range(0.8..1.0);
            tokio::time::sleep(gap.mul_f64(part)).await;
            while let Err(status) = self.replace(slot).await {
                tracing::warn!(
                    code = ?status.code(),
                    "an old connection stays in use, because no new one could be opened"
                );
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// Replaces a connection. Requests in flight on the old one finish there; it closes after
    /// them.
    async fn replace(&self, slot: usize) -> Result<(), Status> {
        let made = once(self.deadline, async {
            let channel = self.line.connect().await;
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
