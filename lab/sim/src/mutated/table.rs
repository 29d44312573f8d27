//! Wraps the store and its tables, so that a client reaches them without the defence.

use std::sync::Arc;

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::mutants::off;
use bigtable::{
    CommitRows, ConditionalMutation, Error, Glance, Glanced, Page, PageLimit, Result, Row, RowKey,
    RowRange, RowsOutcome, Selection, Store, Table,
};

use super::ahead::Phases;
use super::list::{SCANS_ONE_TABLET, UNKNOWN_STEP_MEANS_ABORTED};
use super::requests::{conditional, one_step, page, reads_wrongly, selection};

/// The store without the defence.
#[derive(Debug)]
pub(super) struct MutatedStore {
    pub(super) inner: Arc<dyn Store>,
    pub(super) phases: Arc<Phases>,
}

/// Changes the answer to a one-step commit.
fn heard(outcome: Result<RowsOutcome>) -> Result<RowsOutcome> {
    match outcome {
        // The unknown outcome is reported as a definite refusal.
        Err(Error::Unknown { why }) if off(UNKNOWN_STEP_MEANS_ABORTED) => {
            Err(Error::InvalidRequest(why))
        }
        outcome => outcome,
    }
}

impl StoreLayer for MutatedStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn table(&self, inner: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(MutatedTable { inner, phases: self.phases.clone() })
    }

    async fn commit_rows(&self, request: CommitRows) -> Result<RowsOutcome> {
        heard(self.inner.commit_rows(one_step(request)).await)
    }

    fn try_commit_rows(
        &self,
        request: CommitRows,
    ) -> std::result::Result<Result<RowsOutcome>, CommitRows> {
        self.inner.try_commit_rows(one_step(request)).map(heard)
    }
}

/// A table without the defence.
#[derive(Debug)]
struct MutatedTable {
    inner: Arc<dyn Table>,
    phases: Arc<Phases>,
}

impl TableLayer for MutatedTable {
    fn inner(&self) -> &dyn Table {
        &*self.inner
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        self.phases.passes();
        self.inner.read_row(row, &selection(select)).await
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        self.phases.passes();
        self.inner.read_rows(rows, &selection(select)).await
    }

    fn glance(&self, at: Glance<'_>) -> Result<Glanced> {
        if reads_wrongly() { Ok(Glanced::Nothing) } else { self.inner.glance(at) }
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        self.phases.passes();
        let found = self.inner.scan(range, &selection(select), limit).await?;
        Ok(page(select, found))
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        let sent = self.phases.sends(&request).await;
        let result = self.inner.check_and_mutate_row(conditional(request)).await;
        self.phases.answered(sent, &result);
        result
    }

    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        let mut sent = Vec::new();
        for request in &requests {
            sent.push(self.phases.sends(request).await);
        }
        let requests = requests.into_iter().map(conditional).collect();
        let results = self.inner.check_and_mutate_rows(requests).await;
        sent.into_iter().zip(&results).for_each(|(sent, found)| self.phases.answered(sent, found));
        results
    }

    async fn tablets(&self) -> Result<Vec<RowRange>> {
        let mut tablets = self.inner.tablets().await?;
        if off(SCANS_ONE_TABLET) {
            tablets.sort_by_key(|tablet| format!("{tablet:?}"));
            tablets.truncate(1);
        }
        Ok(tablets)
    }
}
