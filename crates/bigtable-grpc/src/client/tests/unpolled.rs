//! Tests requests whose futures a program keeps and does not poll, as `select!` does while a
//! branch awaits (H77).

use futures::poll;
use tokio::time::timeout;

use super::script::{DEADLINE, End, Script, open_with, rows, scan};
use crate::client::ClientOptions;

/// The bytes of a large answer: more than the buffer of a stream has room for.
const LARGE: usize = 3 << 20;
/// So many large answers fill the buffers of a connection, if it has a bound of its own.
const UNPOLLED: usize = 8;

#[tokio::test]
async fn h77_answers_that_nobody_takes_hold_up_no_other() {
    let script = Script::default();
    let options = ClientOptions { connections: 1, deadline: DEADLINE, ..ClientOptions::default() };
    let table = open_with(&script, options).await.unwrap();
    let mut large = rows(&["a"]);
    large.chunks[0].value = vec![0; LARGE].into();
    script.play(|play| {
        play.asked.clear();
        play.reads.extend((0..UNPOLLED).map(|_| (vec![large.clone()], End::Well)));
        play.reads.extend((0..UNPOLLED).map(|_| (vec![rows(&["b"])], End::Well)));
    });
    let mut unpolled: Vec<_> = (0..UNPOLLED).map(|_| Box::pin(scan(&*table))).collect();
    for (n, read) in unpolled.iter_mut().enumerate() {
        while script.play(|play| play.asked.len()) <= n {
            assert!(poll!(read.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
    }
    for _ in 0..UNPOLLED {
        let (keys, _) = timeout(DEADLINE / 2, scan(&*table)).await.expect("an answer").unwrap();
        assert_eq!(keys, "b");
    }
    for read in unpolled {
        assert_eq!(read.await.unwrap().0, "a");
    }
}
