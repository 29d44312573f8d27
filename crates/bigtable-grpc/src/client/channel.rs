//! Opens connections to an instance, and adds deadlines and headers to requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine;
use bigtable::{Error, Result, StoreId};
use cluster_net::{Dialer, Role};
use futures::FutureExt;
use prost::Message;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{ClientTlsConfig, Endpoint};
use tonic::{Code, IntoRequest, Request};

use super::address::{Address, Place};
use super::credentials::Credentials;
use super::options::ClientOptions;
use super::pool::{Connection, Line, Pool, WarmUp};
use super::status::of_read;
use crate::identity::Named;
use crate::proto::admin::bigtable_instance_admin_client::BigtableInstanceAdminClient;
use crate::proto::admin::bigtable_table_admin_client::BigtableTableAdminClient;
use crate::proto::data::bigtable_client::BigtableClient;
use crate::proto::data::{FeatureFlags, PingAndWarmRequest};
use crate::proto::extension::administration_client::AdministrationClient;
use crate::proto::extension::extension_client::ExtensionClient;

/// The endpoints of Cloud Bigtable.
const CLOUD_DATA: &str = "https://bigtable.googleapis.com";
const CLOUD_ADMIN: &str = "https://bigtableadmin.googleapis.com";
/// Largest message that the client decodes: Google's servers may send a whole cell in one
/// message.
const ANSWER_BYTES_MAX: usize = 128 << 20;
/// Longest time for connecting, and for the TLS handshake with Cloud Bigtable.
const CONNECT: Duration = Duration::from_secs(10);
/// Time of silence after which the client pings the server.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How many bytes of answers may wait in a connection until their requests are polled. Each
/// request has a bound of its own, of 2 MB by default, so there is room for 512. With less room,
/// requests that their program does not poll would hold up the others of the connection (H77).
const WINDOW: u32 = 1 << 30;

/// The endpoints and credentials of a server.
#[derive(Debug)]
pub(crate) struct Way {
    data: Line,
    /// The endpoint for creating tables, if it is not `data`.
    admin: Option<Line>,
    credentials: Option<Arc<Credentials>>,
}

impl Way {
    /// Chooses endpoints, encryption and credentials for an address.
    pub(crate) async fn to(address: &Address, options: &ClientOptions) -> Result<Way> {
        let authority = match address.place() {
            Place::Cloud => return Way::to_google(Credentials::google().await?),
            Place::Server(authority) => authority,
            Place::Emulator(authority) => authority,
        };
        let is_emulator = matches!(address.place(), Place::Emulator(_));
        let plaintext = address.is_loopback() || is_emulator || options.plaintext_beyond_loopback;
        if options.tls.is_none() && !plaintext {
            return Err(Error::invalid(format!(
                "the client would send plain text to {authority}, which is not on this machine: \
                 give certificates, or allow plain text in a network you trust"
            )));
        }
        let dialer = Dialer::to(Role::Table, options.tls.clone());
        let endpoint = patient(malformed(authority, dialer.endpoint(authority))?);
        let data = Line { endpoint, dialer: Some(dialer) };
        Ok(Way { data, admin: None, credentials: None })
    }

    /// The endpoints of Cloud Bigtable, whose certificates the system's authorities sign.
    pub(crate) fn to_google(credentials: Credentials) -> Result<Way> {
        let tls = || ClientTlsConfig::new().with_native_roots().timeout(CONNECT);
        let line = |url| encrypted(url, tls()).map(|endpoint| Line { endpoint, dialer: None });
        let (data, admin) = (line(CLOUD_DATA)?, line(CLOUD_ADMIN)?);
        Ok(Way { data, admin: Some(admin), credentials: Some(Arc::new(credentials)) })
    }

    /// The endpoints of a test server, in plain text.
    #[cfg(test)]
    pub(crate) fn to_test(data: &str, admin: &str, credentials: Credentials) -> Result<Way> {
        let line = |url| endpoint(url).map(|endpoint| Line { endpoint, dialer: None });
        let (data, admin) = (line(data)?, line(admin)?);
        Ok(Way { data, admin: Some(admin), credentials: Some(Arc::new(credentials)) })
    }
}

fn endpoint(url: &str) -> Result<Endpoint> {
    malformed(url, Endpoint::from_shared(url.to_owned())).map(patient)
}

fn malformed<T>(url: &str, made: std::result::Result<T, tonic::transport::Error>) -> Result<T> {
    made.map_err(|error| Error::invalid(format!("{url}: {error}")))
}

fn patient(endpoint: Endpoint) -> Endpoint {
    endpoint
        .initial_connection_window_size(WINDOW)
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_while_idle(true)
}

fn encrypted(url: &str, config: ClientTlsConfig) -> Result<Endpoint> {
    endpoint(url)?.tls_config(config).map_err(|error| {
        let why = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
        Error::invalid(format!("{url}: the certificates cannot be used: {why}"))
    })
}

/// Several connections to one instance, because one connection carries about a hundred requests
/// at a time.
#[derive(Debug)]
pub(crate) struct Channels {
    data: Pool,
    /// Seldom used, so it connects only when it is used.
    admin: Option<Pool>,
    deadline: Duration,
    features: MetadataValue<Ascii>,
    by_token: bool,
    /// The store that all requests are meant for, once the server has named it.
    store: OnceLock<Named>,
    sent: AtomicU64,
    reads_sent: AtomicU64,
}

impl Channels {
    /// Connects to the instance. The caller must be in a tokio runtime.
    pub(crate) async fn open(
        way: Way,
        instance: &str,
        app_profile: &str,
        options: &ClientOptions,
    ) -> Result<Self> {
        let deadline = options.deadline;
        let features = features()?;
        let by_token = way.credentials.is_some();
        let warm_up = warm_up(instance, app_profile, deadline, &features, by_token)?;
        let open = |line, count, warm_up| {
            Pool::open(line, count, way.credentials.clone(), deadline, warm_up)
        };
        let data = open(way.data, options.connections, warm_up).await;
        let data = data.map_err(|status| of_read(&status))?;
        let admin = match way.admin {
            None => None,
            Some(line) => {
                let nothing: WarmUp = Box::new(|_| async { Ok(()) }.boxed());
                Some(open(line, 1, nothing).await.map_err(|status| of_read(&status))?)
            }
        };
        let (sent, reads_sent) = (AtomicU64::new(0), AtomicU64::new(0));
        let store = OnceLock::new();
        Ok(Channels { data, admin, deadline, features, by_token, store, sent, reads_sent })
    }

    /// Names the store in all further requests. The first name stays.
    pub(crate) fn name_store(&self, named: Named) {
        self.store.get_or_init(|| named);
    }

    /// The store, if the server has named it.
    pub(crate) fn store_id(&self) -> Option<StoreId> {
        self.store.get()?.id()
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(crate) fn data(&self) -> BigtableClient<Connection> {
        BigtableClient::new(self.data.connection()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// True if the server authorizes each request by itself, so that it may refuse only some of
    /// them.
    pub(crate) fn by_token(&self) -> bool {
        self.by_token
    }

    pub(crate) fn extension(&self) -> ExtensionClient<Connection> {
        ExtensionClient::new(self.data.connection()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn administration(&self) -> AdministrationClient<Connection> {
        AdministrationClient::new(self.data.connection())
    }

    fn admin(&self) -> Connection {
        self.admin.as_ref().unwrap_or(&self.data).connection()
    }

    pub(crate) fn tables(&self) -> BigtableTableAdminClient<Connection> {
        BigtableTableAdminClient::new(self.admin())
    }

    pub(crate) fn instances(&self) -> BigtableInstanceAdminClient<Connection> {
        BigtableInstanceAdminClient::new(self.admin())
    }

    /// Adds the deadline and headers to a request. `routing` names the resource that the
    /// request is for, as `table_name=...`, with each value escaped.
    pub(crate) fn request<T>(&self, routing: &MetadataValue<Ascii>, message: T) -> Request<T> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let mut request = request(self.deadline, &self.features, routing, message);
        if let Some(named) = self.store.get() {
            named.put(request.metadata_mut());
        }
        request
    }

    /// Adds the deadline and headers to a request that reads rows, and counts it as a read.
    pub(crate) fn read_request<T>(&self, routing: &MetadataValue<Ascii>, message: T) -> Request<T> {
        self.reads_sent.fetch_add(1, Ordering::Relaxed);
        self.request(routing, message)
    }

    /// Number of requests so far that read rows.
    pub(crate) fn reads_sent(&self) -> u64 {
        self.reads_sent.load(Ordering::Relaxed)
    }

    /// Number of requests built for sending so far.
    pub(crate) fn requests_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

fn request<T>(
    deadline: Duration,
    features: &MetadataValue<Ascii>,
    routing: &MetadataValue<Ascii>,
    message: T,
) -> Request<T> {
    let mut request = message.into_request();
    request.set_timeout(deadline);
    let headers = request.metadata_mut();
    headers.insert("bigtable-features", features.clone());
    headers.insert("x-goog-request-params", routing.clone());
    request
}

/// The API features that this client understands, as a header.
fn features() -> Result<MetadataValue<Ascii>> {
    let flags = FeatureFlags {
        reverse_scans: true,
        last_scanned_row_responses: true,
        retry_info: true,
        ..FeatureFlags::default()
    };
    let text = base64::engine::general_purpose::URL_SAFE.encode(flags.encode_to_vec());
    text.parse().map_err(|_| Error::invalid(format!("{text:?} cannot be a header")))
}

/// Sends PingAndWarm, on which Google's servers load their data about the instance.
fn warm_up(
    instance: &str,
    app_profile: &str,
    deadline: Duration,
    features: &MetadataValue<Ascii>,
    by_token: bool,
) -> Result<WarmUp> {
    let params = routing(&[("name", instance), ("app_profile_id", app_profile)])?;
    let [name, app_profile_id] = [instance, app_profile].map(str::to_owned);
    let features = features.clone();
    Ok(Box::new(move |connection| {
        let ping =
            PingAndWarmRequest { name: name.clone(), app_profile_id: app_profile_id.clone() };
        let ping = request(deadline, &features, &params, ping);
        async move {
            match BigtableClient::new(connection).ping_and_warm(ping).await {
                Ok(_) => Ok(()),
                Err(status) if status.code() == Code::Unimplemented => Ok(()),
                // Credentials without the permission to ping may still read and write.
                Err(status) if by_token && status.code() == Code::PermissionDenied => Ok(()),
                Err(status) => Err(status),
            }
        }
        .boxed()
    }))
}

/// Builds the header that routes a request: names with escaped values.
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
    text.parse().map_err(|_| Error::invalid(format!("{text:?} cannot be a header")))
}

#[cfg(test)]
mod tests {
    use super::super::credentials::{Token, TokenSource};
    use super::*;

    #[test]
    fn routing_headers_are_escaped() {
        let params = [("table_name", "projects/p/tables/t"), ("app_profile_id", "")];
        let header = routing(&params).unwrap();
        assert_eq!(header, "table_name=projects%2Fp%2Ftables%2Ft&app_profile_id=");
    }

    #[test]
    fn googles_endpoints_are_encrypted() {
        struct Nobody;

        #[async_trait::async_trait]
        impl TokenSource for Nobody {
            async fn token(&self) -> std::result::Result<Token, String> {
                Err("nobody".to_owned())
            }
        }

        match Way::to_google(Credentials::new(Nobody)) {
            Ok(Way { data, admin, .. }) => {
                let admin = admin.expect("tables have an endpoint of their own");
                let [data, admin] = [data, admin].map(|line| line.endpoint);
                assert_eq!(data.uri().to_string(), "https://bigtable.googleapis.com/");
                assert_eq!(admin.uri().to_string(), "https://bigtableadmin.googleapis.com/");
                assert!(data.get_tcp_nodelay() && admin.get_tcp_nodelay());
            }
            // This machine lacks the certificates of public authorities.
            Err(error) => assert!(error.to_string().contains("certificates"), "{error}"),
        }
    }
}
