//! Counts what a client has done since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the client was opened.
        ///
        /// ```
        /// # percolator_core::doc_test(|client| async move {
        /// client.begin().await?.commit().await?;
        /// assert_eq!(client.stats().begun, 1);
        /// # Ok(()) });
        /// ```
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats { $($(#[$doc])* pub $name: u64,)* }

        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: Counter,)* }

        impl Counters {
            pub(crate) fn read(&self) -> Stats {
                Stats { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }

        impl Stats {
            /// Names and values, in a fixed order.
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn bump(&self) {
        self.add(1);
    }
}

counters! {
    /// Transactions begun.
    begun,
    /// Transactions committed that wrote or notified something.
    committed,
    /// Of these, transactions that committed in one step.
    committed_one_step,
    /// Transactions aborted by a conflict.
    conflicts,
    /// Transactions aborted for any reason, conflicts included.
    aborted,
    /// Transactions whose outcome stayed unknown.
    unknown,
    /// Rows of other transactions that this client rolled forward.
    rolled_forward,
    /// Transactions of others that this client rolled back.
    rolled_back,
    /// Requests that read rows of tables at a timestamp, requests for long values included.
    reads,
    /// Reads of cells that needed no request, because the transaction had read or fetched
    /// these cells before.
    reads_saved,
    /// Times a read, a commit or a collector found a lock of another transaction. A waiter counts
    /// at each look.
    locks_met,
    /// Times a primary lock was renewed.
    heartbeats,
    /// Times an advisory lock was renewed because an observer took long.
    row_locks_renewed,
    /// Times an observer was started.
    observer_runs,
    /// Of these, times a hint alone led to the change, and the acknowledgement was not read.
    observer_runs_hinted,
    /// Times an observer failed at a change. Conflicts, failures of store and oracle, and
    /// `Unavailable` do not count.
    observer_failures,
    /// Notifications whose change had already been handled.
    notifications_stale,
    /// Notifications set aside because their observer kept failing.
    set_aside,
    /// Hints at changes of this process that found their queue full. A scan finds these changes.
    hints_dropped,
    /// Times a worker found another worker on the same row and jumped elsewhere.
    jumps,
    /// Calls of the [watcher](crate::Watch) that panicked or took longer than a second.
    watcher_failures,
    /// Transactions that the [trace](crate::Options::trace) lacks: they did not fit into its queue,
    /// could not be written, or still waited when the client was closed. With
    /// [`Sampling::OneOf`](crate::Sampling::OneOf), a transaction also counts if its causes could
    /// not be looked up, because the table could not be read.
    trace_dropped,
}
