//! Tests the server over a real connection: with the assertions of Google's in-memory emulator,
//! with further ones, with the limits, and with Google's own clients.

mod admin;
mod collect;
mod conditions;
mod differential;
mod extension;
mod filters;
mod full;
mod node;
mod processes;
mod reads;
mod refusals;
mod silence;
mod writes;

use std::fmt;
use std::path::Path;

use bigtable_fjall::Durability;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::*;
use crate::families::{entries, sorted};
use crate::proto::admin::bigtable_table_admin_client::BigtableTableAdminClient;
use crate::proto::admin::{ColumnFamily, CreateTableRequest, Table};
use crate::proto::data::bigtable_client::BigtableClient;
use crate::proto::data::mutation::{
    DeleteFromColumn, DeleteFromFamily, DeleteFromRow, Mutation as Wire, SetCell,
};
use crate::proto::data::read_rows_response::CellChunk;
use crate::proto::data::read_rows_response::cell_chunk::RowStatus;
use crate::proto::data::row_filter::Filter as WireFilter;
use crate::proto::data::{
    MutateRowRequest, Mutation, ReadRowsRequest, RowFilter, RowSet, TimestampRange,
};

const INSTANCE: &str = "projects/p/instances/i";
const TABLE: &str = "projects/p/instances/i/tables/t";

/// A server in this process, and connections to it.
struct World {
    data: BigtableClient<Channel>,
    admin: BigtableTableAdminClient<Channel>,
    channel: Channel,
    address: String,
    /// The server's tables; `None` if it runs elsewhere.
    tables: Option<Arc<Tables>>,
    /// Stops and awaits the server; `None` if it runs elsewhere.
    served: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl World {
    /// Starts a server of the directory.
    async fn open(dir: &Path) -> World {
        let options = Options { durability: Durability::Buffered, ..Options::default() };
        let server = Server::open(dir.join("data"), options).await.expect("the store opens");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let tables = Some(server.tables.clone());
        let served = tokio::spawn(async move {
            let stop = async { stopped.await.expect("the test stops the server") };
            server.serve(listener, stop).await.expect("the server serves");
        });
        let served = Some((stop, served));
        World { served, tables, ..World::connect(&address.to_string()).await }
    }

    /// Connects to a server that runs elsewhere.
    async fn connect(address: &str) -> World {
        let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
        let channel = endpoint.connect().await.expect("the server listens");
        let data = BigtableClient::new(channel.clone()).max_decoding_message_size(4 << 20);
        let admin = BigtableTableAdminClient::new(channel.clone());
        World { data, admin, channel, address: address.to_owned(), tables: None, served: None }
    }

    /// Starts a server with a table `t` of these families.
    async fn with_table(dir: &Path, families: &[&str]) -> World {
        let mut world = World::open(dir).await;
        world.create("t", families).await.expect("the table is created");
        world
    }

    async fn create(&mut self, id: &str, families: &[&str]) -> Result<Table, Status> {
        let families = families.iter().map(|f| ((*f).to_owned(), ColumnFamily::default()));
        let table = Table { column_families: entries(families), ..Table::default() };
        let request = CreateTableRequest {
            parent: INSTANCE.to_owned(),
            table_id: id.to_owned(),
            table: Some(table),
            initial_splits: Vec::new(),
        };
        self.admin.create_table(request).await.map(tonic::Response::into_inner)
    }

    /// Stops the server, and waits for it.
    async fn stop(self) {
        let World { data, admin, channel, served, tables, .. } = self;
        drop((data, admin, channel, tables));
        let (stop, served) = served.expect("the server is in this process");
        let _ = stop.send(());
        served.await.expect("the server ends");
    }

    async fn mutate(&mut self, row: &str, mutations: Vec<Mutation>) -> Result<(), Status> {
        let request = MutateRowRequest {
            table_name: TABLE.to_owned(),
            row_key: row.to_owned().into(),
            mutations,
            ..MutateRowRequest::default()
        };
        self.data.mutate_row(request).await.map(|_| ())
    }

    async fn set(&mut self, row: &str, column: &str, micros: i64, value: &str) {
        self.mutate(row, vec![set(column, micros, value)]).await.expect("the cell is set");
    }

    /// The cells that a read returns, as `row/family:qualifier@micros=value`.
    async fn read(&mut self, request: ReadRowsRequest) -> Result<Vec<String>, Status> {
        let chunks = self.chunks(request).await?;
        Ok(show(&chunks))
    }

    async fn chunks(&mut self, request: ReadRowsRequest) -> Result<Vec<CellChunk>, Status> {
        let request = ReadRowsRequest { table_name: TABLE.to_owned(), ..request };
        let mut stream = self.data.read_rows(request).await?.into_inner();
        let mut chunks = Vec::new();
        while let Some(message) = stream.message().await? {
            chunks.extend(message.chunks);
        }
        Ok(chunks)
    }

    /// The cells of all rows that pass the filter.
    async fn filtered(&mut self, filter: RowFilter) -> Result<Vec<String>, Status> {
        self.read(ReadRowsRequest { filter: Some(filter), ..Default::default() }).await
    }

    async fn all(&mut self) -> Vec<String> {
        self.read(ReadRowsRequest::default()).await.expect("the table is read")
    }
}

/// A cell in the form that a client sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Shown {
    row: String,
    family: String,
    qualifier: String,
    micros: i64,
    labels: Vec<String>,
    value: Vec<u8>,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown { row, family, qualifier, micros, labels, value } = self;
        let labels = labels.iter().map(|label| format!("#{label}")).collect::<String>();
        let value = match value.len() {
            0..=64 => value.escape_ascii().to_string(),
            n => format!("{n} bytes"),
        };
        write!(f, "{row}/{family}:{qualifier}@{micros}{labels}={value}")
    }
}

fn show(chunks: &[CellChunk]) -> Vec<String> {
    cells(chunks).iter().map(ToString::to_string).collect()
}

/// Assembles cells from chunks, and checks the rules of the stream.
fn cells(chunks: &[CellChunk]) -> Vec<Shown> {
    let mut cells = Vec::new();
    let mut cell = Shown::default();
    let mut inside = false;
    for chunk in chunks {
        if !chunk.row_key.is_empty() {
            let row = chunk.row_key.escape_ascii().to_string();
            assert!(!inside || row == cell.row, "a row begins before the last was committed");
            cell.row = row;
            assert!(chunk.family_name.is_some(), "a row begins without a family");
        }
        inside = true;
        if let Some(name) = &chunk.family_name {
            cell.family.clone_from(name);
            assert!(chunk.qualifier.is_some(), "a family begins without a qualifier");
        }
        if let Some(name) = &chunk.qualifier {
            cell.qualifier = name.escape_ascii().to_string();
        }
        if cell.value.is_empty() {
            cell.micros = chunk.timestamp_micros;
            cell.labels.clone_from(&chunk.labels);
        }
        cell.value.extend_from_slice(&chunk.value);
        if chunk.value_size == 0 {
            cells.push(cell.clone());
            cell.value.clear();
        }
        if chunk.row_status == Some(RowStatus::CommitRow(true)) {
            inside = false;
        }
    }
    assert!(!inside, "the last row was not committed");
    cells
}

fn set(column: &str, micros: i64, value: &str) -> Mutation {
    let (family, qualifier) = column.split_once(':').expect("family:qualifier");
    mutation(Wire::SetCell(SetCell {
        family_name: family.to_owned(),
        column_qualifier: qualifier.to_owned().into(),
        timestamp_micros: micros,
        value: value.to_owned().into(),
    }))
}

fn delete_column(column: &str, range: Option<(i64, i64)>) -> Mutation {
    let (family, qualifier) = column.split_once(':').expect("family:qualifier");
    let range = range.map(|(start, end)| TimestampRange {
        start_timestamp_micros: start,
        end_timestamp_micros: end,
    });
    mutation(Wire::DeleteFromColumn(DeleteFromColumn {
        family_name: family.to_owned(),
        column_qualifier: qualifier.to_owned().into(),
        time_range: range,
    }))
}

fn delete_family(family: &str) -> Mutation {
    mutation(Wire::DeleteFromFamily(DeleteFromFamily { family_name: family.to_owned() }))
}

fn delete_row() -> Mutation {
    mutation(Wire::DeleteFromRow(DeleteFromRow {}))
}

fn mutation(mutation: Wire) -> Mutation {
    Mutation { mutation: Some(mutation) }
}

fn filter(filter: WireFilter) -> RowFilter {
    RowFilter { filter: Some(filter) }
}

fn keys(keys: &[&str]) -> Option<RowSet> {
    let row_keys = keys.iter().map(|key| (*key).to_owned().into()).collect();
    Some(RowSet { row_keys, row_ranges: Vec::new() })
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code) -> String {
    match result {
        Err(status) if status.code() == code => status.message().to_owned(),
        other => panic!("expected {code:?}, got {other:?}"),
    }
}
