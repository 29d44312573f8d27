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
//! buffer when no other reference is left, and a list when the engine has dropped the list. A
//! reader that still uses an older list may then be its last holder, and delete the files itself.
//!
//! The thread starts with the first sealed buffer. Nothing announces the last reference, or a new
//! list, so the thread looks for them. It looks soon after a buffer was sealed, and ever more
//! rarely while nothing changes. In a quiet store it keeps the lists that the engine keeps, which
//! costs no space. The engine drops them when the next buffer is sealed, under the commit lock.
//!
//! The thread takes all messages before it deletes a file, and frees buffers first. While the disk
//! is slower than the merges, messages wait, at most [`MESSAGES_MAX`]. Beyond that the callers
//! remove journals, and the engine frees buffers and deletes merged files, as without this thread.
//!
//! A caller that gives space back waits until the thread has deleted the replaced files.
//!
//! Invariant: before the engine is closed, this thread has deleted its files, and has ended. An
//! engine that is opened later may give the number of a deleted file to a new one.

use std::any::Any;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError};
use std::sync::mpsc::{channel, sync_channel};
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
/// The most messages that wait for the thread. Half of them are buffers: 32 buffers of 16 MiB take
/// half a gigabyte.
const MESSAGES_MAX: usize = 64;
/// The most journals that the thread has taken from its messages and has not removed. With as many,
/// it leaves further messages where they are.
const REMOVALS_MAX: usize = 16;
/// The longest wait for deletions.
const DELETING_MAX: Duration = Duration::from_secs(20);

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
    messages: SyncSender<Message>,
    handle: JoinHandle<()>,
}

enum Message {
    Buffer(Buffer),
    /// A keyspace whose files merges may replace.
    Keyspace(Keyspace),
    Remove(PathBuf),
    /// The thread drops this once it has done what it can for the messages before.
    Done(Sender<Infallible>),
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

    /// Waits until the thread has deleted what nothing needs now, at most for [`DELETING_MAX`].
    /// Does not wait while too many messages do.
    pub(crate) fn catch_up(&self) {
        may_wait("deleting replaced files");
        let (done, is_done) = channel();
        self.send(Message::Done(done));
        // The thread sends nothing. It drops its end.
        let _ = is_done.recv_timeout(DELETING_MAX);
    }

    fn send(&self, message: Message) {
        let unsent = match self.thread.get_or_init(start) {
            Some(thread) => match thread.messages.try_send(message) {
                Ok(()) => return,
                Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => message,
            },
            None => message,
        };
        // The engine frees the buffer and deletes merged files. The caller removes the journal.
        if let Message::Remove(file) = unsent {
            remove_file(&file);
        }
    }
}

/// Ends the thread, after it has let go of everything.
impl Drop for Freeing {
    fn drop(&mut self) {
        if let Some(Some(Thread { messages, handle })) = self.thread.take() {
            may_wait("deleting replaced files");
            drop(messages);
            if off(mutants::DELETES_AFTER_CLOSING) {
                return;
            }
            // The thread has reported a panic, and has dropped what it held.
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
    let (messages, received) = sync_channel(MESSAGES_MAX);
    let thread = std::thread::Builder::new().name("bigtable-free".to_owned());
    let started = thread.spawn(move || {
        if catch_unwind(AssertUnwindSafe(|| run(&received))).is_err() {
            tracing::warn!(
                target: "percolator::store", event = "freeing_ended",
                "the thread that deletes replaced files has panicked: commits delete them until \
                 the store is opened again, and take longer; report the message of the panic"
            );
        }
    });
    match started {
        Ok(handle) => Some(Thread { messages, handle }),
        Err(error) => {
            tracing::warn!(
                target: "percolator::store", event = "freeing_not_started", %error,
                "the thread that deletes replaced files could not be started: commits delete them \
                 until the store is opened again, and take longer; look at the limit of threads"
            );
            None
        }
    }
}

/// The thread. It ends when the store drops its end of the channel.
fn run(messages: &Receiver<Message>) {
    let mut held = Held::new();
    loop {
        let mut changed = true;
        if held.removals.is_empty() {
            let next = match held.wait() {
                None => messages.recv().map_err(RecvTimeoutError::from),
                Some(pause) => messages.recv_timeout(pause),
            };
            match next {
                Ok(message) => held.take(message),
                Err(RecvTimeoutError::Timeout) => changed = false,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        while held.removals.len() < REMOVALS_MAX
            && let Ok(message) = messages.try_recv()
        {
            held.take(message);
        }
        held.look(changed);
        // Messages may have come with a buffer to free, so the thread removes one file at a time.
        if let Some(file) = held.removals.pop_front() {
            remove_file(&file);
        }
        if held.removals.is_empty() {
            held.waiting.clear();
        }
    }
}

/// The references and the files that the thread has taken from its messages.
struct Held {
    /// After a look, the engine or a reader uses each of these, too.
    buffers: Vec<Buffer>,
    followed: Vec<Files>,
    /// Journals that are to be removed.
    removals: VecDeque<PathBuf>,
    /// Callers that wait until this thread has caught up.
    waiting: Vec<Sender<Infallible>>,
    /// The time from the last look to the next one.
    pause: Duration,
}

impl Held {
    fn new() -> Self {
        let (buffers, followed, removals, waiting) = Default::default();
        Held { buffers, followed, removals, waiting, pause: LOOK_EVERY }
    }

    /// Returns the time until the next look, if there is anything to look for.
    fn wait(&self) -> Option<Duration> {
        (!self.buffers.is_empty() || !self.followed.is_empty()).then_some(self.pause)
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Buffer(buffer) => self.buffers.push(buffer),
            Message::Keyspace(keyspace) => self.follow(keyspace),
            Message::Remove(file) => self.removals.push_back(file),
            Message::Done(done) => self.waiting.push(done),
        }
    }

    fn follow(&mut self, keyspace: Keyspace) {
        if self.followed.iter().all(|files| files.keyspace.tree.id() != keyspace.tree.id()) {
            self.followed.push(Files { keyspace, lists: VecDeque::new() });
        }
    }

    /// Drops buffers and lists that only this thread holds, and takes a reference to new lists.
    fn look(&mut self, mut changed: bool) {
        // Nobody can take another reference to a buffer that only this thread refers to.
        self.buffers.retain(|buffer| Arc::strong_count(buffer) > 1);
        for files in &mut self.followed {
            changed |= files.look();
        }
        if self.pause == LOOK_EVERY_MAX && !changed {
            // The engine has one list of each other keyspace, and makes the next one after a seal
            // or a merge, which names the keyspace again.
            self.followed.retain(|files| files.lists.len() > 1);
        }
        self.pause = if changed { LOOK_EVERY } else { LOOK_EVERY_MAX.min(self.pause * 2) };
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
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};
    use std::thread;
    use std::time::Duration;

    use bigtable::Timestamp;
    use bigtable::{Family, Layout, LocalityGroup, Mutation, RowMutation, Table, TableSchema};
    use fjall::AbstractTree;
    use futures::executor::block_on;

    use super::*;
    use crate::engine::Engine;
    use crate::held::{deleters, wait_until};
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
    fn a_buffer_is_freed_before_the_files_that_were_named_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let freeing = Freeing::default();
        let held = Gated::send(&freeing, LONGEST);
        let files: Vec<_> = (1..REMOVALS_MAX).map(|n| dir.path().join(n.to_string())).collect();
        files.iter().for_each(|file| std::fs::write(file, "an old journal").unwrap());
        freeing.remove(files.clone());
        let (dropped, drops) = channel();
        let left = files.clone();
        let count = move || left.iter().filter(|file| file.exists()).count();
        freeing.free(Arc::new(OnDrop(Box::new(move || dropped.send(count()).unwrap()))));
        held.release();
        assert_eq!(drops.recv_timeout(LONGEST).unwrap(), files.len());
        drop(freeing);
        assert!(files.iter().all(|file| !file.exists()));
    }

    /// Calls a function when it is dropped.
    struct OnDrop(Box<dyn Fn() + Send + Sync>);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            (self.0)();
        }
    }

    #[test]
    fn who_gives_space_back_waits_until_the_thread_has_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<_> = (0..REMOVALS_MAX).map(|n| dir.path().join(n.to_string())).collect();
        files.iter().for_each(|file| std::fs::write(file, "an old journal").unwrap());
        let freeing = Freeing::default();
        // The thread frees a buffer for a time, and then takes the messages that came meanwhile.
        let gate = Gated::send(&freeing, Duration::from_millis(300));
        freeing.remove(files.clone());
        freeing.catch_up();
        assert!(gate.is_freed());
        assert!(files.iter().all(|file| !file.exists()));
    }

    #[test]
    fn a_caller_removes_files_while_too_many_messages_wait() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("old");
        let freeing = Freeing::default();
        let held = Gated::send(&freeing, LONGEST);
        for _ in 0..=MESSAGES_MAX {
            assert!(!file.exists());
            std::fs::write(&file, "an old journal").unwrap();
            freeing.free(Arc::new(()));
            freeing.remove(vec![file.clone()]);
            if !file.exists() {
                held.release();
                return;
            }
            std::fs::remove_file(&file).unwrap();
        }
        panic!("more than {MESSAGES_MAX} messages wait");
    }

    #[test]
    fn a_caller_removes_files_when_the_thread_has_panicked() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("old");
        std::fs::write(&file, "an old journal").unwrap();
        let freeing = Freeing::default();
        freeing.free(Arc::new(OnDrop(Box::new(|| panic!("by test")))));
        let thread = || freeing.thread.get().and_then(Option::as_ref).unwrap();
        wait_until("the thread has ended", || thread().handle.is_finished());
        freeing.remove(vec![file.clone()]);
        assert!(!file.exists());
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
    fn the_list_before_a_merge_is_held_however_long_the_store_is_quiet() {
        let dir = tempfile::tempdir().unwrap();
        let store = FjallStore::open(dir.path(), Options::default()).unwrap();
        let groups = vec![LocalityGroup::on_disk("cells", Layout::Versions)];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        let keyspace = table.opened().1.groups[0].cells.clone();
        // The store's own thread does not learn of these buffers.
        let write_out = || {
            let cells = Family::from_static("cells");
            let cell = Mutation::set(cells, "q", Timestamp::ZERO, "value");
            block_on(table.mutate_row(RowMutation::new("row").mutation(cell))).unwrap();
            assert!(keyspace.rotate_memtable().unwrap());
            wait_until("the buffer is written out", || keyspace.sealed_memtable_count() == 0);
        };
        let mut held = Held::new();
        let become_quiet = |held: &mut Held| {
            while held.pause < LOOK_EVERY_MAX {
                held.look(false);
            }
            held.look(false);
        };
        held.take(Message::Keyspace(keyspace.clone()));
        let newest = || keyspace.tree.current_version().id();
        let replaced = loop {
            write_out();
            write_out();
            held.look(true);
            let known = held.followed[0].lists.back().unwrap().0;
            let replaced = newest_run(&keyspace);
            keyspace.major_compact().unwrap();
            // A merge of the engine's own may have made a list in between.
            if newest() == known + 1 {
                break replaced;
            }
        };
        become_quiet(&mut held);
        assert_eq!(held.wait(), Some(LOOK_EVERY_MAX));
        wait_until("the engine has dropped the list before the merge", || {
            write_out();
            keyspace.tree.version_free_list_len() <= 1
        });
        assert!(replaced.exists(), "the thread holds the list");
        held.look(true);
        wait_until("the file is deleted", || !replaced.exists());
    }

    #[test]
    fn a_thread_of_the_store_deletes_files_that_a_merge_replaced() {
        let dir = tempfile::tempdir().unwrap();
        assert!(deleters(dir.path()).is_empty());
        let store = FjallStore::open(dir.path(), Options::default()).unwrap();
        let groups = vec![LocalityGroup::on_disk("cells", Layout::Versions)];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        let (engine, info) = table.opened();
        let keyspace = &info.groups[0].cells;
        // The thread may look too late for the list before one merge, so there are several.
        wait_until("the thread has deleted a file", || {
            let cells = Family::from_static("cells");
            let cell = Mutation::set(cells, "q", Timestamp::ZERO, "value");
            block_on(table.mutate_row(RowMutation::new("row").mutation(cell))).unwrap();
            // The committer may have sealed the buffer already.
            seal(&engine, keyspace);
            wait_until("the buffer is written out", || keyspace.sealed_memtable_count() == 0);
            keyspace.major_compact().unwrap();
            deleters(dir.path()).iter().any(|thread| thread == "bigtable-free")
        });
    }

    /// The newest file of a keyspace.
    fn newest_run(keyspace: &Keyspace) -> PathBuf {
        let newest = keyspace.tree.next_table_id() - 1;
        keyspace.path().join("tables").join(newest.to_string())
    }

    /// A buffer whose freeing takes until a message comes, or for a time.
    struct Gated {
        messages: Mutex<Receiver<()>>,
        longest: Duration,
        dropping: Sender<()>,
        dropped: Sender<()>,
    }

    /// Holds the thread that frees a gated buffer.
    struct Gate {
        messages: Sender<()>,
        drops: Receiver<()>,
    }

    impl Gated {
        /// Sends a gated buffer to the thread, and waits until the thread frees it.
        fn send(freeing: &Freeing, longest: Duration) -> Gate {
            let ((send, messages), (dropping, is_dropping), (dropped, drops)) =
                (channel(), channel(), channel());
            let messages = Mutex::new(messages);
            freeing.free(Arc::new(Gated { messages, longest, dropping, dropped }));
            is_dropping.recv_timeout(LONGEST).unwrap();
            Gate { messages: send, drops }
        }
    }

    impl Gate {
        fn is_freed(&self) -> bool {
            self.drops.try_recv().is_ok()
        }

        fn release(&self) {
            // The buffer may be gone after its longest time.
            let _ = self.messages.send(());
        }
    }

    impl Drop for Gated {
        fn drop(&mut self) {
            self.dropping.send(()).unwrap();
            let _ = self.messages.lock().unwrap().recv_timeout(self.longest);
            // The test that waited may have failed.
            let _ = self.dropped.send(());
        }
    }

    /// The engine of a store, without the store.
    fn engine_of(store: FjallStore) -> Arc<Engine> {
        let groups = vec![LocalityGroup::on_disk("cells", Layout::Versions)];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        table.opened().0
    }

    /// The time for which the thread is busy while its store closes.
    const BUSY: Duration = Duration::from_secs(3);

    #[test]
    fn h63_a_closed_store_deletes_no_file() {
        crate::mutants::switch_off_named_mutant();
        let dir = tempfile::tempdir().unwrap();
        let store = FjallStore::open(dir.path(), Options::default()).unwrap();
        let engine = engine_of(store);
        let old = dir.path().join("old");
        std::fs::write(&old, "an old journal").unwrap();
        let gate = Gated::send(&engine.freeing, BUSY);
        engine.freeing.remove(vec![old.clone()]);
        drop(engine);
        // The gate opens only now, so the thread has freed the buffer only if the store waited.
        assert!(gate.is_freed(), "the store is closed, and holds a buffer or a list");
        assert!(!old.exists(), "the store is closed, and has a file to remove");
        gate.release();
    }

    #[test]
    fn the_thread_has_ended_even_if_closing_panics() {
        let dir = tempfile::tempdir().unwrap();
        let store = FjallStore::open(dir.path(), Options::default()).unwrap();
        let engine = engine_of(store);
        let panics = |what: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(what)).is_err();
        assert!(panics(&mut || {
            let _journals = engine.journals();
            panic!("by test");
        }));
        let gate = Gated::send(&engine.freeing, BUSY);
        let mut engine = Some(engine);
        assert!(panics(&mut || drop(engine.take())), "closing needs the journals");
        assert!(gate.is_freed(), "the store is closed, and holds a buffer or a list");
    }
}
