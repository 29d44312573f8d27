//! Frees sealed write buffers on a thread of its own.
//!
//! A write buffer is a skip list, and the engine frees it node by node. The thread that drops the
//! last reference pays for that. Without this file that thread could be:
//!
//! * a reader, if the engine wrote the buffer out while the reader used it;
//! * the committer, because sealing a buffer removes what old snapshots kept, while callers wait;
//! * a thread of the engine, which then holds the lock that each read of the keyspace takes.
//!
//! So the store takes a reference before it seals a buffer, and this thread drops it when no
//! other reference is left.
//!
//! The thread starts with the first sealed buffer, and ends when the engine is closed. Nothing
//! announces the last reference, so the thread looks for it. It looks soon after a buffer was
//! sealed, and ever more rarely while the buffer stays in use.

use std::any::Any;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The first pause between two looks. Each pause is twice the one before, up to the longest.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(10);

/// A reference to a write buffer of the engine.
pub(crate) type Buffer = Arc<dyn Any + Send + Sync>;

/// The thread that frees the sealed buffers of an engine.
#[derive(Debug, Default)]
pub(crate) struct Freeing {
    /// `None` if the thread could not be started. Then buffers are freed where they are dropped.
    sealed: OnceLock<Option<Sender<Buffer>>>,
}

impl Freeing {
    /// Frees a buffer once nobody else uses it.
    pub(crate) fn free(&self, buffer: Buffer) {
        if let Some(sealed) = self.sealed.get_or_init(start) {
            // An error here means that the thread has ended. Then the buffer is freed here.
            let _ = sealed.send(buffer);
        }
    }
}

fn start() -> Option<Sender<Buffer>> {
    let (sender, sealed) = channel();
    let thread = std::thread::Builder::new().name("bigtable-free".to_owned());
    thread.spawn(move || run(&sealed)).ok().map(|_| sender)
}

/// The thread. It ends when the engine drops its end of the channel.
fn run(sealed: &Receiver<Buffer>) {
    let mut held: Vec<Buffer> = Vec::new();
    let mut pause = LOOK_EVERY;
    loop {
        let next = if held.is_empty() {
            sealed.recv().map_err(RecvTimeoutError::from)
        } else {
            sealed.recv_timeout(pause)
        };
        match next {
            Ok(buffer) => {
                held.push(buffer);
                pause = LOOK_EVERY;
            }
            Err(RecvTimeoutError::Timeout) => pause = LOOK_EVERY_MAX.min(pause * 2),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // Nobody can take another reference to a buffer that only this thread refers to.
        held.retain(|buffer| Arc::strong_count(buffer) > 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread;
    use std::time::Duration;

    use bigtable::Timestamp;
    use bigtable::{Family, Layout, LocalityGroup, Mutation, RowMutation, Table, TableSchema};
    use fjall::AbstractTree;
    use futures::executor::block_on;

    use super::*;
    use crate::held::wait_until;
    use crate::upkeep::seal::seal;
    use crate::{FjallStore, Options};

    const LONGEST: Duration = Duration::from_secs(60);

    /// Sends the name of the thread that frees it.
    struct Named(Sender<Option<String>>);

    impl Drop for Named {
        fn drop(&mut self) {
            self.0.send(thread::current().name().map(str::to_owned)).unwrap();
        }
    }

    #[test]
    fn the_thread_frees_a_buffer_after_its_last_user() {
        let freeing = Freeing::default();
        let (dropped, drops) = channel();
        let buffer = Arc::new(Named(dropped.clone()));
        freeing.free(buffer.clone());
        let reader = buffer.clone();
        drop(buffer);
        // A second buffer, which nobody uses, shows that the thread has looked meanwhile.
        freeing.free(Arc::new(Named(dropped)));
        let by = || drops.recv_timeout(LONGEST).unwrap();
        assert_eq!(by().as_deref(), Some("bigtable-free"));
        assert!(drops.try_recv().is_err(), "a reader uses the first buffer");
        drop(reader);
        assert_eq!(by().as_deref(), Some("bigtable-free"));
    }

    #[test]
    fn a_sealed_buffer_is_held_until_the_engine_lets_it_go() {
        let dir = tempfile::tempdir().unwrap();
        let store = FjallStore::open(dir.path(), Options::default()).unwrap();
        let groups = vec![LocalityGroup::on_disk("cells", Layout::Versions)];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        let (engine, info) = table.opened();
        let keyspace = &info.groups[0].cells;
        let write = || {
            let cells = Family::from_static("cells");
            let cell = Mutation::set(cells, "q", Timestamp::ZERO, "value");
            block_on(table.mutate_row(RowMutation::new("row").mutation(cell))).unwrap();
        };
        let seal = || assert!(seal(&engine, keyspace));
        write();
        let buffer = keyspace.tree.active_memtable();
        let first = Arc::downgrade(&buffer);
        seal();
        wait_until("the buffer is written out", || keyspace.sealed_memtable_count() == 0);
        // The test stands for a reader here. It drops its reference, and the engine drops its
        // own ones with the next buffers: each time the thread still has one.
        drop(buffer);
        wait_until("the buffer is freed", || {
            write();
            seal();
            first.upgrade().is_none()
        });
    }
}
