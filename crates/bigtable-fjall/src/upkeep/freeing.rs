//! Frees sealed write buffers, and deletes files that nothing needs, on a thread of its own.
//!
//! A write buffer is a skip list, and the engine frees it node by node. A file that a merge has
//! replaced is deleted with the last list of files that names it. Deleting a run of 64 MiB takes
//! the disk some 10 milliseconds, and a journal up to 100. Without this file these threads would
//! do it:
//!
//! * a reader, if the engine wrote the buffer out while the reader used it;
//! * the committer, because sealing a buffer removes what old snapshots kept, while callers wait;
//! * a thread of the engine, which then holds the lock that each read of the keyspace takes.
//!
//! So the store takes a reference to each buffer before it seals the buffer. This thread takes one
//! to each list of files that it finds while the engine writes buffers out and merges. It drops a
//! buffer when no other reference is left, and a list when the engine has dropped the list.
//!
//! The thread starts with the first sealed buffer. Nothing announces the last reference, or a new
//! list, so the thread looks for them. It looks soon after a buffer was sealed, and ever more
//! rarely while nothing changes. In the end it drops all lists, because they keep files on disk.
//!
//! Invariant: before the engine is closed, this thread has deleted its files, and has ended. An
//! engine that is opened later may give the number of a deleted file to a new one.

use std::any::Any;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use fjall::{AbstractTree, Keyspace};

use crate::directory::remove;
use crate::mutants::{self, off};
use crate::waits::may_wait;

/// The first pause between two looks. Each pause is twice the one before, up to the longest.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(10);

/// A reference to a write buffer of the engine.
pub(crate) type Buffer = Arc<dyn Any + Send + Sync>;

/// The thread that frees buffers and deletes files of an engine.
#[derive(Debug, Default)]
pub(crate) struct Freeing {
    /// `None` if the thread could not be started. Then the engine frees and deletes by itself.
    thread: OnceLock<Option<Thread>>,
}

#[derive(Debug)]
struct Thread {
    messages: Sender<Message>,
    handle: JoinHandle<()>,
}

enum Message {
    Buffer(Buffer),
    /// A keyspace whose files merges may replace.
    Keyspace(Keyspace),
    Remove(PathBuf),
}

impl Freeing {
    /// Frees a buffer once nobody else uses it.
    pub(crate) fn free(&self, buffer: Buffer) {
        self.send(Message::Buffer(buffer));
    }

    /// Deletes the files of the keyspace that merges replace from now on.
    pub(crate) fn follow(&self, keyspace: &Keyspace) {
        self.send(Message::Keyspace(keyspace.clone()));
    }

    /// Removes files. An opening removes those that a crash leaves.
    pub(crate) fn remove(&self, files: Vec<PathBuf>) {
        files.into_iter().for_each(|file| self.send(Message::Remove(file)));
    }

    fn send(&self, message: Message) {
        // Without the thread, the caller frees and removes.
        let unsent = match self.thread.get_or_init(start) {
            Some(thread) => thread.messages.send(message).err().map(|error| error.0),
            None => Some(message),
        };
        if let Some(Message::Remove(file)) = unsent {
            remove_file(&file);
        }
    }

    /// Ends the thread, after it has let go of everything. Called before the engine is closed.
    pub(crate) fn stop(&mut self) {
        if let Some(Some(Thread { messages, handle })) = self.thread.take() {
            may_wait("deleting replaced files");
            drop(messages);
            if off(mutants::DELETES_AFTER_CLOSING) {
                return;
            }
            // A panic of the thread has dropped what it held, too.
            let _ = handle.join();
        }
    }
}

fn remove_file(file: &Path) {
    if let Err(error) = remove(file) {
        tracing::warn!(
            target: "percolator::store", event = "not_removed", file = %file.display(), %error,
            "an old journal could not be removed: the next opening of the store removes it"
        );
    }
}

fn start() -> Option<Thread> {
    let (messages, received) = channel();
    let thread = std::thread::Builder::new().name("bigtable-free".to_owned());
    let handle = thread.spawn(move || run(&received)).ok()?;
    Some(Thread { messages, handle })
}

/// The thread. It ends when the engine drops its end of the channel.
fn run(messages: &Receiver<Message>) {
    let mut buffers: Vec<Buffer> = Vec::new();
    let mut followed: Vec<Files> = Vec::new();
    let mut pause = LOOK_EVERY;
    loop {
        let next = if buffers.is_empty() && followed.is_empty() {
            messages.recv().map_err(RecvTimeoutError::from)
        } else {
            messages.recv_timeout(pause)
        };
        let mut changed = true;
        match next {
            Ok(Message::Buffer(buffer)) => buffers.push(buffer),
            Ok(Message::Keyspace(keyspace)) => follow(&mut followed, keyspace),
            Ok(Message::Remove(file)) => remove_file(&file),
            Err(RecvTimeoutError::Timeout) => changed = false,
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // Nobody can take another reference to a buffer that only this thread refers to.
        buffers.retain(|buffer| Arc::strong_count(buffer) > 1);
        for files in &mut followed {
            changed |= files.look();
        }
        if pause == LOOK_EVERY_MAX && !changed {
            followed.clear();
        }
        pause = if changed { LOOK_EVERY } else { LOOK_EVERY_MAX.min(pause * 2) };
    }
}

fn follow(followed: &mut Vec<Files>, keyspace: Keyspace) {
    if followed.iter().all(|files| files.keyspace.tree.id() != keyspace.tree.id()) {
        followed.push(Files { keyspace, lists: VecDeque::new() });
    }
}

/// The lists of files that a keyspace had lately.
struct Files {
    keyspace: Keyspace,
    /// The engine's lists, each with its number, which rises. The last list is the newest known.
    lists: VecDeque<(u64, Box<dyn Any>)>,
}

impl Files {
    /// Takes a reference to the newest list, and drops lists that the engine has dropped. Returns
    /// whether the newest list was not known.
    fn look(&mut self) -> bool {
        let tree = &self.keyspace.tree;
        let newest = tree.current_version();
        // Each list that the engine still has follows the one before, or is the same list.
        let oldest = newest.id().saturating_sub(tree.version_free_list_len() as u64);
        let is_new = self.lists.back().is_none_or(|(known, _)| *known != newest.id());
        if is_new {
            self.lists.push_back((newest.id(), Box::new(newest)));
        }
        while self.lists.front().is_some_and(|(known, _)| *known < oldest) {
            self.lists.pop_front();
        }
        is_new
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

    #[test]
    fn files_that_a_merge_replaced_are_deleted_when_the_thread_looks() {
        let dir = tempfile::tempdir().unwrap();
        let store = FjallStore::open(dir.path(), Options::default()).unwrap();
        let groups = vec![LocalityGroup::on_disk("cells", Layout::Versions)];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        let (engine, info) = table.opened();
        let keyspace = &info.groups[0].cells;
        let write_out = || {
            let cells = Family::from_static("cells");
            let cell = Mutation::set(cells, "q", Timestamp::ZERO, "value");
            block_on(table.mutate_row(RowMutation::new("row").mutation(cell))).unwrap();
            assert!(seal(&engine, keyspace));
            wait_until("the buffer is written out", || keyspace.sealed_memtable_count() == 0);
        };
        let mut files = Files { keyspace: keyspace.clone(), lists: VecDeque::new() };
        write_out();
        assert!(files.look(), "it knew no list");
        assert!(!files.look());
        let replaced = newest_run(keyspace);
        write_out();
        keyspace.major_compact().unwrap();
        assert!(files.look(), "the merge has made a new list");
        // The engine drops its old lists when it seals a buffer.
        wait_until("the engine has dropped its old lists", || {
            write_out();
            keyspace.tree.version_free_list_len() <= 1
        });
        assert!(replaced.exists(), "the old list is held");
        files.look();
        wait_until("the file is deleted", || !replaced.exists());
        assert!(newest_run(keyspace).exists());
    }

    /// The newest file of a keyspace.
    fn newest_run(keyspace: &Keyspace) -> PathBuf {
        let newest = keyspace.tree.next_table_id() - 1;
        keyspace.path().join("tables").join(newest.to_string())
    }

    /// Takes a while to be dropped, and then sends a message.
    struct Slow(Sender<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            thread::sleep(Duration::from_millis(200));
            self.0.send(()).unwrap();
        }
    }

    #[test]
    fn h63_a_closed_store_deletes_no_file() {
        crate::mutants::switch_off_named_mutant();
        let dir = tempfile::tempdir().unwrap();
        let store = FjallStore::open(dir.path(), Options::default()).unwrap();
        let groups = vec![LocalityGroup::on_disk("cells", Layout::Versions)];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        let (engine, info) = table.opened();
        let (old, (dropped, drops)) = (dir.path().join("old"), channel());
        std::fs::write(&old, "an old journal").unwrap();
        engine.freeing.free(Arc::new(Slow(dropped)));
        engine.freeing.remove(vec![old.clone()]);
        drop((engine, info, table, store));
        assert!(drops.try_recv().is_ok(), "the store is closed, and holds a buffer or a list");
        assert!(!old.exists(), "the store is closed, and has a file to remove");
    }
}
