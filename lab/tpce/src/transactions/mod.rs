//! Implements the transactions, one file for each type. Each chooses by hand which rows to read
//! in which order, and which index rows to write (paper section 3.3: "we created indexes and
//! performed all 'query planning' by hand").
//!
//! Each function is one attempt. The caller commits it and, after a conflict, runs it again.

mod broker_volume;
mod customer_position;
mod data_maintenance;
mod market_feed;
mod market_watch;
mod security_detail;
mod session;
mod trade_lookup;
mod trade_order;
mod trade_result;
mod trade_status;
mod trade_update;

pub(crate) use session::{Session, cell};

use percolator::Result;

use crate::request::{Answer, Request};

pub(crate) async fn run(session: &mut Session, request: &Request) -> Result<Answer> {
    match request {
        Request::TradeOrder(order) => trade_order::run(session, order).await,
        Request::TradeResult(execution) => trade_result::run(session, *execution).await,
        Request::MarketFeed(feed) => market_feed::run(session, feed).await,
        Request::TradeStatus { ca } => trade_status::run(session, *ca).await,
        Request::MarketWatch(watch) => market_watch::run(session, watch).await,
        Request::SecurityDetail { symb, from_day, days } => {
            security_detail::run(session, *symb, *from_day, *days).await
        }
        Request::CustomerPosition(position) => customer_position::run(session, position).await,
        Request::BrokerVolume { brokers, sector } => {
            broker_volume::run(session, brokers, sector).await
        }
        Request::TradeLookup(lookup) => trade_lookup::run(session, lookup).await,
        Request::TradeUpdate(lookup) => trade_update::run(session, lookup).await,
        Request::DataMaintenance(change) => data_maintenance::run(session, change).await,
    }
}
