//! What is asked of a store: one request for each transaction, the same for every store.

/// The types of transactions.
///
/// ```
/// assert_eq!(tpce::TransactionType::ALL.len(), 11);
/// assert_eq!(tpce::TransactionType::TradeResult.name(), "trade_result");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TransactionType {
    /// A customer orders a trade.
    TradeOrder,
    /// The market has executed a trade: positions, lots, balance. What is counted.
    TradeResult,
    /// The market tells prices; limit orders that they trigger are submitted.
    MarketFeed,
    /// The newest trades of an account.
    TradeStatus,
    /// How a list of securities does.
    MarketWatch,
    /// Everything about a security and its company.
    SecurityDetail,
    /// What a customer's accounts are worth.
    CustomerPosition,
    /// The pending orders of brokers in a sector.
    BrokerVolume,
    /// Twenty trades with all that belongs to them.
    TradeLookup,
    /// The same, with a correction to each.
    TradeUpdate,
    /// A change to a table that nothing else changes.
    DataMaintenance,
}

impl TransactionType {
    /// All of them.
    pub const ALL: [TransactionType; 11] = [
        TransactionType::TradeOrder,
        TransactionType::TradeResult,
        TransactionType::MarketFeed,
        TransactionType::TradeStatus,
        TransactionType::MarketWatch,
        TransactionType::SecurityDetail,
        TransactionType::CustomerPosition,
        TransactionType::BrokerVolume,
        TransactionType::TradeLookup,
        TransactionType::TradeUpdate,
        TransactionType::DataMaintenance,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            TransactionType::TradeOrder => "trade_order",
            TransactionType::TradeResult => "trade_result",
            TransactionType::MarketFeed => "market_feed",
            TransactionType::TradeStatus => "trade_status",
            TransactionType::MarketWatch => "market_watch",
            TransactionType::SecurityDetail => "security_detail",
            TransactionType::CustomerPosition => "customer_position",
            TransactionType::BrokerVolume => "broker_volume",
            TransactionType::TradeLookup => "trade_lookup",
            TransactionType::TradeUpdate => "trade_update",
            TransactionType::DataMaintenance => "data_maintenance",
        }
    }
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    TradeOrder(TradeOrder),
    TradeResult(Execution),
    MarketFeed(Feed),
    TradeStatus { ca: u64 },
    MarketWatch(Watch),
    SecurityDetail { symb: u32, from_day: u32, days: u32 },
    CustomerPosition(Position),
    BrokerVolume { brokers: Vec<String>, sector: String },
    TradeLookup(Lookup),
    TradeUpdate(Lookup),
    DataMaintenance(Maintenance),
}

impl Request {
    pub(crate) fn kind(&self) -> TransactionType {
        match self {
            Request::TradeOrder(_) => TransactionType::TradeOrder,
            Request::TradeResult(_) => TransactionType::TradeResult,
            Request::MarketFeed(_) => TransactionType::MarketFeed,
            Request::TradeStatus { .. } => TransactionType::TradeStatus,
            Request::MarketWatch(_) => TransactionType::MarketWatch,
            Request::SecurityDetail { .. } => TransactionType::SecurityDetail,
            Request::CustomerPosition(_) => TransactionType::CustomerPosition,
            Request::BrokerVolume { .. } => TransactionType::BrokerVolume,
            Request::TradeLookup(_) => TransactionType::TradeLookup,
            Request::TradeUpdate(_) => TransactionType::TradeUpdate,
            Request::DataMaintenance(_) => TransactionType::DataMaintenance,
        }
    }
}

/// An order of a customer, or of somebody who may trade for them.
#[derive(Debug, Clone)]
pub(crate) struct TradeOrder {
    /// The trade's number; one order has one, however often it is tried.
    pub(crate) t: u64,
    pub(crate) ca: u64,
    /// Who orders, if not the owner.
    pub(crate) executor_tax_id: Option<String>,
    pub(crate) security: Ordered,
    pub(crate) tt: u8,
    pub(crate) qty: i64,
    /// The limit of a limit order.
    pub(crate) bid: i64,
    pub(crate) margin: bool,
    pub(crate) lifo: bool,
    /// An attempt may have been committed without anybody knowing.
    pub(crate) maybe_done: bool,
    /// The customer changes their mind before the end.
    pub(crate) roll_back: bool,
    pub(crate) now: u64,
}

/// How an order names its security.
#[derive(Debug, Clone)]
pub(crate) enum Ordered {
    Symbol(u32),
    Issue { company: String, issue: u8 },
}

/// A trade as the market executed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Execution {
    pub(crate) t: u64,
    pub(crate) price: i64,
    pub(crate) now: u64,
}

/// Prices that the market tells.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    pub(crate) ticks: Vec<Tick>,
    pub(crate) now: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tick {
    pub(crate) symb: u32,
    pub(crate) price: i64,
    pub(crate) qty: i64,
}

impl Feed {
    /// The quantities of all ticks.
    pub(crate) fn shares(&self) -> i64 {
        self.ticks.iter().map(|tick| tick.qty).sum()
    }

    /// One tick for each security: its last price, all of its quantities.
    pub(crate) fn by_security(&self) -> Vec<Tick> {
        let mut merged = std::collections::BTreeMap::<u32, Tick>::new();
        for tick in &self.ticks {
            let sum = merged.entry(tick.symb).or_insert(Tick { qty: 0, ..*tick });
            sum.price = tick.price;
            sum.qty += tick.qty;
        }
        merged.into_values().collect()
    }
}

/// Which securities are watched, and since when.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) what: Watched,
    pub(crate) day: u32,
}

#[derive(Debug, Clone)]
pub(crate) enum Watched {
    List { c: u64 },
    Account { ca: u64 },
    Industry { name: String },
}

/// Whose accounts are looked at.
#[derive(Debug, Clone)]
pub(crate) struct Position {
    pub(crate) who: Who,
    /// The last ten trades of one of the accounts, too.
    pub(crate) history: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Who {
    Number(u64),
    TaxId(String),
}

/// Which trades are looked up.
#[derive(Debug, Clone)]
pub(crate) enum Lookup {
    /// Frame 1: these.
    Listed(Vec<u64>),
    /// Frame 2: the newest of an account, up to a time.
    OfAccount { ca: u64, until: u64 },
    /// Frame 3: the newest of a security, up to a time.
    OfSecurity { symb: u32, until: u64 },
    /// Frame 4: what became of the lots of an account's first trade.
    FirstOf { ca: u64 },
}

/// How many trades a lookup returns at most.
pub(crate) const LOOKUP_TRADES: usize = 20;

/// A change to one of twelve tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Maintenance {
    pub(crate) table: Maintained,
    pub(crate) c: u64,
    pub(crate) ca: u64,
    pub(crate) co: u32,
    pub(crate) symb: u32,
    pub(crate) day: u32,
    pub(crate) tx: u32,
    pub(crate) ex: u8,
    pub(crate) ni: u32,
}

/// The tables that are maintained, in turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maintained {
    AccountPermission,
    Address,
    Company,
    Customer,
    CustomerTaxrate,
    DailyMarket,
    Exchange,
    Financial,
    NewsItem,
    Security,
    TaxRate,
    WatchItem,
}

impl Maintained {
    pub(crate) const ALL: [Maintained; 12] = [
        Maintained::AccountPermission,
        Maintained::Address,
        Maintained::Company,
        Maintained::Customer,
        Maintained::CustomerTaxrate,
        Maintained::DailyMarket,
        Maintained::Exchange,
        Maintained::Financial,
        Maintained::NewsItem,
        Maintained::Security,
        Maintained::TaxRate,
        Maintained::WatchItem,
    ];
}

/// What came of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// How many items the answer has, and a sum over what they say: two stores with the same data
    /// must agree on both.
    pub(crate) items: u64,
    pub(crate) sum: i64,
    /// Orders that were taken.
    pub(crate) accepted: Vec<Accepted>,
    /// Nothing was written: the work was done before, or the customer changed their mind.
    pub(crate) unchanged: bool,
    pub(crate) reads: Reads,
}

/// An order for the market, or one that waits for its price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) t: u64,
    pub(crate) symb: u32,
    pub(crate) qty: i64,
    /// Whether it goes to the market at once.
    pub(crate) at_once: bool,
}

/// What a transaction read and wrote; of a store that does not tell, nothing.
///
/// ```
/// assert_eq!(tpce::Reads::default().cells(), 0);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Cells asked for by key.
    pub gets: u64,
    /// Scans.
    pub scans: u64,
    /// Cells that scans returned.
    pub scanned: u64,
    /// Cells written or deleted.
    pub writes: u64,
}

impl Reads {
    /// Cells read, either way.
    pub fn cells(&self) -> u64 {
        self.gets + self.scanned
    }

    pub(crate) fn add(&mut self, other: Reads) {
        self.gets += other.gets;
        self.scans += other.scans;
        self.scanned += other.scanned;
        self.writes += other.writes;
    }
}

impl Answer {
    /// Adds an item to the answer.
    pub(crate) fn item(&mut self, says: i64) {
        self.items += 1;
        self.sum = self.sum.wrapping_add(says);
    }
}
