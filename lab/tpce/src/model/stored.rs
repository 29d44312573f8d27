//! Defines the cells of each record, those of its index rows included.
//!
//! Invariant: transactions write and remove whole records only through [`Stored::cells`]. So a
//! row is never written or removed without its index rows.

use percolator::{Bytes, Column, Error, RowKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::key::{Key, index};
use super::record::*;

/// The fields of a record that have no cell of their own.
pub(crate) const D: Column = Column::literal("d");
pub(crate) const TIER: Column = Column::literal("tier");
pub(crate) const BAL: Column = Column::literal("bal");
pub(crate) const NAME: Column = Column::literal("name");
/// A security's last price with its time, and the first price of the day; a lot's price.
pub(crate) const PRICE: Column = Column::literal("price");
/// A security's traded volume.
pub(crate) const VOL: Column = Column::literal("vol");
pub(crate) const QTY: Column = Column::literal("qty");
pub(crate) const STATE: Column = Column::literal("s");

/// The cell [`PRICE`] of a security.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Price {
    pub(crate) price: i64,
    pub(crate) dts: u64,
    pub(crate) open_price: i64,
}

pub(crate) trait Stored: Record {
    /// The key of the record's own row.
    fn key(&self) -> RowKey;

    /// The cells of the record's own row.
    fn own_cells(&self) -> Vec<(Column, Bytes)> {
        vec![(D, encode(self))]
    }

    fn index_rows(&self) -> Vec<(RowKey, Bytes)> {
        Vec::new()
    }

    fn cells(&self) -> Vec<(RowKey, Column, Bytes)> {
        let key = self.key();
        let own = self.own_cells().into_iter().map(|(column, value)| (key.clone(), column, value));
        own.chain(self.index_rows().into_iter().map(|(row, value)| (row, D, value))).collect()
    }
}

pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Bytes {
    postcard::to_stdvec(value).expect("records are plain data, which always encodes").into()
}

pub(crate) fn decode<T: DeserializeOwned>(value: &[u8]) -> percolator::Result<T> {
    postcard::from_bytes(value).map_err(Error::application)
}

/// The keys of single rows.
pub(crate) mod keys {
    use super::*;

    macro_rules! keys {
        ($($name:ident($($part:ident: $type:ty),*) = $prefix:literal $(.$write:ident($written:ident))*;)*) => {$(
            pub(crate) fn $name($($part: $type),*) -> RowKey {
                Key::of($prefix)$(.$write($written))*.row()
            }
        )*};
    }

    keys! {
        zip_code(zc: u32) = "ZC:".short(zc);
        tax_rate(tx: u32) = "TX:".short(tx);
        status_type(st: u8) = "ST:".byte(st);
        address(ad: u64) = "AD:".long(ad);
        exchange(ex: u8) = "EX:".byte(ex);
        sector(sc: u8) = "SC:".byte(sc);
        industry(ind: u32) = "IN:".short(ind);
        company(co: u32) = "CO:".short(co);
        competitor(co: u32, comp: u32) = "CP:".short(co).short(comp);
        competitors(co: u32) = "CP:".short(co);
        financial(co: u32, year: u32, qtr: u8) = "FI:".short(co).short(year).byte(qtr);
        financials(co: u32) = "FI:".short(co);
        news_item(ni: u32) = "NI:".short(ni);
        news_xref(co: u32, ni: u32) = "NX:".short(co).short(ni);
        news_xrefs(co: u32) = "NX:".short(co);
        security(symb: u32) = "S:".short(symb);
        last_trade(symb: u32) = "LT:".short(symb);
        daily_market(symb: u32, day: u32) = "DM:".short(symb).short(day);
        customer(c: u64) = "C:".long(c);
        customer_taxrate(c: u64, tx: u32) = "CX:".long(c).short(tx);
        customer_taxrates(c: u64) = "CX:".long(c);
        account(ca: u64) = "CA:".long(ca);
        permission(ca: u64, tax_id: &str) = "AP:".long(ca).text(tax_id);
        permissions(ca: u64) = "AP:".long(ca);
        lot(ca: u64, symb: u32, dts: u64, t: u64) = "H:".long(ca).short(symb).long(dts).long(t);
        lots(ca: u64, symb: u32) = "H:".long(ca).short(symb);
        position(ca: u64, symb: u32) = "HS:".long(ca).short(symb);
        positions(ca: u64) = "HS:".long(ca);
        holding_history(t: u64, h: u64) = "HH:".long(t).long(h);
        holding_histories(t: u64) = "HH:".long(t);
        watch_list(c: u64) = "WL:".long(c);
        watch_item(wl: u64, symb: u32) = "WI:".long(wl).short(symb);
        watch_items(wl: u64) = "WI:".long(wl);
        broker(b: u32) = "B:".short(b);
        trade_type(tt: u8) = "TT:".byte(tt);
        charge(tt: u8, tier: u8) = "CH:".byte(tt).byte(tier);
        commission_rates(tier: u8, tt: u8, ex: u8) = "CR:".byte(tier).byte(tt).byte(ex);
        commission_rate(tier: u8, tt: u8, ex: u8, from: u32) =
            "CR:".byte(tier).byte(tt).byte(ex).short(from);
        trade(t: u64) = "T:".long(t);
        trade_history(t: u64, seq: u8) = "TH:".long(t).byte(seq);
        settlement(t: u64) = "SE:".long(t);
        cash_transaction(t: u64) = "CT:".long(t);
        request(t: u64) = "TR:".long(t);
    }
}

macro_rules! stored {
    ($($name:ident |$it:ident| $key:expr
        $(, cells [$($column:ident => $cell:expr),+])?
        $(, index $row:expr => $value:expr)*
    ;)*) => {$(
        impl Stored for $name {
            fn key(&self) -> RowKey {
                let $it = self;
                $key
            }

            $(fn own_cells(&self) -> Vec<(Column, Bytes)> {
                let $it = self;
                vec![$(($column, encode(&$cell)),)+]
            })?

            fn index_rows(&self) -> Vec<(RowKey, Bytes)> {
                #[allow(unused_variables, reason = "most records are in no index")]
                let $it = self;
                vec![$(($row, encode(&$value)),)*]
            }
        }
    )*};
}

stored! {
    ZipCode |it| keys::zip_code(it.zc);
    TaxRate |it| keys::tax_rate(it.tx);
    StatusType |it| keys::status_type(it.st);
    Address |it| keys::address(it.ad);
    Exchange |it| keys::exchange(it.ex);
    Sector |it| keys::sector(it.sc),
        index Key::of(index::SECTOR_BY_NAME).text(&it.name).row() => it.sc;
    Industry |it| keys::industry(it.ind),
        index Key::of(index::INDUSTRY_BY_NAME).text(&it.name).row() => it.ind;
    Company |it| keys::company(it.co),
        index Key::of(index::COMPANY_BY_NAME).text(&it.name).row() => it.co,
        index Key::of(index::COMPANY_BY_INDUSTRY).short(it.ind).short(it.co).row() => ();
    Competitor |it| keys::competitor(it.co, it.comp);
    Financial |it| keys::financial(it.co, it.year, it.qtr);
    NewsItem |it| keys::news_item(it.ni);
    NewsXref |it| keys::news_xref(it.co, it.ni);
    Security |it| keys::security(it.symb),
        index Key::of(index::SECURITY_BY_COMPANY).short(it.co).byte(it.issue).short(it.symb).row()
            => ();
    DailyMarket |it| keys::daily_market(it.symb, it.day);
    CustomerTaxrate |it| keys::customer_taxrate(it.c, it.tx);
    AccountPermission |it| keys::permission(it.ca, &it.tax_id);
    Customer |it| keys::customer(it.c), cells [D => it, TIER => it.tier],
        index Key::of(index::CUSTOMER_BY_TAX_ID).text(&it.tax_id).row() => it.c;
    CustomerAccount |it| keys::account(it.ca), cells [D => it, BAL => it.bal],
        index Key::of(index::ACCOUNT_BY_CUSTOMER).long(it.c).long(it.ca).row() => ();
    Broker |it| keys::broker(it.b), cells [D => it, NAME => it.name],
        index Key::of(index::BROKER_BY_NAME).text(&it.name).row() => it.b;
    LastTrade |it| keys::last_trade(it.symb), cells [
        PRICE => Price { price: it.price, dts: it.dts, open_price: it.open_price },
        VOL => it.vol
    ];
    Holding |it| keys::lot(it.ca, it.symb, it.dts, it.t), cells [QTY => it.qty, PRICE => it.price];
    HoldingSummary |it| keys::position(it.ca, it.symb), cells [QTY => it.qty];
    HoldingHistory |it| keys::holding_history(it.t, it.h),
        index Key::of(index::HISTORY_BY_LOT).long(it.h).long(it.t).row() => ();
    WatchList |it| keys::watch_list(it.c);
    WatchItem |it| keys::watch_item(it.wl, it.symb);
    TradeType |it| keys::trade_type(it.tt);
    Charge |it| keys::charge(it.tt, it.tier);
    CommissionRate |it| keys::commission_rate(it.tier, it.tt, it.ex, it.from_qty);
    Trade |it| keys::trade(it.t),
        index Key::of(index::TRADE_BY_ACCOUNT).long(it.ca).newest_first(it.t).row() => it.entered,
        index Key::of(index::TRADE_BY_SECURITY).short(it.symb).newest_first(it.t).row()
            => it.entered;
    TradeHistory |it| keys::trade_history(it.t, it.seq);
    Settlement |it| keys::settlement(it.t);
    CashTransaction |it| keys::cash_transaction(it.t);
    TradeRequest |it| keys::request(it.t),
        index request_by_security(it) => (),
        index Key::of(index::REQUEST_BY_BROKER).short(it.b).byte(it.sc).long(it.t).row() => ();
}

fn request_by_security(it: &TradeRequest) -> RowKey {
    // Prices are not negative.
    let bid = u64::try_from(it.bid).unwrap_or_default();
    Key::of(index::REQUEST_BY_SECURITY).short(it.symb).byte(it.tt).long(bid).long(it.t).row()
}

impl TradeState {
    /// The cell of the state, in the trade's own row.
    pub(crate) fn cell(&self, t: u64) -> (RowKey, Column, Bytes) {
        (keys::trade(t), STATE, encode(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trade_has_two_index_rows_and_its_state_apart() {
        let trade = Trade {
            t: 9,
            ca: 1,
            symb: 2,
            tt: kind::LIMIT_BUY,
            qty: 100,
            bid: 2500,
            executor: "Ann".to_owned(),
            lifo: false,
            is_cash: true,
            entered: 77,
        };
        let cells = trade.cells();
        assert_eq!(cells.len(), 3);
        assert_eq!(decode::<Trade>(&cells[0].2).unwrap(), trade);
        assert_eq!(decode::<u64>(&cells[1].2).unwrap(), 77);
        assert!(cells.iter().all(|(_, column, _)| *column == D));
    }

    #[test]
    fn hot_fields_are_not_in_the_packed_cell() {
        let account = |bal| CustomerAccount {
            ca: 1,
            b: 1,
            c: 1,
            name: String::new(),
            tax_status: 1,
            opening: 5,
            bal,
        };
        let (one, two) = (account(1).cells(), account(2).cells());
        assert_eq!(one[0], two[0]);
        assert_ne!(one[1], two[1]);
        assert_eq!(decode::<i64>(&two[1].2).unwrap(), 2);
    }

    #[test]
    fn pending_orders_sort_by_security_type_and_price() {
        let row = |symb, tt, bid, t| {
            request_by_security(&TradeRequest { t, tt, symb, qty: 1, bid, b: 1, sc: 1 })
        };
        assert!(row(1, 2, 2_000, 9) < row(1, 2, 2_001, 1));
        assert!(row(1, 2, 9_999, 9) < row(1, 3, 1, 1));
        assert!(row(1, 4, 9_999, 9) < row(2, 2, 1, 1));
    }
}
