//! Lets a store or a table wrap another one, and change only some of its methods.
//!
//! A wrapper names the wrapped value and overrides methods. Every other method goes to the
//! wrapped value, including those with a default in [`Store`] and [`Table`]. A wrapper that
//! forwards by hand can miss one of these. It then hides a capability of the store, and no
//! compiler reports that.
//!
//! The opposite mistake is as easy. Several methods do the same work, so override all methods
//! of a group:
//! * [`check_and_mutate_row`](TableLayer::check_and_mutate_row) and
//!   [`check_and_mutate_rows`](TableLayer::check_and_mutate_rows)
//! * [`read_row`](TableLayer::read_row), [`read_rows`](TableLayer::read_rows) and
//!   [`glance`](TableLayer::glance)

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    CommitRows, ConditionalMutation, Family, Glance, Glanced, Limits, Page, PageLimit, Result, Row,
    RowKey, RowMutation, RowRange, RowsOutcome, Selection, Store, StoreId, Table, TableSchema,
    Timestamp,
};

/// A [`Store`] that wraps another one.
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
    /// The wrapped store.
    fn inner(&self) -> &dyn Store;

    /// Carries out a request to the wrapped store. The default changes nothing.
    fn through<T: Send>(
        &self,
        request: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send {
        request
    }

    /// Returns the table to give to callers for an opened one. The default returns it
    /// unchanged.
    fn table(&self, table: Arc<dyn Table>) -> Arc<dyn Table> {
        table
    }

    /// Like [`Store::open_table`]; the result passes through [`table`](StoreLayer::table).
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

    /// See [`Store::table_names`].
    fn table_names(&self) -> impl Future<Output = Result<Vec<String>>> + Send {
        self.through(self.inner().table_names())
    }

    /// See [`Store::floor`].
    fn floor(&self) -> Timestamp {
        self.inner().floor()
    }

    /// See [`Store::raise_floor`].
    fn raise_floor(&self, floor: Timestamp) -> impl Future<Output = Result<()>> + Send {
        self.through(self.inner().raise_floor(floor))
    }

    /// See [`Store::sync`].
    fn sync(&self) -> impl Future<Output = Result<()>> + Send {
        self.through(self.inner().sync())
    }

    /// See [`Store::reclaim`].
    fn reclaim(&self) -> impl Future<Output = Result<()>> + Send {
        self.through(self.inner().reclaim())
    }

    /// See [`Store::commits_rows`].
    fn commits_rows(&self) -> bool {
        self.inner().commits_rows()
    }

    /// See [`Store::commit_rows`].
    fn commit_rows(&self, request: CommitRows) -> impl Future<Output = Result<RowsOutcome>> + Send {
        self.through(self.inner().commit_rows(request))
    }

    /// See [`Store::try_commit_rows`]. If you override
    /// [`commit_rows`](StoreLayer::commit_rows), also override this method, for example to
    /// return the request.
    fn try_commit_rows(
        &self,
        request: CommitRows,
    ) -> std::result::Result<Result<RowsOutcome>, CommitRows> {
        self.inner().try_commit_rows(request)
    }

    /// See [`Store::shares_syncs`].
    fn shares_syncs(&self) -> bool {
        self.inner().shares_syncs()
    }

    /// See [`Store::locality_groups`].
    fn locality_groups(&self) -> bool {
        self.inner().locality_groups()
    }

    /// See [`Store::id`].
    fn id(&self) -> Option<StoreId> {
        self.inner().id()
    }

    /// See [`Store::request_life_max`].
    fn request_life_max(&self) -> Option<Duration> {
        self.inner().request_life_max()
    }

    /// See [`Store::limits`].
    fn limits(&self) -> Limits {
        self.inner().limits()
    }

    /// See [`Store::pressure`].
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

    fn shares_syncs(&self) -> bool {
        StoreLayer::shares_syncs(self)
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

/// A [`Table`] that wraps another one.
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
    /// The wrapped table.
    fn inner(&self) -> &dyn Table;

    /// Carries out a request to the wrapped table. The default changes nothing.
    fn through<T: Send>(
        &self,
        request: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send {
        request
    }

    /// See [`Table::name`].
    fn name(&self) -> &str {
        self.inner().name()
    }

    /// See [`Table::read_row`].
    fn read_row(
        &self,
        row: &RowKey,
        select: &Selection,
    ) -> impl Future<Output = Result<Row>> + Send {
        async move { self.through(self.inner().read_row(row, select)).await }
    }

    /// See [`Table::glance`].
    fn glance(&self, at: Glance<'_>) -> Result<Glanced> {
        self.inner().glance(at)
    }

    /// See [`Table::read_rows`].
    fn read_rows(
        &self,
        rows: &[RowKey],
        select: &Selection,
    ) -> impl Future<Output = Result<Vec<Row>>> + Send {
        async move { self.through(self.inner().read_rows(rows, select)).await }
    }

    /// See [`Table::scan`].
    fn scan(
        &self,
        range: &RowRange,
        select: &Selection,
        limit: PageLimit,
    ) -> impl Future<Output = Result<Page>> + Send {
        async move { self.through(self.inner().scan(range, select, limit)).await }
    }

    /// See [`Table::mutate_row`].
    fn mutate_row(&self, request: RowMutation) -> impl Future<Output = Result<()>> + Send {
        self.through(self.inner().mutate_row(request))
    }

    /// See [`Table::check_and_mutate_row`].
    fn check_and_mutate_row(
        &self,
        request: ConditionalMutation,
    ) -> impl Future<Output = Result<bool>> + Send {
        self.through(self.inner().check_and_mutate_row(request))
    }

    /// See [`Table::check_and_mutate_rows`].
    fn check_and_mutate_rows(
        &self,
        requests: Vec<ConditionalMutation>,
    ) -> impl Future<Output = Vec<Result<bool>>> + Send {
        self.through(self.inner().check_and_mutate_rows(requests))
    }

    /// See [`Table::drop_superseded`].
    fn drop_superseded(&self, family: &Family, up_to: Timestamp, keep: fn(&[u8]) -> bool) -> bool {
        self.inner().drop_superseded(family, up_to, keep)
    }

    /// See [`Table::tablets`].
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

    fn drop_superseded(&self, family: &Family, up_to: Timestamp, keep: fn(&[u8]) -> bool) -> bool {
        TableLayer::drop_superseded(self, family, up_to, keep)
    }

    async fn tablets(&self) -> Result<Vec<RowRange>> {
        TableLayer::tablets(self).await
    }
}

#[cfg(test)]
mod tests;
