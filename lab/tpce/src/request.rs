//! Defines the requests to a store: one for each transaction, the same for every store.

/// Declares an enum whose variants have names.
macro_rules! named {
    ($(#[$meta:meta])* $public:vis enum $name:ident: $count:literal {
        $($(#[$doc:meta])* $variant:ident = $literal:literal,)*
    }) => {
        $(#[$meta])*
        $public enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All of them.
            $public const ALL: [$name; $count] = [$($name::$variant,)*];

            /// The name in reports and in SQL.
            $public fn name(self) -> &'static str {
                match self { $($name::$variant => $literal,)* }
            }
        }
    };
}

named! {
    /// The types of transactions.
    ///
    /// ```
    /// assert_eq!(tpce::TransactionType::ALL.len(), 11);
    /// assert_eq!(tpce::TransactionType::TradeResult.name(), "trade_result");
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum TransactionType: 11 {
        /// A customer orders a trade.
        TradeOrder = "trade_order",
        /// The market has executed a trade: positions, lots and balance change. This type is the
        /// measure.
        TradeResult = "trade_result",
        /// The market announces prices, and submits the limit orders that they trigger.
        MarketFeed = "market_feed",
        /// The newest trades of an account.
        TradeStatus = "trade_status",
        /// The gain of a list of securities.
        MarketWatch = "market_watch",
        /// Everything about a security and its company.
        SecurityDetail = "security_detail",
        /// The value of a customer's accounts.
        CustomerPosition = "customer_position",
        /// The pending orders of brokers in a sector.
        BrokerVolume = "broker_volume",
        /// Twenty trades with all their records.
        TradeLookup = "trade_lookup",
        /// Twenty trades with all their records, and a correction to each.
        TradeUpdate = "trade_update",
        /// A change to a table that no other type changes.
        DataMaintenance = "data_maintenance",
    }
}

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

/// An order of a customer, or of a person who may trade for the customer.
#[derive(Debug, Clone)]
pub(crate) struct TradeOrder {
    /// The trade's number. It stays the same for all attempts of the order.
    pub(crate) t: u64,
    pub(crate) ca: u64,
    /// The tax id of the person who orders, if not the owner.
    pub(crate) executor_tax_id: Option<String>,
    pub(crate) security: Ordered,
    pub(crate) tt: u8,
    pub(crate) qty: i64,
    /// The limit of a limit order.
    pub(crate) bid: i64,
    pub(crate) margin: bool,
    pub(crate) lifo: bool,
    /// True if an earlier attempt may have been committed.
    pub(crate) maybe_done: bool,
    /// True if the customer rolls the order back at the end.
    pub(crate) roll_back: bool,
    pub(crate) now: u64,
}

/// The way in which an order names its security.
#[derive(Debug, Clone)]
pub(crate) enum Ordered {
    Symbol(u32),
    Issue { company: String, issue: u8 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Execution {
    pub(crate) t: u64,
    pub(crate) price: i64,
    pub(crate) now: u64,
}

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
    pub(crate) fn shares(&self) -> i64 {
        self.ticks.iter().map(|tick| tick.qty).sum()
    }

    /// One tick for each security, with its last price and the sum of its quantities.
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

/// The watched securities, and the day since when.
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

/// The customer whose accounts are read.
#[derive(Debug, Clone)]
pub(crate) struct Position {
    pub(crate) who: Who,
    /// True to include the last ten trades of one of the accounts.
    pub(crate) history: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Who {
    Number(u64),
    TaxId(String),
}

#[derive(Debug, Clone)]
pub(crate) enum Lookup {
    /// Frame 1: these trades.
    Listed(Vec<u64>),
    /// Frame 2: the newest trades of an account, up to a time.
    OfAccount { ca: u64, until: u64 },
    /// Frame 3: the newest trades of a security, up to a time.
    OfSecurity { symb: u32, until: u64 },
    /// Frame 4: the history of the lots of an account's first trade.
    FirstOf { ca: u64 },
}

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

named! {
    /// The tables that are maintained in turns.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Maintained: 12 {
        AccountPermission = "account_permission",
        Address = "address",
        Company = "company",
        Customer = "customer",
        CustomerTaxrate = "customer_taxrate",
        DailyMarket = "daily_market",
        Exchange = "exchange",
        Financial = "financial",
        NewsItem = "news_item",
        Security = "security",
        TaxRate = "taxrate",
        WatchItem = "watch_item",
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Number of items in the answer, and the sum of their values. Two stores with the same
    /// data must agree on both.
    pub(crate) items: u64,
    pub(crate) sum: i64,
    pub(crate) accepted: Vec<Accepted>,
    /// True if nothing was written: an earlier attempt did the work, or the customer rolled it
    /// back.
    pub(crate) unchanged: bool,
    pub(crate) reads: Reads,
}

/// An order for the market, or one that waits for its price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) t: u64,
    pub(crate) symb: u32,
    pub(crate) qty: i64,
    /// True if it goes to the market at once.
    pub(crate) at_once: bool,
}

/// The reads and writes of a transaction; zero for a store that does not count them.
///
/// ```
/// assert_eq!(tpce::Reads::default().gets, 0);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Number of cells read by key.
    pub gets: u64,
    /// Number of scans.
    pub scans: u64,
    /// Number of cells that scans returned.
    pub scanned: u64,
    /// Number of cells written or deleted.
    pub writes: u64,
}

impl Reads {
    pub(crate) fn add(&mut self, other: Reads) {
        self.gets += other.gets;
        self.scans += other.scans;
        self.scanned += other.scanned;
        self.writes += other.writes;
    }
}

impl Answer {
    pub(crate) fn item(&mut self, says: i64) {
        self.items += 1;
        self.sum = self.sum.wrapping_add(says);
    }
}
