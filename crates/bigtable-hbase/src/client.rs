//! Finds masters and region servers, and calls them.
//!
//! The client repeats these requests until the deadline. A refusal by a region's server or by the
//! active master ends them. So does a refusal by all addresses that the user gives:
//!
//! * A request to a row's region is repeated while nothing was applied. A read is repeated after
//!   a lost answer, too. A mutation is not: its first copy may still be applied (`guard.rs`).
//! * A call of the master is repeated after any other failure. Then its first copy may have been
//!   applied.
//!
//! The client sends all other calls once: the next page of a scanner, a flush, a compaction, the
//! state of a region. It also lists a table's regions once.
//!
//! The client asks the addresses that the user gives for the active master and for the server
//! of `hbase:meta`. It uses `ClientMetaService` (HBase 2.5 and later), not ZooKeeper.
//! `hbase:meta` names the server of each region.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster_net::Tls;
use prost::Message;
use rand::Rng;
use tokio::time::Instant;

use crate::attempts::Attempts;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::proto::{
    ActiveMasterResponse, CellsOfRow, Column, CompactRegionRequest, FlushRegionRequest,
    GetProcedureResultRequest, GetProcedureResultResponse, MetaLocationsResponse, MultiResponse,
    Nothing, ProcedureResponse, RegionInfoRequest, RegionInfoResponse, RegionSpecifier, Scan,
    ScanRequest, ScanResponse, ServerName,
};
use crate::regions::{Region, Regions};

/// First pause before a call is repeated. It doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Interval at which the client asks whether a procedure of the master has ended.
const PROCEDURE_PAUSE: Duration = Duration::from_millis(50);
/// `GetProcedureResultResponse.state`.
const FINISHED: i32 = 2;
/// Most rows of `hbase:meta` in one answer.
const META_ROWS: u32 = 1_000;

/// The addresses of the cluster's servers, and the client's settings.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    /// `host:port` of masters or region servers.
    pub(crate) seeds: Vec<String>,
    pub(crate) user: String,
    /// Longest time for which a request is tried.
    pub(crate) deadline: Duration,
    /// The certificates, if connections have TLS.
    pub(crate) tls: Option<Tls>,
    /// Whether this client may connect to other machines without TLS.
    pub(crate) plaintext_beyond_loopback: bool,
    /// The proxy through which this client reaches all servers.
    #[cfg(test)]
    pub(crate) proxy: Option<Arc<crate::tests::proxy::Proxy>>,
}

impl Access {
    /// The address to connect to for a server: its own, except in tests with a proxy.
    pub(crate) fn way_to(&self, server: &str) -> String {
        #[cfg(test)]
        if let Some(proxy) = &self.proxy {
            return proxy.way_to(server);
        }
        server.to_owned()
    }

    /// Says why this client does not connect to a server; `None` if it may.
    pub(crate) fn refuses(&self, address: &str) -> Option<String> {
        let plain = self.tls.is_none() && !self.plaintext_beyond_loopback;
        (plain && !is_loopback(address)).then(|| {
            format!(
                "the client would send plain text to {address}, which is not on this machine: give \
                 tls=true in the address, or allow plain text in a network you trust"
            )
        })
    }
}

/// The client of a cluster, with its connections and known regions.
#[derive(Debug)]
pub(crate) struct Client {
    access: Access,
    connections: Attempts<Arc<Connection>>,
    regions: Regions,
}

/// An answer, with the failure that it may contain.
pub(crate) trait Answer: Message + Default {
    fn failure(&self) -> Option<Failure> {
        None
    }
}

impl Answer for MultiResponse {
    fn failure(&self) -> Option<Failure> {
        let results = self.region_action_result.iter();
        let exceptions = results.flat_map(|of| {
            let inner = of.result_or_exception.iter().filter_map(|one| one.exception.as_ref());
            of.exception.as_ref().into_iter().chain(inner)
        });
        exceptions.map(Failure::from).next()
    }
}
impl Answer for ScanResponse {
    fn failure(&self) -> Option<Failure> {
        let says = self.more_results_in_region.is_some();
        (!says).then(|| {
            Failure::Lost("the server's answer does not say whether more rows follow".to_owned())
        })
    }
}
impl Answer for Nothing {}
impl Answer for RegionInfoResponse {}

/// The time left for one request, and its next pause.
struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    fn until(until: Instant) -> Self {
        Patience { until, pause: PAUSE_MIN }
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Pauses before the request is repeated. Returns `failure` if the time is over.
    async fn again(&mut self, failure: Failure) -> Result<(), Failure> {
        let pause = self.pause.mul_f64(rand::rng().random_range(0.5..1.0));
        if self.left() <= pause {
            return Err(failure);
        }
        tokio::time::sleep(pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

impl Client {
    pub(crate) fn new(access: Access) -> Self {
        Client { access, connections: Attempts::default(), regions: Regions::default() }
    }

    /// Has this client reach all servers through a proxy from now on.
    #[cfg(test)]
    pub(crate) fn go_through(&mut self, proxy: Arc<crate::tests::proxy::Proxy>) {
        self.access.proxy = Some(proxy);
    }

    /// The deadline of a request that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.access.deadline
    }

    /// The longest time for one request.
    pub(crate) fn patience(&self) -> Duration {
        self.access.deadline
    }

    /// Returns an open connection to a service of a server.
    async fn connection(
        &self,
        address: &str,
        service: &'static str,
        timeout: Duration,
    ) -> Result<Arc<Connection>, Failure> {
        if let Some(why) = self.access.refuses(address) {
            return Err(Failure::Denied(why));
        }
        let open = || {
            let (to, access) = (address.to_owned(), self.access.clone());
            async move { Connection::open(&to, service, &access).await.map(Arc::new) }
        };
        let key = (address.to_owned(), service);
        let opened = self.connections.join(key, |open| open.is_broken(), open);
        tokio::time::timeout(timeout, opened).await.unwrap_or_else(|_| {
            Err(Failure::Moved(format!("connecting to {address}: no answer in time")))
        })
    }

    async fn call<R: Message + Default>(
        &self,
        (address, service): (&str, &'static str),
        method: &str,
        message: &impl Message,
        timeout: Duration,
    ) -> Result<R, Failure> {
        let until = Instant::now() + timeout;
        let connection = self.connection(address, service, timeout).await?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Busy(format!("connecting to {address} took all the time")));
        }
        connection.call(method, message, left).await
    }

    /// Asks the given addresses in turn, until one answers. The failure is a refusal only if all of
    /// them refuse.
    async fn registry<R: Message + Default>(&self, method: &str) -> Result<R, Failure> {
        // A server may accept connections and answer none, so each address gets only a share of
        // the time.
        let timeout = self.access.deadline / (self.access.seeds.len() as u32 + 1);
        let (mut refusal, mut other) = (None, None);
        for seed in &self.access.seeds {
            let service = (seed.as_str(), "ClientMetaService");
            match self.call(service, method, &Nothing {}, timeout).await {
                Ok(answer) => return Ok(answer),
                Err(failure) if failure.is_final() => refusal = Some(failure),
                Err(failure) => other = Some(failure),
            }
        }
        Err(match (other, refusal) {
            (Some(other), Some(refusal)) => Failure::Busy(format!("{other}; also: {refusal}")),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => Failure::Refused("no address of a server was given".to_owned()),
        })
    }

    /// Calls the active master.
    pub(crate) async fn master<R: Message + Default>(
        &self,
        method: &str,
        message: &impl Message,
    ) -> Result<R, Failure> {
        let mut patience = Patience::until(self.deadline());
        loop {
            let failure = match self.registry("GetActiveMaster").await {
                Ok(ActiveMasterResponse { server_name: Some(master) }) => {
                    let (master, left) = (address_of(&master), patience.left());
                    match self.call((&master, "MasterService"), method, message, left).await {
                        Ok(answer) => return Ok(answer),
                        Err(failure) => failure,
                    }
                }
                Ok(_) => Failure::Busy("the cluster has no active master".to_owned()),
                Err(failure) => failure,
            };
            if failure.is_final() {
                return Err(failure);
            }
            patience.again(failure).await?;
        }
    }

    /// Starts a procedure of the master, and waits for its end.
    pub(crate) async fn procedure(
        &self,
        method: &str,
        message: &impl Message,
    ) -> Result<(), Failure> {
        let begun: ProcedureResponse = self.master(method, message).await?;
        let Some(proc_id) = begun.proc_id else { return Ok(()) };
        loop {
            let asked = GetProcedureResultRequest { proc_id };
            let answer: GetProcedureResultResponse =
                self.master("getProcedureResult", &asked).await?;
            if let Some(exception) = answer.exception.and_then(|e| e.generic_exception) {
                let class = exception.class_name.unwrap_or_default();
                let why = exception.message.unwrap_or_default();
                return Err(Failure::Refused(format!("{method}: {class}: {why}")));
            }
            if answer.state == FINISHED {
                return Ok(());
            }
            tokio::time::sleep(PROCEDURE_PAUSE).await;
        }
    }

    /// The region of `hbase:meta`, with its server.
    pub(crate) async fn meta(&self) -> Result<Region, Failure> {
        let answer: MetaLocationsResponse = self.registry("GetMetaRegionLocations").await?;
        let server = answer.meta_locations.into_iter().find_map(|location| location.server_name);
        let server =
            server.ok_or_else(|| Failure::Busy("hbase:meta is on no server".to_owned()))?;
        Ok(Region::meta(address_of(&server)))
    }

    /// Reads rows of `hbase:meta`, at most [`META_ROWS`].
    async fn scan_meta(&self, scan: Scan, rows: u32) -> Result<Vec<CellsOfRow>, Failure> {
        let meta = self.meta().await?;
        let request = ScanRequest {
            region: Some(RegionSpecifier::named(&meta.name)),
            scan: Some(Scan {
                column: vec![Column { family: Bytes::from_static(b"info"), qualifier: vec![] }],
                ..scan
            }),
            number_of_rows: Some(rows),
            close_scanner: Some(true),
            limit_of_rows: Some(rows),
            ..ScanRequest::default()
        };
        let (service, left) = ((meta.server.as_str(), "ClientService"), self.access.deadline);
        let answer: ScanResponse = self.call(service, "Scan", &request, left).await?;
        Ok(answer.results)
    }

    /// Finds the region that holds a row.
    async fn region(&self, table: &Bytes, row: &[u8]) -> Result<Arc<Region>, Failure> {
        if let Some(region) = self.regions.of(table, row) {
            return Ok(region);
        }
        let scan = Scan {
            // A colon sorts after every digit of a region's number.
            start_row: Some([table, &b","[..], row, b",:"].concat().into()),
            stop_row: Some(table.clone()),
            reversed: Some(true),
            ..Scan::default()
        };
        let found = self.scan_meta(scan, 1).await?;
        let region = found.first().and_then(|row| Region::of_meta(&row.cell));
        let Some(region) = region.filter(|region| region.contains(row)) else {
            return Err(Failure::Busy("the row's region is on no server".to_owned()));
        };
        let region = Arc::new(region);
        self.regions.put(table, &region);
        Ok(region)
    }

    /// Reads all regions of a table, in the order of their rows.
    pub(crate) async fn regions(&self, table: &Bytes) -> Result<Vec<Region>, Failure> {
        let mut regions = Vec::new();
        let mut start: Bytes = [&table[..], b",,"].concat().into();
        loop {
            let scan = Scan {
                start_row: Some(start),
                include_start_row: Some(regions.is_empty()),
                // A dash is the next byte after the comma.
                stop_row: Some([&table[..], b"-"].concat().into()),
                ..Scan::default()
            };
            let found = self.scan_meta(scan, META_ROWS).await?;
            regions.extend(found.iter().filter_map(|row| Region::of_meta(&row.cell)));
            match found.last().and_then(|row| row.cell.first()) {
                Some(last) if found.len() == META_ROWS as usize => start = last.row.clone(),
                _ => return Ok(regions),
            }
        }
    }

    /// Sends a request to the region that holds `row`. It is repeated while nothing was
    /// applied. A request that `may_repeat` is also repeated after a lost answer. No copy is sent
    /// after `until`.
    pub(crate) async fn on_region<M: Message, R: Answer>(
        &self,
        (table, row): (&Bytes, &[u8]),
        method: &str,
        request: impl Fn(&Region) -> M,
        may_repeat: bool,
        until: Instant,
    ) -> Result<(R, Arc<Region>), Failure> {
        let mut patience = Patience::until(until);
        let mut last = "looking the region up took all the time".to_owned();
        loop {
            let failure = match self.region(table, row).await {
                // The request has not been sent to the region yet.
                Err(failure) if failure.is_final() => return Err(failure),
                Err(failure) => Failure::Busy(format!("looking the region up: {failure}")),
                Ok(_) if patience.left().is_zero() => Failure::Busy(format!(
                    "the request was not applied before its deadline: {last}"
                )),
                Ok(region) => {
                    let (message, left) = (request(&region), patience.left());
                    let service = (region.server.as_str(), "ClientService");
                    let answer: Result<R, Failure> =
                        self.call(service, method, &message, left).await;
                    let answer = answer.and_then(|answer| match answer.failure() {
                        Some(failure) => Err(failure),
                        None => Ok(answer),
                    });
                    match answer {
                        Ok(answer) => return Ok((answer, region)),
                        Err(failure) => {
                            if !failure.is_final() && !matches!(failure, Failure::Busy(_)) {
                                self.regions.forget(table, &region);
                            }
                            failure
                        }
                    }
                }
            };
            last = failure.to_string();
            match failure {
                failure if failure.is_final() => return Err(failure),
                Failure::Lost(_) if !may_repeat => return Err(failure),
                failure => patience.again(failure).await?,
            }
        }
    }

    /// Continues a scanner that the region's server holds.
    pub(crate) async fn next(
        &self,
        region: &Region,
        request: &ScanRequest,
    ) -> Result<ScanResponse, Failure> {
        let service = (region.server.as_str(), "ClientService");
        self.call(service, "Scan", request, self.access.deadline).await
    }

    /// Flushes a region's memory to files, for one family or for all.
    pub(crate) async fn flush(
        &self,
        region: &Region,
        family: Option<Bytes>,
    ) -> Result<(), Failure> {
        let request = FlushRegionRequest { region: RegionSpecifier::named(&region.name), family };
        self.admin::<Nothing>(region, "FlushRegion", &request).await.map(drop)
    }

    /// Asks the server to compact a region's files soon: some of them, or with `major` all.
    pub(crate) async fn compact(
        &self,
        region: &Region,
        family: Option<Bytes>,
        major: bool,
    ) -> Result<(), Failure> {
        let named = RegionSpecifier::named(&region.name);
        let request = CompactRegionRequest { region: named, major: Some(major), family };
        self.admin::<Nothing>(region, "CompactRegion", &request).await.map(drop)
    }

    /// True while the server compacts files of the region.
    pub(crate) async fn is_compacting(&self, region: &Region) -> Result<bool, Failure> {
        let named = RegionSpecifier::named(&region.name);
        let request = RegionInfoRequest { region: named, compaction_state: Some(true) };
        let answer: RegionInfoResponse = self.admin(region, "GetRegionInfo", &request).await?;
        Ok(answer.compaction_state.unwrap_or(0) != 0)
    }

    async fn admin<R: Message + Default>(
        &self,
        region: &Region,
        method: &str,
        request: &impl Message,
    ) -> Result<R, Failure> {
        let service = (region.server.as_str(), "AdminService");
        self.call(service, method, request, self.access.deadline).await
    }
}

fn address_of(server: &ServerName) -> String {
    format!("{}:{}", server.host_name, server.port.unwrap_or_default())
}

/// True if the server is on this machine.
fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
