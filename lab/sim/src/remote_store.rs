//! Connects a process to the store: every operation is a request to the server, and may fail.
//!
//! A read without an answer has failed. A mutation without an answer may have been applied, or
//! may still be applied later.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{
    CommitRow, CommitRows, ConditionalMutation, Error, Family, Glance, Glanced, Limits, Page,
    PageLimit, Result, Row, RowKey, RowMutation, RowRange, RowsOutcome, Selection, Store, Table,
    TableSchema, Timestamp,
};
use bytes::Bytes;
use futures::future::join_all;
use percolator_core::async_trait;

use crate::codec::{RowPart, RowRead, StoreReply, StoreRequest, decode, encode};
use crate::executor::ProcessId;
use crate::failures::{unavailable, unknown};
use crate::gathered::Gathers;
use crate::store::StoreServer;
use crate::tally::Tally;
use crate::transport::{Server, Transport};

/// The store as one process reaches it.
#[derive(Clone)]
pub(crate) struct RemoteStore {
    pub(crate) process: ProcessId,
    pub(crate) transport: Transport,
    pub(crate) server: Arc<StoreServer>,
    pub(crate) endpoint: Arc<dyn Server>,
    pub(crate) timeout: Duration,
    pub(crate) splits_batches: bool,
    pub(crate) one_step: bool,
    /// Whether the process can `glance` at the store, as if it were in the same process.
    pub(crate) glances: bool,
    /// The queues in which conditional mutations and reads wait to share a message, if they do.
    pub(crate) gathers: Option<Arc<Gathers>>,
    pub(crate) tally: Arc<Tally>,
}

shown_by_name!(RemoteStore);

impl RemoteStore {
    async fn call(&self, request: &StoreRequest) -> Option<Result<StoreReply>> {
        let to = (self.server.process, &self.endpoint);
        let bytes = self.transport.call(self.process, to, encode(request), self.timeout).await?;
        Some(match decode(bytes).expect("what the store encodes decodes") {
            StoreReply::Failed(error) => Err(error),
            reply => Ok(reply),
        })
    }

    async fn read(&self, request: StoreRequest) -> Result<StoreReply> {
        self.call(&request).await.unwrap_or_else(|| Err(unavailable("no answer")))
    }

    async fn mutate(&self, request: StoreRequest) -> Result<StoreReply> {
        self.call(&request).await.unwrap_or_else(|| Err(unknown()))
    }

    /// Sends reads of single rows in one request.
    pub(crate) async fn read_many(&self, table: &Bytes, reads: Vec<RowRead>) -> Vec<Result<Row>> {
        let count = reads.len();
        let failed = |error: Error| (0..count).map(|_| Err(error.clone())).collect();
        match self.read(StoreRequest::ReadMany(table.clone(), reads)).await {
            Ok(StoreReply::Rows(rows)) => rows,
            Ok(_) => failed(misdirected()),
            Err(error) => failed(error),
        }
    }

    /// Sends conditional mutations in one request.
    pub(crate) async fn check_many(
        &self,
        table: &Bytes,
        requests: Vec<ConditionalMutation>,
    ) -> Vec<Result<bool>> {
        let count = requests.len();
        match self.mutate(StoreRequest::CheckMany(table.clone(), requests)).await {
            Ok(StoreReply::CheckedMany(results)) => results,
            Ok(_) => vec![Err(misdirected()); count],
            Err(error) => vec![Err(error); count],
        }
    }
}

#[async_trait]
impl Store for RemoteStore {
    async fn open_table(&self, name: &str, schema: &TableSchema) -> Result<Arc<dyn Table>> {
        let bytes = self.server.open_table(name, schema).await?;
        Ok(Arc::new(RemoteTable { name: name.to_owned(), bytes, store: self.clone() }))
    }

    async fn table_names(&self) -> Result<Vec<String>> {
        self.server.inner().table_names().await
    }

    fn limits(&self) -> Limits {
        self.server.inner().limits()
    }

    fn floor(&self) -> Timestamp {
        self.server.inner().floor()
    }

    async fn raise_floor(&self, floor: Timestamp) -> Result<()> {
        if self.request_life_max().is_some() {
            return self.server.inner().raise_floor(floor).await;
        }
        self.mutate(StoreRequest::RaiseFloor(floor)).await.map(drop)
    }

    fn commits_rows(&self) -> bool {
        self.one_step
    }

    /// Half of the stores that commit in one step say so, because workers then follow hints in
    /// another way.
    fn shares_syncs(&self) -> bool {
        self.one_step && self.splits_batches
    }

    async fn commit_rows(&self, request: CommitRows) -> Result<RowsOutcome> {
        let part = |row: CommitRow| RowPart {
            table: Bytes::copy_from_slice(row.table.as_bytes()),
            request: ConditionalMutation {
                predicate: row.predicate,
                ..ConditionalMutation::new(row.row)
            },
        };
        let number = self.server.expect(request.at);
        let rows = request.rows.into_iter().map(part).collect();
        let request = StoreRequest::CommitRows(number, request.above, rows);
        match self.mutate(request).await? {
            StoreReply::Committed(commit_ts) => Ok(RowsOutcome::Committed(commit_ts)),
            StoreReply::Rejected(row) => Ok(RowsOutcome::Rejected { row: row as usize }),
            StoreReply::NoTimestamp => Ok(RowsOutcome::NoTimestamp),
            _ => Err(misdirected()),
        }
    }

    fn request_life_max(&self) -> Option<Duration> {
        let waits = self.gathers.as_ref().map_or(Duration::ZERO, |gathers| gathers.life());
        Some(self.server.inner().request_life_max()? + waits)
    }

    fn locality_groups(&self) -> bool {
        self.server.inner().locality_groups()
    }
}

/// A table as one process reaches it.
#[derive(Debug)]
struct RemoteTable {
    name: String,
    bytes: Bytes,
    store: RemoteStore,
}

#[async_trait]
impl Table for RemoteTable {
    fn name(&self) -> &str {
        &self.name
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        let read = RowRead { row: row.clone(), select: select.clone() };
        if let Some(Gathers { reads, .. }) = self.store.gathers.as_deref() {
            let row = reads.send(&self.store, &self.bytes, vec![read]).await.pop();
            return row.unwrap_or_else(|| Err(misdirected()));
        }
        match self.store.read(StoreRequest::Read(self.bytes.clone(), read)).await? {
            StoreReply::Row(row) => Ok(row),
            _ => Err(misdirected()),
        }
    }

    fn glance(&self, at: Glance<'_>) -> Result<Glanced> {
        if self.store.glances {
            self.store.server.glance(&self.bytes, at)
        } else {
            Ok(Glanced::Nothing)
        }
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        let request = StoreRequest::Scan(self.bytes.clone(), range.clone(), select.clone(), limit);
        match self.store.read(request).await? {
            StoreReply::Page(page) => Ok(page),
            _ => Err(misdirected()),
        }
    }

    /// A store in the client's own process merges at any moment. Here it does so at once.
    fn drop_superseded(&self, family: &Family, up_to: Timestamp, keep: fn(&[u8]) -> bool) -> bool {
        self.store.server.table(&self.bytes).drop_superseded(family, up_to, keep)
    }

    async fn mutate_row(&self, request: RowMutation) -> Result<()> {
        let request = StoreRequest::Mutate(self.bytes.clone(), request);
        self.store.mutate(request).await.map(drop)
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        if let Some(Gathers { mutations, .. }) = self.store.gathers.as_deref() {
            let result = mutations.send(&self.store, &self.bytes, vec![request]).await.pop();
            return result.unwrap_or_else(|| Err(misdirected()));
        }
        match self.store.mutate(StoreRequest::Check(self.bytes.clone(), request)).await? {
            StoreReply::Checked(matched) => Ok(matched),
            _ => Err(misdirected()),
        }
    }

    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        if let Some(Gathers { mutations, .. }) = self.store.gathers.as_deref() {
            return mutations.send(&self.store, &self.bytes, requests).await;
        }
        if self.store.splits_batches || requests.len() < 2 {
            let each = requests.into_iter().map(|request| self.check_and_mutate_row(request));
            return join_all(each).await;
        }
        self.store.check_many(&self.bytes, requests).await
    }

    async fn tablets(&self) -> Result<Vec<RowRange>> {
        match self.store.read(StoreRequest::Tablets(self.bytes.clone())).await? {
            StoreReply::Tablets(tablets) => Ok(tablets),
            _ => Err(misdirected()),
        }
    }
}

fn misdirected() -> Error {
    Error::invalid("the reply answers another request")
}
