//! Implements senders that stop in the middle, and lets time pass meanwhile.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame};

/// A body that sends these bytes and then stalls for ever.
#[derive(Debug)]
pub(crate) struct Half(pub(crate) Option<bytes::Bytes>);

impl Body for Half {
    type Data = bytes::Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, Infallible>>> {
        self.0.take().map_or(Poll::Pending, |data| Poll::Ready(Some(Ok(Frame::data(data)))))
    }
}

/// A request for a method. Its message claims this length, and only these bytes of it are sent.
pub(crate) fn half_a_request(
    path: &str,
    claimed: u32,
    begun: &[u8],
) -> http::Request<tonic::body::Body> {
    let data = [&[0], &claimed.to_be_bytes()[..], begun].concat();
    http::Request::post(path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(Half(Some(data.into()))))
        .unwrap()
}

/// Advances the time at once. A longer pause of the clock would let time run ahead of the
/// network.
pub(crate) async fn jump(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
