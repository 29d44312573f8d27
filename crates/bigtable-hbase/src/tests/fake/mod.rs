//! A cluster of HBase in this process: one server that is registry, master and region server.
//!
//! It has the parts of the protocol that this crate uses. Every table has two regions. A test can
//! lose an answer, or hold a request back and let the server apply it later.

mod rows;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use bigtable::sync::locked;
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::proto::{
    ActiveMasterResponse, Cell, CellsOfRow, ClusterStatus, ClusterStatusResponse,
    CompactRegionRequest, CreateTableRequest, ExceptionResponse, GetTableDescriptorsRequest,
    GetTableDescriptorsResponse, GetTableNamesRequest, GetTableNamesResponse,
    MetaLocationsResponse, MultiRequest, MultiResponse, Nothing, ProcedureResponse, RegionAction,
    RegionInfo, RegionInfoResponse, RegionLocation, RequestHeader, ResponseHeader, ScanRequest,
    ScanResponse, ServerName, TableName, TableSchema, Version,
};
use crate::{HbaseOptions, HbaseStore};
use rows::Rows;

/// The first row of each table's second region.
const SPLIT: &[u8] = b"b";
const META: &[u8] = b"hbase:meta,,1";

/// The fate of the next request that changes a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection breaks before the request is applied. [`Fake::release`] applies it.
    Held,
    /// The server never answers, and does not apply the request.
    Silent,
    /// The server applies the request, and the connection breaks before the answer.
    AnswerLost,
    /// The same, and then another client changes the row.
    AnswerLostAndRowChanged,
    /// The server refuses the request with an exception of this class.
    Refused(&'static str),
}

/// A running fake cluster.
#[derive(Debug)]
pub(super) struct Fake {
    state: Arc<State>,
    serving: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    port: u16,
    version: Mutex<String>,
    tables: Mutex<BTreeMap<Bytes, TableSchema>>,
    rows: Mutex<Rows>,
    faults: Mutex<VecDeque<Fault>>,
    held: Mutex<Vec<RegionAction>>,
    /// Copies of requests which change rows.
    changes: Mutex<u32>,
    /// The families of the compactions that were asked for.
    compactions: Mutex<Vec<String>>,
}

/// The reply to one call.
enum Reply {
    Message(Vec<u8>),
    Exception(&'static str),
    Silence,
    BrokenConnection,
}

impl Fake {
    pub(super) async fn start() -> Self {
        Fake::start_with(None).await
    }

    /// Starts a cluster whose server speaks TLS, if it gets an acceptor.
    pub(super) async fn start_with(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(State {
            port,
            version: Mutex::new("2.6.1".to_owned()),
            tables: Mutex::default(),
            rows: Mutex::default(),
            faults: Mutex::default(),
            held: Mutex::default(),
            changes: Mutex::default(),
            compactions: Mutex::default(),
        });
        let accepting = state.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, tls) = (accepting.clone(), tls.clone());
                tokio::spawn(async move {
                    stream.set_nodelay(true)?;
                    match tls {
                        Some(tls) => serve(tls.accept(stream).await?, state).await,
                        None => serve(stream, state).await,
                    }
                });
            }
        });
        Fake { state, serving }
    }

    /// The address of the server.
    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.state.port)
    }

    /// A store in this cluster, with options such as `deadline=1s`.
    pub(super) async fn store(&self, options: &str) -> HbaseStore {
        self.connect(options).await.expect("a connection to the fake cluster")
    }

    pub(super) async fn connect(&self, options: &str) -> bigtable::Result<HbaseStore> {
        self.connect_with(options, HbaseOptions::default()).await
    }

    pub(super) async fn connect_with(
        &self,
        options: &str,
        others: HbaseOptions,
    ) -> bigtable::Result<HbaseStore> {
        let address = format!("hbase://127.0.0.1:{}/fake?{options}", self.state.port);
        HbaseStore::connect(&address.parse().expect("an address"), others).await
    }

    /// Makes this a cluster of another version of HBase.
    pub(super) fn is_of_version(&self, version: &str) {
        version.clone_into(&mut locked(&self.state.version));
    }

    /// Sets the fates of the next requests that change rows.
    pub(super) fn next(&self, faults: &[Fault]) {
        locked(&self.state.faults).extend(faults);
    }

    /// Applies the requests that were held back.
    pub(super) fn release(&self) {
        let held = std::mem::take(&mut *locked(&self.state.held));
        assert!(!held.is_empty(), "no request was held back");
        for request in held {
            let (table, _) = region_of(&request.region.value);
            locked(&self.state.rows).act(&table, &request);
        }
    }

    /// How many requests that change rows have arrived, copies included.
    pub(super) fn changes(&self) -> u32 {
        *locked(&self.state.changes)
    }

    /// The families of which a compaction in a region was asked for, since the last call.
    pub(super) fn compactions(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.state.compactions))
    }

    /// The rows that have a guard.
    pub(super) fn guarded(&self) -> Vec<String> {
        locked(&self.state.rows).guarded()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    state: Arc<State>,
) -> std::io::Result<()> {
    let mut hello = [0; 6];
    stream.read_exact(&mut hello).await?;
    if !hello.starts_with(b"HBas") {
        return refuse_protocol(stream).await;
    }
    assert_eq!(&hello, b"HBas\x00\x50", "the client's first bytes");
    read(&mut stream).await?;
    loop {
        let mut body = read(&mut stream).await?;
        let header = RequestHeader::decode_length_delimited(&mut body).expect("a header");
        let mut answer = ResponseHeader { call_id: header.call_id, exception: None };
        let message = match state.answer(&header.method_name, body) {
            Reply::Message(message) => message,
            Reply::Exception(class) => {
                answer.exception = Some(ExceptionResponse {
                    exception_class_name: Some(format!("org.apache.hadoop.hbase.{class}")),
                    ..ExceptionResponse::default()
                });
                Vec::new()
            }
            Reply::Silence => continue,
            Reply::BrokenConnection => return Ok(()),
        };
        stream.write_all(&frame(&answer, &message)).await?;
        stream.flush().await?;
    }
}

/// Answers a client of another protocol as HBase does, and waits until it closes.
async fn refuse_protocol(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    let class = "org.apache.hadoop.hbase.ipc.FatalConnectionException".to_owned();
    let exception =
        ExceptionResponse { exception_class_name: Some(class), ..ExceptionResponse::default() };
    let answer = ResponseHeader { call_id: u32::MAX, exception: Some(exception) };
    stream.write_all(&frame(&answer, &[])).await?;
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.map(drop)
}

fn frame(header: &ResponseHeader, message: &[u8]) -> BytesMut {
    let header = header.encode_length_delimited_to_vec();
    let mut frame = BytesMut::new();
    frame.put_u32((header.len() + message.len()) as u32);
    frame.extend(header);
    frame.extend(message);
    frame
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Bytes> {
    let mut body = vec![0; stream.read_u32().await? as usize];
    stream.read_exact(&mut body).await?;
    Ok(body.into())
}

fn message(message: &impl Message) -> Reply {
    Reply::Message(message.encode_length_delimited_to_vec())
}

fn decode<M: Message + Default>(body: Bytes) -> M {
    M::decode_length_delimited(body).expect("a message of the method")
}

/// The table's name in `hbase:meta`.
fn id_of(name: &TableName) -> Bytes {
    [&name.namespace[..], b":", &name.qualifier].concat().into()
}

/// The table and the first row that a region's name contains.
fn region_of(name: &Bytes) -> (Bytes, Bytes) {
    let comma = name.iter().position(|byte| *byte == b',').expect("a region's name");
    let last = name.iter().rposition(|byte| *byte == b',').expect("a region's name");
    (name.slice(..comma), name.slice(comma + 1..last))
}

impl State {
    fn answer(&self, method: &str, body: Bytes) -> Reply {
        let server = || ServerName {
            host_name: "127.0.0.1".to_owned(),
            port: Some(self.port.into()),
            start_code: Some(1),
        };
        match method {
            "GetActiveMaster" => message(&ActiveMasterResponse { server_name: Some(server()) }),
            "GetClusterStatus" => message(&ClusterStatusResponse {
                cluster_status: ClusterStatus {
                    hbase_version: Some(Version { version: locked(&self.version).clone() }),
                    ..ClusterStatus::default()
                },
            }),
            "GetMetaRegionLocations" => message(&MetaLocationsResponse {
                meta_locations: vec![RegionLocation {
                    region_info: RegionInfo::default(),
                    server_name: Some(server()),
                }],
            }),
            "CompactRegion" => {
                let family = decode::<CompactRegionRequest>(body).family.expect("a family");
                locked(&self.compactions).push(String::from_utf8_lossy(&family).into_owned());
                message(&Nothing {})
            }
            "GetNamespaceDescriptor" | "FlushRegion" => message(&Nothing {}),
            "GetRegionInfo" => message(&RegionInfoResponse::default()),
            "GetTableDescriptors" => {
                let asked: GetTableDescriptorsRequest = decode(body);
                let tables = locked(&self.tables);
                let found = asked.table_names.iter().filter_map(|name| tables.get(&id_of(name)));
                let table_schema = found.cloned().collect();
                message(&GetTableDescriptorsResponse { table_schema })
            }
            "GetTableNames" => {
                let namespace = decode::<GetTableNamesRequest>(body).namespace;
                let tables = locked(&self.tables);
                let names = tables.values().filter_map(|table| table.table_name.clone());
                let table_names = names.filter(|name| {
                    namespace.as_ref().is_none_or(|asked| name.namespace == asked.as_bytes())
                });
                message(&GetTableNamesResponse { table_names: table_names.collect() })
            }
            "CreateTable" => {
                let table = decode::<CreateTableRequest>(body).table_schema;
                let id = id_of(table.table_name.as_ref().expect("a name"));
                locked(&self.tables).entry(id).or_insert(table);
                message(&ProcedureResponse { proc_id: None })
            }
            "Scan" => self.scan(decode(body)),
            "Multi" => self.multi(&decode(body)),
            other => panic!("the client called {other}"),
        }
    }

    fn multi(&self, request: &MultiRequest) -> Reply {
        let [action] = &request.region_action[..] else {
            panic!("the client sent actions of {} regions", request.region_action.len())
        };
        let (table, start) = region_of(&action.region.value);
        let rows = action.action.iter().flat_map(|action| {
            let row = action.mutation.as_ref().and_then(|mutation| mutation.row.as_ref());
            row.into_iter().chain(action.get.as_ref().map(|get| &get.row))
        });
        if !rows.into_iter().all(|row| (row[..] < *SPLIT) == start.is_empty()) {
            return Reply::Exception("NotServingRegionException");
        }
        let changes = action.action.iter().any(|action| action.mutation.is_some());
        *locked(&self.changes) += u32::from(changes);
        let fault = if changes { locked(&self.faults).pop_front() } else { None };
        match fault {
            Some(Fault::Held) => {
                locked(&self.held).push(action.clone());
                return Reply::BrokenConnection;
            }
            Some(Fault::Silent) => return Reply::Silence,
            Some(Fault::Refused(class)) => return Reply::Exception(class),
            Some(Fault::AnswerLost | Fault::AnswerLostAndRowChanged) | None => {}
        }
        let mut rows = locked(&self.rows);
        let result = rows.act(&table, action);
        if fault == Some(Fault::AnswerLostAndRowChanged) {
            rows.change_all_guards();
        }
        if fault.is_some() {
            return Reply::BrokenConnection;
        }
        message(&MultiResponse { region_action_result: vec![result] })
    }

    fn scan(&self, request: ScanRequest) -> Reply {
        // A scanner is closed with its first answer, so nothing is left to close.
        let (Some(region), Some(scan)) = (request.region, request.scan) else {
            return message(&ScanResponse::default());
        };
        let rows_max = request.limit_of_rows.or(request.number_of_rows).unwrap_or(u32::MAX);
        if region.value == META {
            return self.scan_meta(&scan);
        }
        let (table, _) = region_of(&region.value);
        let rows = locked(&self.rows);
        let mut found = rows.scan(&table, &scan);
        let page = found.by_ref().take(rows_max as usize);
        let results = page.map(|cell| CellsOfRow { cell, partial: None }).collect();
        let more = found.next().is_some();
        message(&ScanResponse {
            results,
            more_results: Some(!more),
            more_results_in_region: Some(more),
            ..ScanResponse::default()
        })
    }

    /// Answers a search for the region of a row, or for all regions of a table.
    fn scan_meta(&self, scan: &crate::proto::Scan) -> Reply {
        let start = scan.start_row.clone().unwrap_or_default();
        let (table, row) = region_of(&start);
        let tables = locked(&self.tables);
        let regions: &[(&[u8], &[u8])] = match scan.reversed {
            _ if !tables.contains_key(&table) => &[],
            Some(true) if row[..] < *SPLIT => &[(b"", SPLIT)],
            Some(true) => &[(SPLIT, b"")],
            _ => &[(b"", SPLIT), (SPLIT, b"")],
        };
        let results = regions.iter().map(|(start, end)| {
            let row = Bytes::from([&table[..], b",", start, b",1"].concat());
            let info = RegionInfo {
                region_id: 1,
                start_key: Some(Bytes::copy_from_slice(start)),
                end_key: Some(Bytes::copy_from_slice(end)),
                ..RegionInfo::default()
            };
            let cell = |qualifier: &'static str, value: Vec<u8>| Cell {
                row: row.clone(),
                family: Bytes::from_static(b"info"),
                qualifier: Bytes::from_static(qualifier.as_bytes()),
                timestamp: 1,
                value: value.into(),
            };
            let info = [b"PBUF".to_vec(), info.encode_to_vec()].concat();
            let server = format!("127.0.0.1:{}", self.port).into_bytes();
            CellsOfRow {
                cell: vec![cell("regioninfo", info), cell("server", server)],
                partial: None,
            }
        });
        message(&ScanResponse {
            results: results.collect(),
            more_results_in_region: Some(false),
            ..ScanResponse::default()
        })
    }
}
