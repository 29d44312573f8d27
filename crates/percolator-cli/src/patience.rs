//! Has a command outlast a restart of the table server.
//!
//! A request that the store did not apply, because no server answered, is sent again for up to
//! [`PATIENCE`]. The client of the store repeats such a request by itself, but only for a fraction
//! of a second. The following are never sent again:
//!
//! * A mutation. Its transaction begins again, or finds out what became of its commit, because it
//!   knows what else depends on the mutation.
//! * A request whose outcome is unknown.
//! * A request that a server has refused, for a certificate or for another reason.
//!
//! Each request has the whole patience, counted from its own first failure. Requests that are
//! answered meanwhile, such as those to another server, neither lengthen nor shorten it. The client
//! of the oracle has the same patience by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bigtable::TableSchema;
use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{Error, Page, PageLimit, Result, Row, RowKey, RowRange, Selection, Store, Table};

/// How long a command waits for a server that does not answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The pause before a request is sent again.
const PAUSE: Duration = Duration::from_millis(200);

/// How long each request of a command outlasts that no server answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outage {
    patience: Duration,
}

impl Outage {
    pub(crate) fn new(patience: Duration) -> Outage {
        Outage { patience }
    }

    /// Sends a request again as long as no server answers, until the patience is at its end. Then
    /// returns the last error. `unanswered` tells an error after which nothing was applied.
    pub(crate) async fn outlast<T, E, F>(
        &self,
        unanswered: impl Fn(&E) -> bool,
        request: impl Fn() -> F,
    ) -> Result<T, E>
    where
        E: std::fmt::Display,
        F: Future<Output = Result<T, E>>,
    {
        let mut since = None;
        loop {
            let error = match request().await {
                Err(error) if unanswered(&error) => error,
                answer => return answer,
            };
            let first = since.is_none();
            if since.get_or_insert_with(Instant::now).elapsed() >= self.patience {
                return Err(error);
            }
            if first {
                tracing::warn!(
                    target: "percolator::cluster", event = "waits", longest = ?self.patience, %error,
                    "the store does not answer: trying again"
                );
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Whether no server has answered a request, so that nothing was applied.
pub(crate) fn is_unanswered(error: &Error) -> bool {
    matches!(error, Error::Unavailable { .. })
}

/// A store whose reads outlast a restart of its server.
#[derive(Debug)]
pub(crate) struct Patient {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) outage: Outage,
}

impl StoreLayer for Patient {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn open_table(&self, name: &str, schema: &TableSchema) -> Result<Arc<dyn Table>> {
        let open = || self.store.open_table(name, schema);
        let table = self.outage.outlast(is_unanswered, open).await?;
        Ok(Arc::new(PatientTable { table, outage: self.outage }))
    }

    async fn table_names(&self) -> Result<Vec<String>> {
        self.outage.outlast(is_unanswered, || self.store.table_names()).await
    }
}

/// A table of a [`Patient`] store.
#[derive(Debug)]
struct PatientTable {
    table: Arc<dyn Table>,
    outage: Outage,
}

impl TableLayer for PatientTable {
    fn inner(&self) -> &dyn Table {
        &*self.table
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        self.outage.outlast(is_unanswered, || self.table.read_row(row, select)).await
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        self.outage.outlast(is_unanswered, || self.table.read_rows(rows, select)).await
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        self.outage.outlast(is_unanswered, || self.table.scan(range, select, limit)).await
    }

    async fn tablets(&self) -> Result<Vec<RowRange>> {
        self.outage.outlast(is_unanswered, || self.table.tablets()).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bigtable::{Layout, LocalityGroup, MemoryStore, RowMutation};

    use super::*;

    /// How many of the next requests fail, and the error.
    #[derive(Debug, Clone)]
    struct Faults {
        left: Arc<AtomicUsize>,
        error: Error,
    }

    impl Faults {
        fn next(&self) -> Result<()> {
            let one_less = |left: usize| left.checked_sub(1);
            match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) {
                Ok(_) => Err(self.error.clone()),
                Err(_) => Ok(()),
            }
        }
    }

    #[derive(Debug)]
    struct Faulty(MemoryStore, Faults);

    impl StoreLayer for Faulty {
        fn inner(&self) -> &dyn Store {
            &self.0
        }

        async fn table_names(&self) -> Result<Vec<String>> {
            self.1.next()?;
            self.0.table_names().await
        }

        fn table(&self, table: Arc<dyn Table>) -> Arc<dyn Table> {
            Arc::new(FaultyTable(table, self.1.clone()))
        }
    }

    #[derive(Debug)]
    struct FaultyTable(Arc<dyn Table>, Faults);

    impl TableLayer for FaultyTable {
        fn inner(&self) -> &dyn Table {
            &*self.0
        }

        async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
            self.1.next()?;
            self.0.read_row(row, select).await
        }

        async fn mutate_row(&self, request: RowMutation) -> Result<()> {
            self.1.next()?;
            self.0.mutate_row(request).await
        }
    }

    fn unavailable(why: &str) -> Error {
        Error::Unavailable { why: why.to_owned() }
    }

    /// A store of which so many requests fail.
    fn faulty(requests: usize, error: Error, patience: Duration) -> (Patient, Arc<AtomicUsize>) {
        let left = Arc::new(AtomicUsize::new(requests));
        let faults = Faults { left: left.clone(), error };
        let store = Arc::new(Faulty(MemoryStore::new(), faults));
        (Patient { store, outage: Outage::new(patience) }, left)
    }

    #[tokio::test]
    async fn reads_outlast_a_restart_and_mutations_are_left_to_transactions() {
        let (store, left) = faulty(0, unavailable("connection refused"), PATIENCE);
        let schema = TableSchema { groups: vec![LocalityGroup::on_disk("d", Layout::Versions)] };
        let table = Store::open_table(&store, "t", &schema).await.unwrap();
        left.store(3, Ordering::SeqCst);
        assert_eq!(Store::table_names(&store).await.unwrap(), ["t"]);
        left.store(3, Ordering::SeqCst);
        assert!(
            table.read_row(&"Bob".into(), &Selection::default()).await.unwrap().cells.is_empty()
        );
        assert_eq!(left.load(Ordering::SeqCst), 0);
        left.store(1, Ordering::SeqCst);
        let refused = table.mutate_row(RowMutation::new("Bob")).await;
        assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    }

    #[tokio::test]
    async fn what_does_not_pass_is_reported_at_once() {
        let unknown = Error::Unknown { why: "the connection broke".to_owned() };
        let certificate = Error::Refused("the server's certificate has expired".to_owned());
        for error in [unknown, certificate, Error::invalid("no"), Error::Replaced] {
            let (store, left) = faulty(1, error.clone(), PATIENCE);
            let got = Store::table_names(&store).await.unwrap_err();
            assert_eq!((got.to_string(), left.load(Ordering::SeqCst)), (error.to_string(), 0));
        }
    }

    #[tokio::test]
    async fn the_patience_of_a_request_is_its_own() {
        let patience = 3 * PAUSE;
        let (store, left) = faulty(usize::MAX, unavailable("connection refused"), patience);
        let schema = TableSchema { groups: vec![LocalityGroup::on_disk("d", Layout::Versions)] };
        let table = Store::open_table(&store, "t", &schema).await.unwrap();
        // Names of tables are never answered; another request is, again and again.
        let answered = async {
            loop {
                store.outage.outlast(is_unanswered, || async { Ok::<_, Error>(()) }).await.unwrap();
                tokio::time::sleep(PAUSE / 4).await;
            }
        };
        let begun = Instant::now();
        let failed = async {
            tokio::select! {
                () = answered => unreachable!("it never ends"),
                names = Store::table_names(&store) => names,
            }
        };
        let names = tokio::time::timeout(20 * patience, failed).await.expect("the patience ends");
        assert!(names.is_err() && begun.elapsed() >= patience, "{names:?}");
        // A later request does not give up at its first failure.
        left.store(1, Ordering::SeqCst);
        let read = table.read_row(&"Bob".into(), &Selection::default()).await;
        assert!(read.is_ok(), "{read:?}");
    }

    #[tokio::test]
    async fn a_command_without_patience_sends_a_request_once() {
        let (store, left) = faulty(2, unavailable("connection refused"), Duration::ZERO);
        assert!(Store::table_names(&store).await.is_err());
        assert_eq!(left.load(Ordering::SeqCst), 1);
    }
}
