//! Connections, deadlines and headers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use bigtable::{Error, Result};
use prost::Message;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{IntoRequest, Request};

use super::address::Address;
use crate::proto::admin::bigtable_instance_admin_client::BigtableInstanceAdminClient;
use crate::proto::admin::bigtable_table_admin_client::BigtableTableAdminClient;
use crate::proto::data::FeatureFlags;
use crate::proto::data::bigtable_client::BigtableClient;
use crate::proto::extension::extension_client::ExtensionClient;

/// Largest message that is decoded: a server of Google's may send a whole cell in one.
const ANSWER_BYTES_MAX: usize = 128 << 20;
/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);
/// A connection that is silent for so long is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Connections to one instance. A connection carries about a hundred requests at a time, so there
/// are several.
#[derive(Debug)]
pub(crate) struct Channels {
    channels: Vec<Channel>,
    next: AtomicUsize,
    deadline: Duration,
    features: MetadataValue<Ascii>,
}

impl Channels {
    /// Connects when the first request is sent. To be called in a tokio runtime.
    pub(crate) fn new(address: &Address, count: usize, deadline: Duration) -> Result<Self> {
        let wrong = |error: &dyn std::fmt::Display| Error::invalid(format!("{address}: {error}"));
        let endpoint = Endpoint::from_shared(format!("http://{}", address.authority()));
        let endpoint = endpoint
            .map_err(|error| wrong(&error))?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_while_idle(true);
        let flags = FeatureFlags {
            reverse_scans: true,
            last_scanned_row_responses: true,
            ..FeatureFlags::default()
        };
        let web = &base64::engine::general_purpose::URL_SAFE;
        let features = web.encode(flags.encode_to_vec()).parse().map_err(|error| wrong(&error))?;
        let channels = (0..count.max(1)).map(|_| endpoint.connect_lazy()).collect();
        Ok(Channels { channels, next: AtomicUsize::new(0), deadline, features })
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    fn channel(&self) -> Channel {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.channels[next % self.channels.len()].clone()
    }

    pub(crate) fn data(&self) -> BigtableClient<Channel> {
        BigtableClient::new(self.channel()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn extension(&self) -> ExtensionClient<Channel> {
        ExtensionClient::new(self.channel()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn tables(&self) -> BigtableTableAdminClient<Channel> {
        BigtableTableAdminClient::new(self.channel())
    }

    pub(crate) fn instances(&self) -> BigtableInstanceAdminClient<Channel> {
        BigtableInstanceAdminClient::new(self.channel())
    }

    /// A request with its deadline and headers; `routing` says whom it concerns, as
    /// `table_name=...`, each value escaped.
    pub(crate) fn request<T>(&self, routing: &MetadataValue<Ascii>, message: T) -> Request<T> {
        let mut request = message.into_request();
        request.set_timeout(self.deadline);
        let headers = request.metadata_mut();
        headers.insert("bigtable-features", self.features.clone());
        headers.insert("x-goog-request-params", routing.clone());
        request
    }
}

/// The header that routes a request: names and values, the values escaped.
pub(crate) fn routing(params: &[(&str, &str)]) -> Result<MetadataValue<Ascii>> {
    let mut text = String::new();
    for (name, value) in params {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(name);
        text.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                text.push(char::from(byte));
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    text.parse().map_err(|_| Error::invalid(format!("{text:?} is no header")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routing_headers_are_escaped() {
        let params = [("table_name", "projects/p/tables/t"), ("app_profile_id", "")];
        let header = routing(&params).unwrap();
        assert_eq!(header, "table_name=projects%2Fp%2Ftables%2Ft&app_profile_id=");
    }
}
