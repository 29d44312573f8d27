//! Bounds the time and the memory of requests that are still arriving.
//!
//! A server decodes a request when its last byte has arrived, and holds the bytes until then.
//! Without bounds, a sender that stops in the middle would hold memory for ever, and so would
//! many large requests at once. The layer does not bound responses, or the processing of a
//! complete request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::Request;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;
use tower::{Layer, Service};

use crate::Moment;

/// Bounds the arrival of requests, over all services of a server.
///
/// ```
/// use std::time::Duration;
/// let layer = cluster_net::ArrivalLayer::new(Duration::from_secs(60), 1 << 30);
/// let _server = tonic::transport::Server::builder().layer(layer);
/// ```
#[derive(Debug, Clone)]
pub struct ArrivalLayer {
    bounds: Arc<Bounds>,
}

#[derive(Debug)]
struct Bounds {
    within: Duration,
    bytes_max: usize,
    bytes: AtomicUsize,
}

impl ArrivalLayer {
    /// Gives each request this time to arrive, and all arriving requests together this many
    /// bytes. A request beyond the time fails with `DeadlineExceeded`, one beyond the bytes
    /// with `ResourceExhausted`.
    pub fn new(within: Duration, bytes_max: usize) -> Self {
        let bytes = AtomicUsize::new(0);
        ArrivalLayer { bounds: Arc::new(Bounds { within, bytes_max, bytes }) }
    }
}

impl<S> Layer<S> for ArrivalLayer {
    type Service = Arrival<S>;

    fn layer(&self, inner: S) -> Arrival<S> {
        Arrival { inner, bounds: self.bounds.clone() }
    }
}

/// The arrival time of a request's headers. [`ArrivalLayer`] leaves it in the request's
/// extensions.
///
/// ```
/// let came = cluster_net::Came(cluster_net::Moment::now());
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(came);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Came(pub Moment);

/// The service made by [`ArrivalLayer`].
#[derive(Debug, Clone)]
pub struct Arrival<S> {
    inner: S,
    bounds: Arc<Bounds>,
}

impl<S, B> Service<Request<B>> for Arrival<S>
where
    S: Service<Request<tonic::body::Body>>,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<tonic::codegen::StdError>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request.extensions_mut().insert(Came(Moment::now()));
        let due = Instant::now() + self.bounds.within;
        let bounds = self.bounds.clone();
        let arriving = |inner| Arriving { inner, due, alarm: None, bytes: 0, bounds };
        self.inner.call(request.map(|body| tonic::body::Body::new(arriving(body))))
    }
}

/// The body of an arriving request. Its received bytes count until it is dropped, which happens
/// when the request has been decoded.
///
/// See [`ArrivalLayer`].
#[derive(Debug)]
pub struct Arriving<B> {
    inner: B,
    due: Instant,
    /// Created at the first wait.
    alarm: Option<Pin<Box<Sleep>>>,
    bytes: usize,
    bounds: Arc<Bounds>,
}

impl<B> Arriving<B> {
    /// Counts received bytes. Fails if all requests together exceed the bound.
    fn count(&mut self, bytes: usize) -> Result<(), Status> {
        self.bytes += bytes;
        let before = self.bounds.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= self.bounds.bytes_max {
            return Ok(());
        }
        Err(Status::resource_exhausted(format!(
            "the server is receiving more than {} bytes of requests: send this request again later",
            self.bounds.bytes_max
        )))
    }
}

impl<B> Drop for Arriving<B> {
    fn drop(&mut self) {
        self.bounds.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl<B> Body for Arriving<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<tonic::codegen::StdError>,
{
    type Data = Bytes;
    type Error = tonic::codegen::StdError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Buf::remaining);
                Poll::Ready(Some(this.count(bytes).map(|()| frame).map_err(Into::into)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let due = this.due;
                let alarm = this.alarm.get_or_insert_with(|| Box::pin(sleep_until(due)));
                match alarm.as_mut().poll(cx) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(()) => {
                        let within = this.bounds.within;
                        let late = format!(
                            "the request did not arrive whole within {within:?}: send it again"
                        );
                        Poll::Ready(Some(Err(Status::deadline_exceeded(late).into())))
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::future::poll_fn;

    /// A body that yields these chunks and then stalls for ever.
    #[derive(Debug)]
    struct Stalls(VecDeque<&'static [u8]>);

    impl Body for Stalls {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let next = self.0.pop_front().map(|data| Frame::data(Bytes::from_static(data)));
            next.map_or(Poll::Pending, |frame| Poll::Ready(Some(Ok(frame))))
        }
    }

    fn arriving(layer: &ArrivalLayer, data: &[&'static [u8]]) -> Arriving<Stalls> {
        let bounds = layer.bounds.clone();
        let inner = Stalls(data.iter().copied().collect());
        Arriving { inner, due: Instant::now() + bounds.within, alarm: None, bytes: 0, bounds }
    }

    async fn frame(body: &mut Arriving<Stalls>) -> Result<usize, tonic::Code> {
        let next = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await.unwrap();
        match next {
            Ok(frame) => Ok(frame.into_data().unwrap().len()),
            Err(error) => Err(error.downcast::<Status>().unwrap().code()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_stops_in_the_middle_fails() {
        let layer = ArrivalLayer::new(Duration::from_secs(60), 100);
        let mut body = arriving(&layer, &[b"half"]);
        assert_eq!(frame(&mut body).await, Ok(4));
        let began = Instant::now();
        assert_eq!(frame(&mut body).await, Err(tonic::Code::DeadlineExceeded));
        assert!(began.elapsed() >= Duration::from_secs(59));
    }

    #[tokio::test]
    async fn requests_share_a_budget_which_ends_with_them() {
        let layer = ArrivalLayer::new(Duration::from_secs(60), 10);
        let mut first = arriving(&layer, &[b"123456"]);
        assert_eq!(frame(&mut first).await, Ok(6));
        let mut second = arriving(&layer, &[b"1234", b"5"]);
        assert_eq!(frame(&mut second).await, Ok(4), "ten bytes are ten bytes");
        assert_eq!(frame(&mut second).await, Err(tonic::Code::ResourceExhausted));
        drop((first, second));
        let mut third = arriving(&layer, &[b"1234567890"]);
        assert_eq!(frame(&mut third).await, Ok(10));
    }
}
