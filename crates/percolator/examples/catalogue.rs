//! A catalogue of shops' offers. An observer derives for each product its offers and their
//! lowest price.
//!
//! The program loads the given number of offers as fast as they are admitted, and changes one
//! offer now and then meanwhile. It prints the cost of an offer, derivation included, and the
//! time from a change to its product's new price:
//!
//! ```text
//! cargo run --release -p percolator --example catalogue -- 100000
//! cargo run --release -p percolator --example catalogue -- 1000000 unbounded
//! ```
//!
//! `unbounded` loads without waiting for the observers (`admit` has no bound), so the backlog
//! grows to almost all offers. `docs/catalogue.md` has the cost of an offer then. A product
//! keeps all its offers in one cell, so the observer need not remember what a changed offer
//! was before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use percolator::{
    Change, Column, Durability, Error, Observer, OpenOptions, Options, Percolator, Registration,
    Result, Table, Transaction, WorkerOptions,
};

/// The command line uses this allocator, too. With glibc's allocator the cost of an offer
/// grows with the number of offers.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OFFER: Column = Column::literal("offer");
const OFFERS: Column = Column::literal("offers");
const LOWEST: Column = Column::literal("lowest");

/// The number of offers of one product.
const EACH: u64 = 4;
const LOADERS: u64 = 8;
/// The pause between two changes of an offer during the load.
const CHANGE_EVERY: Duration = Duration::from_millis(250);
/// The pause between two checks whether the change has arrived.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Encodes an offer for storage: its product and its price.
fn encode(product: u64, price: u64) -> Vec<u8> {
    [product.to_be_bytes(), price.to_be_bytes()].concat()
}

fn pairs(bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    bytes.chunks_exact(16).map(move |pair| (number(&pair[..8]), number(&pair[8..])))
}

/// Spreads numbers, so that offers loaded one after the other are not neighbours in the table.
fn spread(n: u64) -> u64 {
    (n ^ (n >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn offer_row(n: u64) -> String {
    format!("offer-{:016x}", spread(n))
}

fn product_row(product: u64) -> String {
    format!("product-{:016x}", spread(product))
}

/// Copies an offer into its product's row, and computes the lowest price.
struct Derive {
    products: Table,
}

impl Observer for Derive {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let stored = change.value(tx).await?.unwrap_or_default();
        let Some((product, price)) = pairs(&stored).next() else { return Ok(()) };
        let (row, offer) = (product_row(product), &change.row.as_bytes()[6..]);
        let offer = u64::from_str_radix(&String::from_utf8_lossy(offer), 16);
        let offer = offer.map_err(Error::application)?;
        let known = tx.get(&self.products, row.as_str(), &OFFERS).await?.unwrap_or_default();
        let mut offers: Vec<(u64, u64)> = pairs(&known).collect();
        match offers.iter_mut().find(|(known, _)| *known == offer) {
            Some(known) => known.1 = price,
            None => offers.push((offer, price)),
        }
        let lowest = offers.iter().map(|(_, price)| *price).min().unwrap_or(price);
        let all: Vec<u8> = offers.iter().flat_map(|(n, price)| encode(*n, *price)).collect();
        tx.set(&self.products, row.as_str(), &OFFERS, all)?;
        tx.set(&self.products, row.as_str(), &LOWEST, lowest.to_be_bytes().to_vec())
    }
}

/// The CPU time of this process so far, in steps of a hundredth of a second. `None` if the
/// system does not report it.
fn cpu() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(10 * ticks))
}

/// Loads offers, several at a time.
async fn load(db: &Percolator, table: &Table, offers: u64) -> Result<()> {
    let next = Arc::new(AtomicU64::new(0));
    let mut loaders = Vec::new();
    for _ in 0..LOADERS {
        let (db, table, next) = (db.clone(), table.clone(), next.clone());
        loaders.push(tokio::spawn(async move {
            loop {
                let n = next.fetch_add(1, SeqCst);
                if n >= offers {
                    return Ok::<(), Error>(());
                }
                db.admit().await?;
                let value = encode(n / EACH, 1_000 + spread(n) % 1_000);
                db.transact(async |mut tx| tx.set(&table, offer_row(n), &OFFER, value.clone()))
                    .await?;
            }
        }));
    }
    for loader in loaders {
        loader.await.map_err(Error::application)??;
    }
    Ok(())
}

/// Changes an offer repeatedly, each time to a lower price than before, and waits until its
/// product has that price. Returns how long each change took.
async fn change(db: Percolator, ends: Arc<AtomicBool>) -> Result<Vec<Duration>> {
    let (offers, products) = (db.table("offers").await?, db.table("products").await?);
    // The offer of a product that the load does not use.
    let product = u64::MAX;
    let mut delays = Vec::new();
    for price in (1..1_000_000u64).rev() {
        if ends.load(SeqCst) {
            break;
        }
        let since = Instant::now();
        let value = encode(product, price);
        db.transact(async |mut tx| tx.set(&offers, offer_row(u64::MAX), &OFFER, value.clone()))
            .await?;
        let wanted = price.to_be_bytes();
        loop {
            let row = product_row(product);
            let lowest = db.snapshot().await?.get(&products, row, &LOWEST).await?;
            if lowest.as_deref() == Some(&wanted[..]) {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        delays.push(since.elapsed());
        tokio::time::sleep(CHANGE_EVERY).await;
    }
    Ok(delays)
}

/// The results of a load.
#[derive(Debug)]
pub struct Report {
    /// The CPU time of the process until all offers were loaded, and until all were derived.
    pub cpu: Option<(Duration, Duration)>,
    /// The time until all offers were loaded, until no hint waited, and until all were
    /// derived.
    pub time: (Duration, Duration, Duration),
    /// The longest backlog of the workers.
    pub backlog: usize,
    /// How long the changes during the load took to reach their product, the quickest first.
    pub delays: Vec<Duration>,
    /// The number of products with all their offers.
    pub products: u64,
}

/// Loads `offers` offers into a new database in a temporary directory.
pub async fn run(offers: u64, backlog_max: usize) -> Result<Report> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let name = format!("catalogue-{}-{}", std::process::id(), RUNS.fetch_add(1, SeqCst));
    let dir = std::env::temp_dir().join(name);
    let options = OpenOptions {
        durability: Durability::Buffered,
        client: Options { backlog_max, ..Options::default() },
        ..OpenOptions::default()
    };
    let db = Percolator::open_with(&dir, options).await?;
    let (table, products) = (db.table("offers").await?, db.table("products").await?);
    let derive = Derive { products: products.clone() };
    let derive = Registration::strong("derive", "offers", &OFFER, derive);
    let workers = db.observe(vec![derive], WorkerOptions::default()).await?;
    let report = measure(&db, &table, offers).await?;
    let whole = whole(&db, &products).await?;
    workers.stop().await;
    db.close().await?;
    std::fs::remove_dir_all(&dir).map_err(Error::application)?;
    Ok(Report { products: whole, ..report })
}

async fn measure(db: &Percolator, table: &Table, offers: u64) -> Result<Report> {
    let (began, cpu_before) = (Instant::now(), cpu());
    let ends = Arc::new(AtomicBool::new(false));
    let changes = tokio::spawn(change(db.clone(), ends.clone()));
    let most = Arc::new(AtomicUsize::new(0));
    let watch = tokio::spawn({
        let (db, most) = (db.clone(), most.clone());
        async move {
            loop {
                most.fetch_max(db.hints_waiting(), SeqCst);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    });
    load(db, table, offers).await?;
    let (loaded, cpu_loaded) = (began.elapsed(), cpu());
    ends.store(true, SeqCst);
    // Waiting for idleness scans the notifications, which is wasted while hints still wait.
    while db.hints_waiting() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let hints_done = began.elapsed();
    db.wait_idle(None).await?;
    let time = (loaded, hints_done, began.elapsed());
    let spent = |to: Option<Duration>| Some(to?.saturating_sub(cpu_before?));
    let cpu = spent(cpu_loaded).zip(spent(cpu()));
    let mut delays = changes.await.map_err(Error::application)??;
    delays.sort();
    watch.abort();
    Ok(Report { cpu, time, backlog: most.load(SeqCst), delays, products: 0 })
}

/// How many products have all their offers.
async fn whole(db: &Percolator, products: &Table) -> Result<u64> {
    let (now, mut whole) = (db.snapshot().await?, 0);
    let mut scan = now.scan(products).columns([&OFFERS]);
    while let Some(row) = scan.next().await? {
        whole += u64::from(row.cells.iter().all(|(_, all)| pairs(all).count() as u64 == EACH));
    }
    Ok(whole)
}

#[tokio::main]
#[allow(dead_code, clippy::print_stdout, reason = "an example prints, and a test includes it")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let offers = arguments.first().map_or(Ok(20_000), |n| n.parse()).map_err(Error::application)?;
    let unbounded = arguments.iter().any(|argument| argument == "unbounded");
    let backlog_max = if unbounded { usize::MAX } else { Options::default().backlog_max };
    let Report { cpu, time, backlog, delays, products } = run(offers, backlog_max).await?;
    let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / offers as f64;
    println!("offers             {offers} of {products} products");
    if let Some((loaded, done)) = cpu {
        let (loaded, done) = (each(loaded), each(done));
        println!("CPU per offer      {done:.1} us, of which {loaded:.1} us until all was loaded");
    }
    let (loaded, hints, done) = time;
    println!("time               {loaded:.1?} loading, {hints:.1?} hints, {done:.1?} all derived");
    println!("longest backlog    {backlog} changes");
    if let (Some(slowest), Some(median)) = (delays.last(), delays.get(delays.len() / 2)) {
        let changes = delays.len();
        println!("change to product  {median:.1?} median, {slowest:.1?} slowest of {changes}");
    }
    Ok(())
}
