//! Asks the cluster about its servers, and changes the regions of the store's tables.
//!
//! HBase splits, merges and moves regions by itself. Tests do the same on purpose, and often.

use std::collections::BTreeMap;

use bigtable::Store;
use bytes::Bytes;

use crate::encode;
use crate::failure::Failure;
use crate::info::{self, HbaseProcess};
use crate::proto::{
    self, ClusterStatusRequest, ClusterStatusResponse, MergeRegionsRequest, MoveRegionRequest,
    Nothing, RegionInfo, RegionSpecifier, Scan, ScanRequest, ScanResponse, SplitRegionRequest,
};
use crate::regions::Region;
use crate::store::HbaseStore;

/// Rows from which the first row of a new region is chosen.
const SPLIT_ROWS: u32 = 512;
/// The parts of the cluster's status that this client asks for: version, live servers, master,
/// balancer, and the port of the master's web server.
const STATUS_OPTIONS: [i32; 5] = [0, 2, 4, 8, 9];

/// The servers of an HBase cluster, as its master describes them.
///
/// ```no_run
/// # async fn example() -> bigtable_hbase::Result<()> {
/// use bigtable_hbase::{HbaseCluster, HbaseOptions, HbaseStore};
/// let address = "hbase://127.0.0.1:16000/shop".parse()?;
/// let store = HbaseStore::connect(&address, HbaseOptions::default()).await?;
/// let HbaseCluster { version, master, servers, balancer } = store.cluster().await?;
/// println!("HBase {version}, master {}, balancer {balancer}", master.address);
/// println!("{} region servers", servers.len());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HbaseCluster {
    /// HBase's version.
    pub version: String,
    /// The active master.
    pub master: HbaseServer,
    /// The region servers that live.
    pub servers: Vec<HbaseServer>,
    /// Whether the balancer moves regions between servers.
    pub balancer: bool,
}

/// A server of an HBase cluster.
///
/// ```no_run
/// # async fn example() -> bigtable_hbase::Result<()> {
/// use bigtable_hbase::{HbaseOptions, HbaseServer, HbaseStore};
/// let address = "hbase://127.0.0.1:16000/shop".parse()?;
/// let store = HbaseStore::connect(&address, HbaseOptions::default()).await?;
/// let servers: Vec<HbaseServer> = store.cluster().await?.servers;
/// let of_meta = servers.iter().find(|server| server.has_meta);
/// println!("hbase:meta is on {:?}", of_meta.map(|server| &server.address));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HbaseServer {
    /// Host and port.
    pub address: String,
    /// When the server was started, in milliseconds since 1970. Another process at the same address
    /// has another number.
    pub start_code: u64,
    /// Host and port of the server's web server; `None` if it has none.
    pub info_address: Option<String>,
    /// The number of regions on the server; zero for a master.
    pub regions: usize,
    /// Whether `hbase:meta` is on the server.
    pub has_meta: bool,
}

/// A change of regions.
///
/// ```no_run
/// # async fn example() -> bigtable_hbase::Result<()> {
/// use bigtable_hbase::{HbaseOptions, HbaseStore, Reshape};
/// let address = "hbase://127.0.0.1:16000/shop".parse()?;
/// let store = HbaseStore::connect(&address, HbaseOptions::default()).await?;
/// if let Some(what) = store.reshape(Reshape::Split, 7).await? {
///     println!("{what}");
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reshape {
    /// Make two regions of one.
    Split,
    /// Make one region of two neighbours.
    Merge,
    /// Move a region to another server.
    Move,
}

impl HbaseStore {
    /// Asks the master for HBase's version, and for the chosen parts of the cluster's status.
    pub(crate) async fn status(
        &self,
        options: &[i32],
    ) -> Result<(String, proto::ClusterStatus), Failure> {
        let request = ClusterStatusRequest { options: options.to_vec() };
        let answer: ClusterStatusResponse =
            self.client().master("GetClusterStatus", &request).await?;
        let status = answer.cluster_status;
        let version = status.hbase_version.as_ref().map(|of| of.version.clone());
        Ok((version.unwrap_or_default(), status))
    }

    /// Asks the master for the cluster's version and its servers.
    ///
    /// # Errors
    /// `Unavailable` if no master answers in time.
    pub async fn cluster(&self) -> bigtable::Result<HbaseCluster> {
        let (version, status) = self.status(&STATUS_OPTIONS).await.map_err(Failure::of_read)?;
        let meta = self.client().meta().await.map(|meta| meta.server).unwrap_or_default();
        let server = |name: &proto::ServerName, info_port: u32, regions| {
            let address = format!("{}:{}", name.host_name, name.port.unwrap_or_default());
            HbaseServer {
                start_code: name.start_code.unwrap_or_default(),
                info_address: (info_port > 0).then(|| format!("{}:{info_port}", name.host_name)),
                regions,
                has_meta: address == meta,
                address,
            }
        };
        let master_port = status.master_info_port.and_then(|port| u32::try_from(port).ok());
        Ok(HbaseCluster {
            version,
            master: server(&status.master.unwrap_or_default(), master_port.unwrap_or(0), 0),
            servers: status
                .live_servers
                .iter()
                .map(|live| {
                    let load = &live.server_load;
                    let port = load.info_server_port.unwrap_or(0);
                    server(&live.server, port, load.region_loads.len())
                })
                .collect(),
            balancer: status.balancer_on.unwrap_or(false),
        })
    }

    /// Asks a server's web server for its process.
    ///
    /// # Errors
    /// `Unavailable` if the server has no web server, or if it does not answer.
    pub async fn process(&self, server: &HbaseServer) -> bigtable::Result<HbaseProcess> {
        let found = info::process(info_address(server)?, self.client().patience()).await;
        found.map_err(|why| bigtable::Error::Unavailable { why })
    }

    /// Asks a server's web server for all of the server's settings, defaults included.
    ///
    /// # Errors
    /// `Unavailable` if the server has no web server, or if it does not answer.
    pub async fn server_settings(
        &self,
        server: &HbaseServer,
    ) -> bigtable::Result<BTreeMap<String, String>> {
        let found = info::settings(info_address(server)?, self.client().patience()).await;
        found.map_err(|why| bigtable::Error::Unavailable { why })
    }

    /// Asks a region server's web server for the server's version.
    pub(crate) async fn server_version(&self, server: &HbaseServer) -> bigtable::Result<String> {
        let found = info::version(info_address(server)?, self.client().patience()).await;
        found.map_err(|why| bigtable::Error::Unavailable { why })
    }

    /// Splits, merges or moves one region of the store's tables. `draw` chooses the table and the
    /// region; if none of the table is fit, another table follows. Returns what was changed, or
    /// `None` if no region is fit.
    ///
    /// # Errors
    /// `InvalidRequest` if the master refuses the change: the region may have been changed
    /// recently, or its server may be away. `Unavailable` if no master answers in time.
    #[doc(hidden)]
    pub async fn reshape(&self, reshape: Reshape, draw: u64) -> bigtable::Result<Option<String>> {
        let mut names = self.table_names().await?;
        let first = (draw % names.len().max(1) as u64) as usize;
        let count = names.len();
        names.rotate_left(first.min(count));
        let mut refused = None;
        for name in &names {
            match self.reshape_table(name, reshape, draw / count as u64).await {
                Ok(None) => {}
                Ok(Some(what)) => return Ok(Some(format!("{name}: {what}"))),
                Err(failure) => refused = Some(failure),
            }
        }
        refused.map_or(Ok(None), |failure| Err(failure.of_read()))
    }

    /// The number of regions of the store's tables.
    ///
    /// # Errors
    /// `Unavailable` if the regions cannot be read in time.
    #[doc(hidden)]
    pub async fn region_count(&self) -> bigtable::Result<usize> {
        Ok(self.own_regions().await?.len())
    }

    async fn own_regions(&self) -> bigtable::Result<Vec<Region>> {
        let mut regions = Vec::new();
        for name in self.table_names().await? {
            let id: Bytes = self.id(&name).into();
            regions.extend(self.client().regions(&id).await.map_err(Failure::of_read)?);
        }
        Ok(regions)
    }

    /// Moves the regions of the store's tables so that each region server has as many. Returns the
    /// number of regions.
    ///
    /// # Errors
    /// As [`reshape`](HbaseStore::reshape).
    #[doc(hidden)]
    pub async fn spread(&self) -> bigtable::Result<usize> {
        let regions = self.own_regions().await?;
        let (_, status) = self.status(&STATUS_OPTIONS).await.map_err(Failure::of_read)?;
        let servers = status.live_servers.into_iter().map(|live| live.server);
        for (region, server) in regions.iter().zip(servers.collect::<Vec<_>>().iter().cycle()) {
            let dest_server_name = Some(server.clone());
            let request = MoveRegionRequest { region: encoded(region), dest_server_name };
            let moved = self.client().master::<Nothing>("MoveRegion", &request).await;
            moved.map_err(Failure::of_read)?;
        }
        Ok(regions.len())
    }

    async fn reshape_table(
        &self,
        name: &str,
        reshape: Reshape,
        draw: u64,
    ) -> Result<Option<String>, Failure> {
        let id: Bytes = self.id(name).into();
        let regions = self.client().regions(&id).await?;
        let Some(region) = pick(&regions, draw) else { return Ok(None) };
        match reshape {
            Reshape::Split => self.split(name, &id, region).await,
            Reshape::Merge => {
                let pairs: Vec<&[Region]> = regions.windows(2).collect();
                let Some(pair) = pick(&pairs, draw) else { return Ok(None) };
                self.merge(pair).await
            }
            Reshape::Move => self.move_away(region, draw).await,
        }
    }

    async fn split(
        &self,
        name: &str,
        id: &Bytes,
        region: &Region,
    ) -> Result<Option<String>, Failure> {
        let rows = self.first_rows(id, region).await?;
        let middle = rows.get(rows.len() / 2).filter(|row| **row > region.start);
        let Some(middle) = middle.cloned() else { return Ok(None) };
        let request = SplitRegionRequest {
            region_info: RegionInfo {
                region_id: region.id,
                table_name: self.table_name(name),
                start_key: Some(region.start.clone()),
                end_key: Some(region.end.clone()),
                offline: Some(false),
                split: Some(false),
                replica_id: Some(0),
            },
            split_row: Some(middle.clone()),
            nonce_group: rand::random(),
            nonce: rand::random(),
        };
        self.client().procedure("SplitRegion", &request).await?;
        Ok(Some(format!("split at {:?}", RowText(&middle))))
    }

    /// The keys of the first rows of a region.
    async fn first_rows(&self, table: &Bytes, region: &Region) -> Result<Vec<Bytes>, Failure> {
        let column = encode::guard_column();
        let request = |region: &Region| ScanRequest {
            region: Some(RegionSpecifier::named(&region.name)),
            scan: Some(Scan {
                column: vec![column.clone()],
                start_row: Some(region.start.clone()),
                stop_row: Some(region.end.clone()),
                ..Scan::default()
            }),
            number_of_rows: Some(SPLIT_ROWS),
            close_scanner: Some(true),
            limit_of_rows: Some(SPLIT_ROWS),
            ..ScanRequest::default()
        };
        let (client, place) = (self.client(), (table, &region.start[..]));
        let (answer, _): (ScanResponse, _) =
            client.on_region(place, "Scan", request, true, client.deadline()).await?;
        let rows = answer.results.into_iter().filter_map(|row| Some(row.cell.first()?.row.clone()));
        Ok(rows.collect())
    }

    /// Merges two neighbours.
    async fn merge(&self, neighbours: &[Region]) -> Result<Option<String>, Failure> {
        let [first, second] = neighbours else { return Ok(None) };
        let request = MergeRegionsRequest {
            region: [first, second].map(encoded).to_vec(),
            forcible: Some(false),
            nonce_group: rand::random(),
            nonce: rand::random(),
        };
        self.client().procedure("MergeTableRegions", &request).await?;
        Ok(Some(format!("merged at {:?}", RowText(&second.start))))
    }

    /// Moves a region to one of the other servers.
    async fn move_away(&self, region: &Region, draw: u64) -> Result<Option<String>, Failure> {
        let (_, status) = self.status(&STATUS_OPTIONS).await?;
        let live = status.live_servers.into_iter().map(|live| live.server);
        let address =
            |of: &proto::ServerName| format!("{}:{}", of.host_name, of.port.unwrap_or_default());
        let others: Vec<_> = live.filter(|of| address(of) != region.server).collect();
        let Some(server) = pick(&others, draw) else { return Ok(None) };
        let to = address(server);
        let dest_server_name = Some(server.clone());
        let request = MoveRegionRequest { region: encoded(region), dest_server_name };
        self.client().master::<Nothing>("MoveRegion", &request).await?;
        Ok(Some(format!("moved from {} to {to}", region.server)))
    }
}

fn info_address(server: &HbaseServer) -> bigtable::Result<&str> {
    server.info_address.as_deref().ok_or_else(|| bigtable::Error::Unavailable {
        why: format!(
            "server {} names no web server: set hbase.regionserver.info.port and \
             hbase.master.info.port to ports, and wait if it has just been started",
            server.address
        ),
    })
}

fn pick<T>(all: &[T], draw: u64) -> Option<&T> {
    all.get((draw % all.len().max(1) as u64) as usize)
}

/// The specifier of a region by the hash at the end of its name: `table,start,number.HASH.`
fn encoded(region: &Region) -> RegionSpecifier {
    let name = region.name.strip_suffix(b".").unwrap_or(&region.name);
    let hash = name.iter().rposition(|byte| *byte == b'.').map_or(0, |dot| dot + 1);
    RegionSpecifier::encoded(region.name.slice(hash..name.len()))
}

/// A row's key in a message.
struct RowText<'a>(&'a [u8]);

impl std::fmt::Debug for RowText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        String::from_utf8_lossy(self.0).fmt(f)
    }
}
