//! Tests when gathered requests are sent while earlier ones have no answer.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{Error, Layout, LocalityGroup, Result, TableSchema};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep};

use super::script::Script;
use crate::client::gather::{BEHIND_MAX, Gather, Together, Waiting};
use crate::client::wire::GrpcTable;
use crate::client::{Address, ClientOptions, GrpcStore};

const DELAY: Duration = Duration::from_millis(1);

/// A request that is answered when the test says so.
#[derive(Debug, Clone)]
struct Held {
    sent: mpsc::UnboundedSender<(usize, Instant)>,
    answers: Arc<Semaphore>,
}

impl Together for Held {
    type Answer = ();

    async fn deliver(gathered: Vec<Waiting<Self>>) {
        let Held { sent, answers } = gathered[0].request.clone();
        sent.send((gathered.len(), Instant::now())).unwrap();
        answers.acquire().await.unwrap().forget();
        gathered.into_iter().for_each(|waiting| waiting.tell(Ok(())));
    }

    fn given_up() -> Error {
        unreachable!("the runtime goes on")
    }
}

/// A queue, and what its table's requests need.
struct Queue {
    gather: Arc<Gather<Held>>,
    table: GrpcTable,
    request: Held,
    sent: mpsc::UnboundedReceiver<(usize, Instant)>,
}

impl Queue {
    /// From now on, time goes on when all tasks wait.
    async fn open() -> Self {
        let text = format!("bigtable://{}/p/i", Script::default().serve().await);
        let address: Address = text.parse().unwrap();
        let store = GrpcStore::open(&address, ClientOptions::default()).await.unwrap();
        let schema = TableSchema { groups: vec![LocalityGroup::on_disk("f", Layout::Versions)] };
        let (sender, sent) = mpsc::unbounded_channel();
        let request = Held { sent: sender, answers: Arc::new(Semaphore::new(0)) };
        let gather = Gather::new(DELAY, 10, &Handle::current());
        let table = store.table("t", &schema).unwrap();
        tokio::time::pause();
        Queue { gather, table, request, sent }
    }

    fn push(&self) -> tokio::task::JoinHandle<Result<()>> {
        let (gather, table, request) =
            (self.gather.clone(), self.table.clone(), self.request.clone());
        tokio::spawn(async move { gather.send(&table, request).await })
    }

    /// Checks how many requests are sent next, and when. Returns that moment.
    async fn sends(&mut self, count: usize, due: Instant) -> Instant {
        let (sent, at) = self.sent.recv().await.unwrap();
        // A timer counts whole milliseconds, and rounds up.
        assert!(at >= due && at <= due + Duration::from_millis(1), "{:?}", at - due);
        assert_eq!(sent, count);
        at
    }
}

#[tokio::test]
async fn requests_wait_for_the_answer_to_the_ones_before_them_and_go_together() {
    let mut queue = Queue::open().await;
    let begun = Instant::now();
    let first = queue.push();
    queue.sends(1, begun + DELAY).await;
    let second = queue.push();
    sleep(4 * DELAY).await;
    let third = queue.push();
    sleep(DELAY).await;
    assert!(queue.sent.is_empty(), "the first has no answer");
    let answered = Instant::now();
    queue.request.answers.add_permits(2);
    queue.sends(2, answered).await;
    for one in [first, second, third] {
        one.await.unwrap().unwrap();
    }
    // Nothing is on its way now.
    let begun = Instant::now();
    let last = queue.push();
    queue.sends(1, begun + DELAY).await;
    queue.request.answers.add_permits(1);
    last.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_answer_that_takes_long_keeps_no_request_waiting_for_longer() {
    let mut queue = Queue::open().await;
    let begun = Instant::now();
    let mut waiting = vec![queue.push()];
    let first = queue.sends(1, begun + DELAY).await;
    waiting.push(queue.push());
    // The first request gives its turn up.
    queue.sends(1, first + BEHIND_MAX).await;
    sleep(2 * BEHIND_MAX).await;
    let begun = Instant::now();
    waiting.push(queue.push());
    // Neither of the others has an answer, nor the turn.
    queue.sends(1, begun + DELAY).await;
    queue.request.answers.add_permits(waiting.len());
    for one in waiting {
        one.await.unwrap().unwrap();
    }
}
