//! Sends requests that were built beforehand, as they are: the baseline for measuring the cost
//! of everything above the API's requests.

use bigtable::{ConditionalMutation, Error, Result, RowKey, Selection};
use tonic::Status;

use super::filter;
use super::status::{of_mutation, of_read};
use super::wire::GrpcTable;
use crate::proto::data::{CheckAndMutateRowRequest, ReadRowsRequest};

/// A table's requests without the table's work, for measurements
/// (`percolator-bench micro rpc`). Sending one checks, translates, combines and repeats nothing.
///
/// ```no_run
/// # async fn example(store: bigtable_grpc::GrpcStore) -> bigtable::Result<()> {
/// use bigtable::{Family, RowKey, Selection, TimeRange};
/// let table = store.bare_table("accounts")?;
/// let newest = Selection::default().family(Family::from_static("data"), TimeRange::ALL, 1);
/// let read = table.read(&RowKey::from("Bob"), &newest)?;
/// assert_eq!(table.send_read(read).await?, 1);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct BareTable(pub(super) GrpcTable);

/// A ReadRows of one row, made by [`BareTable::read`].
#[derive(Debug)]
pub struct BareRead(ReadRowsRequest);

/// A CheckAndMutateRow, made by [`BareTable::conditional`].
#[derive(Debug)]
pub struct BareConditional(CheckAndMutateRowRequest);

impl BareTable {
    /// Builds the request that [`read_row`](bigtable::Table::read_row) sends.
    ///
    /// # Errors
    /// `InvalidRequest` for a selection of nothing: no request exists for it.
    pub fn read(&self, row: &RowKey, select: &Selection) -> Result<BareRead> {
        let reading =
            filter::of_selection(select).ok_or_else(|| Error::invalid("the selection is empty"))?;
        Ok(BareRead(self.0.read_request(GrpcTable::one(row), reading.filter, 1)))
    }

    /// Builds the request that [`check_and_mutate_row`](bigtable::Table::check_and_mutate_row)
    /// sends.
    ///
    /// # Errors
    /// The same as for [`check_and_mutate_row`](bigtable::Table::check_and_mutate_row).
    pub fn conditional(&self, request: &ConditionalMutation) -> Result<BareConditional> {
        self.0.conditional_request(request).map(BareConditional)
    }

    /// Sends a read, and returns how many chunks of cells came back.
    ///
    /// # Errors
    /// The same as for any read.
    pub async fn send_read(&self, read: BareRead) -> Result<usize> {
        let chunks = async {
            let request = self.0.channels.read_request(&self.0.routing, read.0);
            let mut stream = self.0.channels.data().read_rows(request).await?.into_inner();
            let mut chunks = 0;
            while let Some(message) = stream.message().await? {
                chunks += message.chunks.len();
            }
            Ok(chunks)
        };
        chunks.await.map_err(|status: Status| of_read(&status))
    }

    /// Sends a conditional mutation, and returns whether its predicate held.
    ///
    /// # Errors
    /// The same as for any conditional mutation.
    pub async fn send(&self, request: BareConditional) -> Result<bool> {
        let request = self.0.channels.request(&self.0.routing, request.0);
        let answer = self.0.channels.data().check_and_mutate_row(request).await;
        Ok(answer.map_err(|status| of_mutation(&status))?.into_inner().predicate_matched)
    }
}
