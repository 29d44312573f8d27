//! Senders that stop in the middle, and time that passes meanwhile.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame};

/// A body that sends this, and then nothing for ever.
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

/// A request for a method, whose message claims so many bytes, and of which this has come.
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

/// Lets time pass at once. (Were it paused for longer, it would run ahead of the network.)
pub(crate) async fn jump(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
