//! Defines the records of all 33 tables, each with its key.
//!
//! Money is in whole cents, and rates are in hundredths of a percent. Times are milliseconds of
//! market time (0 is the first day's opening), and days are counted from a fixed one.
//! Securities have numbers instead of TPC-E's symbols. Each table has only some of TPC-E's
//! descriptive columns, so that records have a realistic size.

use percolator::{Bytes, Column, RowKey};
use serde::{Deserialize, Serialize};

use super::stored::Stored;

/// A value of a column, with the type that PostgreSQL needs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Number(i64),
    Text(&'a str),
    Flag(bool),
}

pub(crate) trait Field {
    /// The type in SQL.
    const SQL: &'static str;

    fn value(&self) -> Value<'_>;
}

macro_rules! number_fields {
    ($($type:ty => $sql:literal),*) => {$(
        impl Field for $type {
            const SQL: &'static str = $sql;

            fn value(&self) -> Value<'_> {
                // Keys and amounts are far below 2^63.
                Value::Number(i64::try_from(*self).unwrap_or(i64::MAX))
            }
        }
    )*};
}

number_fields!(u8 => "smallint", u32 => "integer", u64 => "bigint", i64 => "bigint");

impl Field for String {
    const SQL: &'static str = "text";

    fn value(&self) -> Value<'_> {
        Value::Text(self)
    }
}

impl Field for bool {
    const SQL: &'static str = "boolean";

    fn value(&self) -> Value<'_> {
        Value::Flag(*self)
    }
}

/// The fields of a record, for any store.
pub(crate) trait Record: Serialize {
    /// Names and SQL types of its fields.
    const FIELDS: &'static [(&'static str, &'static str)];

    fn values(&self) -> Vec<Value<'_>>;
}

macro_rules! records {
    ($($name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? })*) => {$(
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) struct $name { $($(#[$attribute])* pub(crate) $field: $type,)* }

        impl Record for $name {
            const FIELDS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), <$type as Field>::SQL),)*];

            fn values(&self) -> Vec<Value<'_>> {
                vec![$(self.$field.value(),)*]
            }
        }
    )*};
}

/// Declares tables: the record of each, and its name and key in SQL.
macro_rules! tables {
    ($($name:ident $table:literal [$($key:ident),*] { $($fields:tt)* })*) => {
        records! { $($name { $($fields)* })* }

        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) enum Row {
            $($name($name),)*
            /// A trade with its state, which is stored in a cell of its own.
            Trade(Trade, TradeState),
        }

        impl Row {
            /// The cells of the row, those of its index rows included.
            pub(crate) fn cells(&self) -> Vec<(RowKey, Column, Bytes)> {
                match self {
                    $(Row::$name(record) => record.cells(),)*
                    Row::Trade(trade, state) => {
                        let mut cells = trade.cells();
                        cells.push(state.cell(trade.t));
                        cells
                    }
                }
            }

            /// The name of the row's table in SQL, and its values.
            pub(crate) fn values(&self) -> (&'static str, Vec<Value<'_>>) {
                match self {
                    $(Row::$name(record) => ($table, record.values()),)*
                    Row::Trade(trade, state) => {
                        let mut values = trade.values();
                        values.extend(state.values());
                        ("trade", values)
                    }
                }
            }
        }

        pub(crate) const DEFINITIONS: &[Definition] = &[
            $(Definition {
                table: $table,
                fields: &[<$name as Record>::FIELDS],
                key: &[$(stringify!($key)),*],
            },)*
            Definition {
                table: "trade",
                fields: &[Trade::FIELDS, TradeState::FIELDS],
                key: &["t"],
            },
            // No orders are pending before the run, so this table has no rows.
            Definition { table: "trade_request", fields: &[TradeRequest::FIELDS], key: &["t"] },
        ];
    };
}

#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) table: &'static str,
    pub(crate) fields: &'static [&'static [(&'static str, &'static str)]],
    pub(crate) key: &'static [&'static str],
}

impl Definition {
    pub(crate) fn all() -> &'static [Definition] {
        DEFINITIONS
    }
}

tables! {
    // Dimensions.
    ZipCode "zip_code" [zc] { zc: u32, town: String, division: String }
    TaxRate "taxrate" [tx] { tx: u32, name: String, rate: i64 }
    StatusType "status_type" [st] { st: u8, name: String }
    Address "address" [ad] { ad: u64, line1: String, line2: String, zc: u32, country: String }
    // Market.
    Exchange "exchange" [ex] {
        ex: u8, name: String, securities: u32, opens: u32, closes: u32, ad: u64,
    }
    Sector "sector" [sc] { sc: u8, name: String }
    Industry "industry" [ind] { ind: u32, name: String, sc: u8 }
    Company "company" [co] {
        co: u32, status: u8, name: String, ind: u32, rating: String, ceo: String, ad: u64,
        description: String, founded_day: u32,
    }
    Competitor "company_competitor" [co, comp] { co: u32, comp: u32, ind: u32 }
    Financial "financial" [co, year, qtr] {
        co: u32, year: u32, qtr: u8, start_day: u32, revenue: i64, net_earn: i64, basic_eps: i64,
        diluted_eps: i64, margin: i64, inventory: i64, assets: i64, liabilities: i64, out_basic: i64,
        out_diluted: i64,
    }
    NewsItem "news_item" [ni] {
        ni: u32, headline: String, summary: String, item: String, dts: u64, source: String,
        author: String,
    }
    NewsXref "news_xref" [co, ni] { co: u32, ni: u32 }
    Security "security" [symb] {
        symb: u32, issue: u8, status: u8, name: String, ex: u8, co: u32, num_out: i64,
        start_day: u32, pe: i64, high52: i64, high52_day: u32, low52: i64, low52_day: u32,
        dividend: i64, yields: i64,
    }
    LastTrade "last_trade" [symb] { symb: u32, price: i64, dts: u64, open_price: i64, vol: i64 }
    DailyMarket "daily_market" [symb, day] {
        symb: u32, day: u32, close: i64, high: i64, low: i64, vol: i64,
    }
    // Customers.
    Customer "customer" [c] {
        c: u64, tax_id: String, status: u8, last_name: String, first_name: String, gender: u8,
        born_day: u32, ad: u64, phone: String, email: String,
        /// Stored in a cell of its own.
        #[serde(skip)]
        tier: u8,
    }
    CustomerTaxrate "customer_taxrate" [c, tx] { c: u64, tx: u32 }
    CustomerAccount "customer_account" [ca] {
        ca: u64, b: u32, c: u64, name: String, tax_status: u8,
        /// The balance before the first trade.
        opening: i64,
        /// Stored in a cell of its own.
        #[serde(skip)]
        bal: i64,
    }
    AccountPermission "account_permission" [ca, tax_id] {
        ca: u64, tax_id: String, acl: String, last_name: String, first_name: String,
    }
    Holding "holding" [ca, symb, dts, t] {
        ca: u64, symb: u32, dts: u64, t: u64, qty: i64, price: i64,
    }
    HoldingSummary "holding_summary" [ca, symb] { ca: u64, symb: u32, qty: i64 }
    HoldingHistory "holding_history" [t, h] { t: u64, h: u64, before: i64, after: i64 }
    WatchList "watch_list" [c] { c: u64, wl: u64 }
    WatchItem "watch_item" [wl, symb] { wl: u64, symb: u32 }
    // Brokers.
    Broker "broker" [b] { b: u32, status: u8, name: String, trades: u64, commission: i64 }
    TradeType "trade_type" [tt] { tt: u8, name: String, is_sell: bool, is_market: bool }
    Charge "charge" [tt, tier] { tt: u8, tier: u8, charge: i64 }
    CommissionRate "commission_rate" [tier, tt, ex, from_qty] {
        tier: u8, tt: u8, ex: u8, from_qty: u32, to_qty: u32, rate: i64,
    }
    TradeHistory "trade_history" [t, seq] { t: u64, seq: u8, dts: u64, status: u8 }
    Settlement "settlement" [t] { t: u64, cash_type: String, due_day: u32, amt: i64 }
    CashTransaction "cash_transaction" [t] { t: u64, dts: u64, amt: i64, name: String }
}

// A trade and its state are one row. No orders are pending before the run.
records! {
    Trade {
        t: u64, ca: u64, symb: u32, tt: u8, qty: i64, bid: i64, executor: String, lifo: bool,
        is_cash: bool, entered: u64,
    }
    TradeState { status: u8, dts: u64, price: i64, charge: i64, commission: i64, tax: i64 }
    TradeRequest { t: u64, tt: u8, symb: u32, qty: i64, bid: i64, b: u32, sc: u8 }
}

/// The states of trades, customers, companies and securities.
pub(crate) mod status {
    pub(crate) const COMPLETED: u8 = 0;
    pub(crate) const ACTIVE: u8 = 1;
    pub(crate) const SUBMITTED: u8 = 2;
    pub(crate) const PENDING: u8 = 3;
    pub(crate) const CANCELLED: u8 = 4;
    pub(crate) const NAMES: [&str; 5] =
        ["Completed", "Active", "Submitted", "Pending", "Cancelled"];
}

/// The types of trades.
pub(crate) mod kind {
    pub(crate) const MARKET_BUY: u8 = 0;
    pub(crate) const MARKET_SELL: u8 = 1;
    pub(crate) const LIMIT_BUY: u8 = 2;
    pub(crate) const LIMIT_SELL: u8 = 3;
    pub(crate) const STOP_LOSS: u8 = 4;
    pub(crate) const NAMES: [&str; 5] =
        ["Market-Buy", "Market-Sell", "Limit-Buy", "Limit-Sell", "Stop-Loss"];

    pub(crate) fn is_sell(tt: u8) -> bool {
        matches!(tt, MARKET_SELL | LIMIT_SELL | STOP_LOSS)
    }

    pub(crate) fn is_market(tt: u8) -> bool {
        matches!(tt, MARKET_BUY | MARKET_SELL)
    }

    /// True if a limit order goes to the market at this price.
    pub(crate) fn is_triggered(tt: u8, limit: i64, price: i64) -> bool {
        match tt {
            LIMIT_BUY | STOP_LOSS => price <= limit,
            LIMIT_SELL => price >= limit,
            _ => false,
        }
    }
}
