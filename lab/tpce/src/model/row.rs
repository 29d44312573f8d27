//! Defines a row of any table, which the generator makes and the loaders take.

use percolator::{Bytes, Column, RowKey};

use super::record::*;
use super::stored::Stored;

macro_rules! rows {
    ($($name:ident => $table:literal [$($key:ident),*]),* $(,)?) => {
        /// A row of any table.
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

        /// The tables in SQL.
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

/// A table in SQL.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) table: &'static str,
    /// Names and types of the fields.
    pub(crate) fields: &'static [&'static [(&'static str, &'static str)]],
    pub(crate) key: &'static [&'static str],
}

impl Definition {
    pub(crate) fn all() -> &'static [Definition] {
        DEFINITIONS
    }
}

rows! {
    ZipCode => "zip_code" [zc],
    TaxRate => "taxrate" [tx],
    StatusType => "status_type" [st],
    Address => "address" [ad],
    Exchange => "exchange" [ex],
    Sector => "sector" [sc],
    Industry => "industry" [ind],
    Company => "company" [co],
    Competitor => "company_competitor" [co, comp],
    Financial => "financial" [co, year, qtr],
    NewsItem => "news_item" [ni],
    NewsXref => "news_xref" [co, ni],
    Security => "security" [symb],
    LastTrade => "last_trade" [symb],
    DailyMarket => "daily_market" [symb, day],
    Customer => "customer" [c],
    CustomerTaxrate => "customer_taxrate" [c, tx],
    CustomerAccount => "customer_account" [ca],
    AccountPermission => "account_permission" [ca, tax_id],
    Holding => "holding" [ca, symb, dts, t],
    HoldingSummary => "holding_summary" [ca, symb],
    HoldingHistory => "holding_history" [t, h],
    WatchList => "watch_list" [c],
    WatchItem => "watch_item" [wl, symb],
    Broker => "broker" [b],
    TradeType => "trade_type" [tt],
    Charge => "charge" [tt, tier],
    CommissionRate => "commission_rate" [tier, tt, ex, from_qty],
    TradeHistory => "trade_history" [t, seq],
    Settlement => "settlement" [t],
    CashTransaction => "cash_transaction" [t],
}
