//! Answers the questions of gRPC's health protocol (`grpc.health.v1`), and asks them.
//!
//! Nobody reports a state that could grow old: each question is answered by looking.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster_net::{Dialer, Incoming, Role};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health as Protocol, HealthServer as Grpc};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// How often a watched service is looked at.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Longest question that is read, in bytes: the name of a service.
const QUESTION_BYTES_MAX: usize = 256;
/// Most connections of a listener that answers about health alone.
const CONNECTIONS_MAX: usize = 100;
/// Most streams of one of its connections.
const STREAMS_MAX: u32 = 16;

/// Looks whether a service serves; `None` if there is no service of that name. The empty name is
/// the process as a whole.
type Look = dyn Fn(&str) -> BoxFuture<'static, Option<bool>> + Send + Sync;

/// A service of gRPC's health protocol.
#[derive(Clone)]
pub(crate) struct Health(Arc<Look>);

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Health")
    }
}

impl Health {
    pub(crate) fn service(
        look: impl Fn(&str) -> BoxFuture<'static, Option<bool>> + Send + Sync + 'static,
    ) -> Grpc<Health> {
        Grpc::new(Health(Arc::new(look))).max_decoding_message_size(QUESTION_BYTES_MAX)
    }

    async fn status(&self, service: &str) -> ServingStatus {
        match (self.0)(service).await {
            Some(true) => ServingStatus::Serving,
            Some(false) => ServingStatus::NotServing,
            None => ServingStatus::ServiceUnknown,
        }
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Protocol for Health {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        match self.status(&service).await {
            ServingStatus::ServiceUnknown => {
                Err(Status::not_found(format!("this process has no service {service:?}")))
            }
            status => Ok(Response::new(answer(status))),
        }
    }

    type WatchStream = BoxStream<HealthCheckResponse>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (health, service) = (self.clone(), request.into_inner().service);
        let changes = stream::unfold(None, move |last| {
            let (health, service) = (health.clone(), service.clone());
            async move {
                if last.is_some() {
                    sleep(WATCH_EVERY).await;
                }
                loop {
                    let status = health.status(&service).await;
                    if last != Some(status) {
                        return Some((Ok(answer(status)), Some(status)));
                    }
                    sleep(WATCH_EVERY).await;
                }
            }
        });
        Ok(Response::new(changes.boxed()))
    }
}

/// A listener that answers about the health of a process which serves nothing else over gRPC. It
/// ends when it is dropped.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use percolator_rpc::health::{HealthListener, serves};
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let address = listener.local_addr()?;
/// let _listening = HealthListener::start(listener, || async { true });
/// assert!(serves(address, "").await.unwrap());
/// # Ok::<(), std::io::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct HealthListener(JoinHandle<()>);

impl HealthListener {
    /// Answers on a listener, in plain text, by a task of the current tokio runtime. `serves`
    /// looks at the process for each question.
    pub fn start<F>(
        listener: TcpListener,
        serves: impl Fn() -> F + Send + Sync + 'static,
    ) -> HealthListener
    where
        F: Future<Output = bool> + Send + 'static,
    {
        let health = Health::service(move |service| match service {
            "" => serves().map(Some).boxed(),
            _ => std::future::ready(None).boxed(),
        });
        let serving = tonic::transport::Server::builder()
            .max_concurrent_streams(Some(STREAMS_MAX))
            .add_service(health)
            .serve_with_incoming(Incoming::new(listener, CONNECTIONS_MAX, None));
        HealthListener(tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::warn!(%error, "this process no longer answers about its health");
            }
        }))
    }
}

impl Drop for HealthListener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Asks the process at an address in plain text whether a service serves. The empty name is the
/// process as a whole.
///
/// See [`HealthListener`] for an example.
///
/// # Errors
/// The reason, in words, if there is no answer. The question has no deadline.
pub async fn serves(address: SocketAddr, service: &str) -> Result<bool, String> {
    // The role is that of nobody: plain text shows no certificates.
    let dialer = Dialer::to(Role::Client, None);
    let endpoint = dialer.endpoint(&address.to_string()).map_err(|error| error.to_string())?;
    let channel = dialer.connect(&endpoint).await.map_err(|error| error.to_string())?;
    let question = HealthCheckRequest { service: service.to_owned() };
    let answer = HealthClient::new(channel).check(question).await;
    let answer = answer.map_err(|status| status.message().to_owned())?.into_inner();
    Ok(answer.status() == ServingStatus::Serving)
}

/// Whether a question has a good answer in time.
pub(crate) async fn is_ok<T, E>(
    within: Duration,
    asked: impl Future<Output = Result<T, E>>,
) -> bool {
    matches!(timeout(within, asked).await, Ok(Ok(_)))
}
