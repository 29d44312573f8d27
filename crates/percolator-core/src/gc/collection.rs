//! Keeps the state that a client's garbage collection needs between its rounds.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bigtable::sync::{Turns, locked};
use bytes::Bytes;

use crate::Runtime;
use crate::gc::registration::Watched;
use crate::gc::samples::Samples;
use crate::txn::open_readers::OpenReaders;

/// The state of a client's garbage collection: open timestamps of this client, samples of
/// time, registrations of other clients, and this client's own registration.
#[derive(Debug, Default)]
pub(crate) struct Collection {
    pub(crate) readers: Arc<OpenReaders>,
    pub(super) samples: Mutex<Samples>,
    /// Samples of this process alone, for stores without a floor.
    pub(super) lived: Mutex<Samples>,
    pub(super) watched: Mutex<Watched>,
    /// The value of this client's registration, as far as the client knows.
    registered: Mutex<Option<Bytes>>,
    /// The calls that write the registration. A call that nobody polls holds up no other (H77).
    turns: Turns,
    /// The longest life of a request of any client that this one knows of, for stores without
    /// a floor.
    pub(super) longest_life: Mutex<Duration>,
}

impl Collection {
    /// For a store with a floor, `life` is `None`. For one without, `life` is the longest life
    /// of a request.
    pub(crate) fn new(runtime: &Arc<dyn Runtime>, life: Option<Duration>) -> Self {
        let readers = life.map(|life| OpenReaders::unfenced(runtime.clone(), life));
        let longest_life = Mutex::new(life.unwrap_or_default());
        Collection {
            readers: Arc::new(readers.unwrap_or_default()),
            longest_life,
            ..Collection::default()
        }
    }

    /// Runs work that writes the registration, after the work that came before.
    pub(super) async fn in_turn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.turns.run(work).await
    }

    pub(super) fn registered(&self) -> MutexGuard<'_, Option<Bytes>> {
        locked(&self.registered)
    }

    pub(super) fn longest_life(&self) -> MutexGuard<'_, Duration> {
        locked(&self.longest_life)
    }

    pub(super) fn lived(&self) -> MutexGuard<'_, Samples> {
        locked(&self.lived)
    }

    pub(super) fn samples(&self) -> MutexGuard<'_, Samples> {
        locked(&self.samples)
    }

    pub(super) fn watched(&self) -> MutexGuard<'_, Watched> {
        locked(&self.watched)
    }
}
