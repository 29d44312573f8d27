//! Measures the cost of a console. One test times `/overview` with a million dirty cells. The
//! other measures the processor time of an idle process whose console is open in one tab.
//!
//! The tests take minutes, so they are ignored by default:
//!
//! ```text
//! cargo test --release -p percolator-console --test cost -- --ignored --nocapture
//! ```

#![allow(clippy::unwrap_used, reason = "tests and their helpers")]

mod shared;

use std::sync::Arc;
use std::time::{Duration, Instant};

use percolator::{OpenOptions, Options, Percolator};
use percolator_console::{Console, Listening, Recorder};

use shared::{TEXT, get, observe};

const CELLS: usize = 1_000_000;
const CELLS_OF_COMMIT: usize = 10_000;
/// The longest that the median answer of `/overview` may take.
const OVERVIEW_MAX: Duration = Duration::from_millis(20);
/// The most of a core that an idle process with an open console may take.
const IDLE_MAX: f64 = 0.01;
const IDLE_FOR: Duration = Duration::from_secs(30);

/// Seconds of processor time of this process.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after = stat.rsplit(") ").next().unwrap();
    let field = |n: usize| after.split(' ').nth(n).unwrap().parse::<f64>().unwrap();
    // Clock ticks of a hundredth of a second: user and system time.
    (field(11) + field(12)) / 100.0
}

/// Opens a database in which `cells` cells wait for an observer that no process runs.
async fn dirty(dir: &std::path::Path, recorder: &Arc<Recorder>, cells: usize) -> Percolator {
    let client = Options { watch: Some(recorder.clone()), ..Options::default() };
    let options = OpenOptions { client, ..OpenOptions::default() };
    let db = Percolator::open_with(dir, options).await.unwrap();
    observe(&db).await.stop().await;
    let docs = db.table("docs").await.unwrap();
    for first in (0..cells).step_by(CELLS_OF_COMMIT) {
        let set = async |mut tx: percolator::Attempt| {
            for row in first..(first + CELLS_OF_COMMIT).min(cells) {
                tx.set(&docs, format!("row-{row:08}"), &TEXT, "words")?;
            }
            Ok(())
        };
        db.transact(set).await.unwrap();
    }
    db
}

/// Asks as a tab does that shows the overview: each second, and less often for the rest.
async fn ask_as_a_tab(console: &Listening, longest: Duration) -> Vec<Duration> {
    let (begun, mut took) = (Instant::now(), Vec::new());
    for second in 0u64.. {
        if begun.elapsed() >= longest {
            break;
        }
        let asked = Instant::now();
        let answer = get(console, "/api/v1/overview").await;
        took.push(asked.elapsed());
        assert_eq!(answer.status, 200);
        if second.is_multiple_of(5) {
            get(console, "/api/v1/processes").await;
        }
        if second.is_multiple_of(10) {
            get(console, "/api/v1/about").await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes a million cells and measures for a minute"]
async fn the_overview_is_quick_with_a_million_dirty_cells() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::new());
    let db = dirty(dir.path(), &recorder, CELLS).await;
    let console = Console::new(&db).recorder(recorder).listen("127.0.0.1:0").await.unwrap();
    let mut took = ask_as_a_tab(&console, IDLE_FOR).await;
    let overview = get(&console, "/api/v1/overview").await.json();
    took.sort();
    let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
    let now = &overview["now"];
    println!(
        "/overview with {CELLS} dirty cells: median {median:?}, longest {longest:?} of {}; a look \
         takes {} s and counts {} cells, all: {}",
        took.len(),
        now["look_took_s"],
        now["backlog"],
        now["backlog_whole"],
    );
    assert!(now["backlog"].as_u64().unwrap() >= 50_000 && now["backlog_whole"] == false, "{now}");
    assert!(median < OVERVIEW_MAX, "{median:?}");
    db.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures for half a minute"]
async fn an_open_console_of_an_idle_database_costs_next_to_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::new());
    let db = dirty(dir.path(), &recorder, 1_000).await;
    let console = Console::new(&db).recorder(recorder).listen("127.0.0.1:0").await.unwrap();
    ask_as_a_tab(&console, Duration::from_secs(2)).await;
    let (cpu, begun) = (cpu_s(), Instant::now());
    ask_as_a_tab(&console, IDLE_FOR).await;
    let share = (cpu_s() - cpu) / begun.elapsed().as_secs_f64();
    println!("an idle process with a console in one tab: {:.2} % of a core", share * 100.0);
    assert!(share < IDLE_MAX, "{share}");
    db.close().await.unwrap();
}
