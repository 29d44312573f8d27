//! Stores and tables that stand before others, and change some of what these do.
//!
//! A wrapper says what lies beneath it and names the methods that it changes. Every other method
//! goes to what lies beneath, those that have a default in [`Store`] and [`Table`] included. A
//! wrapper that forwards by hand and misses one of these takes a capability away from the store,
//! and no compiler says so.
//!
//! The reverse is as easy to miss: who changes
//! [`check_and_mutate_row`](TableLayer::check_and_mutate_row) and means all conditional mutations
//! changes [`check_and_mutate_rows`](TableLayer::check_and_mutate_rows) as well, and so with
//! [`read_row`](TableLayer::read_row), [`read_rows`](TableLayer::read_rows) and
//! [`glance`](TableLayer::glance).

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    CommitRows, ConditionalMutation, Glance, Glanced, Limits, Page, PageLimit, Result, Row, RowKey,
    RowMutation, RowRange, RowsOutcome, Selection, Store, StoreId, Table, TableSchema, Timestamp,
};

/// A [`Store`] before another one.
///
/// ```
/// use bigtable::layer::StoreLayer;
/// use bigtable::{MemoryStore, Store};
///
/// /// A store that says it changes single rows only.
/// #[derive(Debug)]
/// struct Rows(MemoryStore);
///
/// impl StoreLayer for Rows {
///     fn inner(&self) -> &dyn Store {
///         &self.0
///     }
///
///     fn commits_rows(&self) -> bool {
///         false
///     }
/// }
///
/// let store: &dyn Store = &Rows(MemoryStore::without_locality_groups());
/// assert!(!store.commits_rows());
/// assert!(!store.locality_groups(), "all else is as beneath");
/// ```
pub trait StoreLayer: Send + Sync + Debug {
    /// The store beneath.
    fn inner(&self) -> &dyn Store;

    /// How a request to the store beneath is carried out: as it is.
    fn through<T: Send>(
        &self,
        request: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send {
        request
    }

    /// The table that callers get for an open one: that table itself.
    fn table(&self, table: Arc<dyn Table>) -> Arc<dyn Table> {
        table
    }

    /// As [`Store::open_table`]; the table is what [`table`](StoreLayer::table) makes of it.
    fn open_table(
        &self,
        name: &str,
        schema: &TableSchema,
    ) -> impl Future<Output = Result<Arc<dyn Table>>> + Send {
        async move {
            let opened = self.through(self.inner().open_table(name, schema)).await?;
            Ok(self.table(opened))
        }
    }

    /// As [`Store::table_names`].
    fn table_names(&self) -> impl Future<Output = Result<Vec<String>>> + Send {
        self.through(self.inner().table_names())
    }

    /// As [`Store::floor`].
    fn floor(&self) -> Timestamp {
        self.inner().floor()
    }

    /// As [`Store::raise_floor`].
    fn raise_floor(&self, floor: Timestamp) -> impl Future<Output = Result<()>> + Send {
        self.through(self.inner().raise_floor(floor))
    }

    /// As [`Store::sync`].
    fn sync(&self) -> impl Future<Output = Result<()>> + Send {
        self.through(self.inner().sync())
    }

    /// As [`Store::reclaim`].
    fn reclaim(&self) -> impl Future<Output = Result<()>> + Send {
        self.through(self.inner().reclaim())
    }

    /// As [`Store::commits_rows`].
    fn commits_rows(&self) -> bool {
        self.inner().commits_rows()
    }

    /// As [`Store::commit_rows`].
    fn commit_rows(&self, request: CommitRows) -> impl Future<Output = Result<RowsOutcome>> + Send {
        self.through(self.inner().commit_rows(request))
    }

    /// As [`Store::try_commit_rows`]. Who changes [`commit_rows`](StoreLayer::commit_rows) gives
    /// the request back here, or changes this as well.
    fn try_commit_rows(
        &self,
        request: CommitRows,
    ) -> std::result::Result<Result<RowsOutcome>, CommitRows> {
        self.inner().try_commit_rows(request)
    }

    /// As [`Store::locality_groups`].
    fn locality_groups(&self) -> bool {
        self.inner().locality_groups()
    }

    /// As [`Store::id`].
    fn id(&self) -> Option<StoreId> {
        self.inner().id()
    }

    /// As [`Store::request_life_max`].
    fn request_life_max(&self) -> Option<Duration> {
        self.inner().request_life_max()
    }

    /// As [`Store::limits`].
    fn limits(&self) -> Limits {
        self.inner().limits()
    }

    /// As [`Store::pressure`].
    fn pressure(&self) -> f64 {
        self.inner().pressure()
    }
}

#[async_trait]
impl<L: StoreLayer> Store for L {
    async fn open_table(&self, name: &str, schema: &TableSchema) -> Result<Arc<dyn Table>> {
        StoreLayer::open_table(self, name, schema).await
    }

    async fn table_names(&self) -> Result<Vec<String>> {
        StoreLayer::table_names(self).await
    }

    fn floor(&self) -> Timestamp {
        StoreLayer::floor(self)
    }

    async fn raise_floor(&self, floor: Timestamp) -> Result<()> {
        StoreLayer::raise_floor(self, floor).await
    }

    async fn sync(&self) -> Result<()> {
        StoreLayer::sync(self).await
    }

    async fn reclaim(&self) -> Result<()> {
        StoreLayer::reclaim(self).await
    }

    fn commits_rows(&self) -> bool {
        StoreLayer::commits_rows(self)
    }

    async fn commit_rows(&self, request: CommitRows) -> Result<RowsOutcome> {
        StoreLayer::commit_rows(self, request).await
    }

    fn try_commit_rows(
        &self,
        request: CommitRows,
    ) -> std::result::Result<Result<RowsOutcome>, CommitRows> {
        StoreLayer::try_commit_rows(self, request)
    }

    fn locality_groups(&self) -> bool {
        StoreLayer::locality_groups(self)
    }

    fn id(&self) -> Option<StoreId> {
        StoreLayer::id(self)
    }

    fn request_life_max(&self) -> Option<Duration> {
        StoreLayer::request_life_max(self)
    }

    fn limits(&self) -> Limits {
        StoreLayer::limits(self)
    }

    fn pressure(&self) -> f64 {
        StoreLayer::pressure(self)
    }
}

/// A [`Table`] before another one.
///
/// ```
/// use std::sync::Arc;
///
/// use bigtable::layer::{StoreLayer, TableLayer};
/// use bigtable::*;
///
/// /// A store whose tables take no unconditional changes.
/// #[derive(Debug)]
/// struct Strict(MemoryStore);
///
/// impl StoreLayer for Strict {
///     fn inner(&self) -> &dyn Store {
///         &self.0
///     }
///
///     fn table(&self, table: Arc<dyn Table>) -> Arc<dyn Table> {
///         Arc::new(StrictTable(table))
///     }
/// }
///
/// #[derive(Debug)]
/// struct StrictTable(Arc<dyn Table>);
///
/// impl TableLayer for StrictTable {
///     fn inner(&self) -> &dyn Table {
///         &*self.0
///     }
///
///     async fn mutate_row(&self, _: RowMutation) -> Result<()> {
///         Err(Error::InvalidRequest("give a predicate".to_owned()))
///     }
/// }
///
/// # futures::executor::block_on(async {
/// let store: &dyn Store = &Strict(MemoryStore::new());
/// let schema = TableSchema { groups: vec![LocalityGroup::on_disk("data", Layout::Versions)] };
/// let table = store.open_table("accounts", &schema).await?;
/// assert!(table.mutate_row(RowMutation::new("Bob")).await.is_err());
/// assert_eq!(table.name(), "accounts");
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
pub trait TableLayer: Send + Sync + Debug {
    /// The table beneath.
    fn inner(&self) -> &dyn Table;

    /// How a request to the table beneath is carried out: as it is.
    fn through<T: Send>(
        &self,
        request: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send {
        request
    }

    /// As [`Table::name`].
    fn name(&self) -> &str {
        self.inner().name()
    }

    /// As [`Table::read_row`].
    fn read_row(
        &self,
        row: &RowKey,
        select: &Selection,
    ) -> impl Future<Output = Result<Row>> + Send {
        async move { self.through(self.inner().read_row(row, select)).await }
    }

    /// As [`Table::glance`].
    fn glance(&self, at: Glance<'_>) -> Result<Glanced> {
        self.inner().glance(at)
    }

    /// As [`Table::read_rows`].
    fn read_rows(
        &self,
        rows: &[RowKey],
        select: &Selection,
    ) -> impl Future<Output = Result<Vec<Row>>> + Send {
        async move { self.through(self.inner().read_rows(rows, select)).await }
    }

    /// As [`Table::scan`].
    fn scan(
        &self,
        range: &RowRange,
        select: &Selection,
        limit: PageLimit,
    ) -> impl Future<Output = Result<Page>> + Send {
        async move { self.through(self.inner().scan(range, select, limit)).await }
    }

    /// As [`Table::mutate_row`].
    fn mutate_row(&self, request: RowMutation) -> impl Future<Output = Result<()>> + Send {
        self.through(self.inner().mutate_row(request))
    }

    /// As [`Table::check_and_mutate_row`].
    fn check_and_mutate_row(
        &self,
        request: ConditionalMutation,
    ) -> impl Future<Output = Result<bool>> + Send {
        self.through(self.inner().check_and_mutate_row(request))
    }

    /// As [`Table::check_and_mutate_rows`].
    fn check_and_mutate_rows(
        &self,
        requests: Vec<ConditionalMutation>,
    ) -> impl Future<Output = Vec<Result<bool>>> + Send {
        self.through(self.inner().check_and_mutate_rows(requests))
    }

    /// As [`Table::tablets`].
    fn tablets(&self) -> impl Future<Output = Result<Vec<RowRange>>> + Send {
        self.through(self.inner().tablets())
    }
}

#[async_trait]
impl<L: TableLayer> Table for L {
    fn name(&self) -> &str {
        TableLayer::name(self)
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        TableLayer::read_row(self, row, select).await
    }

    fn glance(&self, at: Glance<'_>) -> Result<Glanced> {
        TableLayer::glance(self, at)
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        TableLayer::read_rows(self, rows, select).await
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        TableLayer::scan(self, range, select, limit).await
    }

    async fn mutate_row(&self, request: RowMutation) -> Result<()> {
        TableLayer::mutate_row(self, request).await
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        TableLayer::check_and_mutate_row(self, request).await
    }

    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        TableLayer::check_and_mutate_rows(self, requests).await
    }

    async fn tablets(&self) -> Result<Vec<RowRange>> {
        TableLayer::tablets(self).await
    }
}

#[cfg(test)]
mod tests;
