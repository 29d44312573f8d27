//! Runs the conformance suite of stores over a fake cluster. `on_hbase` runs it over a real one.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use crate::HbaseStore;
use bigtable::conformance::CASES;
use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{Store, Table};
use tokio::runtime::Handle;

use super::fake::Fake;

/// The cases that need something which HBase does not have, each with the reason.
const BEYOND_HBASE: [(&str, &str); 10] = [
    ("floor::refuses_what_is_older", NO_FLOOR),
    ("floor::refuses_glances", NO_FLOOR),
    ("floor::never_goes_back", NO_FLOOR),
    ("floor::not_asked_for", NO_FLOOR),
    ("threads::floor_holds", NO_FLOOR),
    ("threads::glances_miss_nothing", NO_FLOOR),
    ("bounds::refusing", NO_BOUNDS),
    ("bounds::refusing_a_whole_request", NO_BOUNDS),
    ("bounds::refusing_over_all_tables", NO_BOUNDS),
    ("bounds::pressure", NO_BOUNDS),
];
const NO_FLOOR: &str = "HBase compares no floor within a row operation";
const NO_BOUNDS: &str = "HBase has no bound on the cells of a family";

/// A store whose futures any thread may poll; the cases with their own threads do.
#[derive(Debug)]
struct Anywhere<T> {
    inner: T,
    runtime: Handle,
}

impl<T> Anywhere<T> {
    async fn within<O>(&self, future: impl Future<Output = O> + Send) -> O {
        let mut future = pin!(future);
        poll_fn(|cx| {
            let _entered = self.runtime.enter();
            future.as_mut().poll(cx)
        })
        .await
    }
}

impl StoreLayer for Anywhere<HbaseStore> {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn through<O: Send>(&self, request: impl Future<Output = O> + Send) -> O {
        self.within(request).await
    }

    fn table(&self, inner: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(Anywhere { inner, runtime: self.runtime.clone() })
    }
}

impl TableLayer for Anywhere<Arc<dyn Table>> {
    fn inner(&self) -> &dyn Table {
        &*self.inner
    }

    async fn through<O: Send>(&self, request: impl Future<Output = O> + Send) -> O {
        self.within(request).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_passes() {
    let fake = Fake::start().await;
    run(fake.store("").await).await;
}

pub(super) async fn run(inner: HbaseStore) {
    run_some(inner, &[""]).await;
}

/// Runs the cases whose names begin with one of these words.
pub(super) async fn run_some(inner: HbaseStore, begin: &[&str]) {
    let store = Anywhere { inner, runtime: Handle::current() };
    for (name, why) in BEYOND_HBASE {
        assert!(CASES.iter().any(|case| case.name() == name), "{name} ({why}) is no case");
    }
    let only = std::env::var("CASE").ok();
    for case in CASES {
        let beyond = BEYOND_HBASE.iter().any(|(name, _)| *name == case.name());
        let wanted = begin.iter().any(|word| case.name().starts_with(word));
        if wanted && !beyond && only.as_deref().is_none_or(|only| case.name().contains(only)) {
            eprintln!("{}", case.name());
            case.run(&store).await;
        }
    }
}
