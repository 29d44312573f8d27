//! Generates the tables that do not grow with the number of customers.

use crate::Scale;
use crate::model::*;
use crate::scale::names;

use super::stream::{Purpose, Stream};

const EXCHANGES: [&str; 4] = ["NYSE", "NASDAQ", "AMEX", "PCX"];

pub(super) fn rows(scale: Scale) -> impl Iterator<Item = Row> {
    let zip_codes = (1..=scale.zip_codes()).map(|zc| {
        let town = format!("{} Springs", names::last(u64::from(zc)));
        Row::ZipCode(ZipCode { zc, town, division: format!("Division {}", zc % 50) })
    });
    let taxes = (1..=320).map(|tx| {
        let of = if tx <= 160 { "Country" } else { "Division" };
        Row::TaxRate(TaxRate { tx, name: format!("{of} tax {tx}"), rate: Scale::tax_rate(tx) })
    });
    let numbered = |i: usize| u8::try_from(i).expect("there are five of them");
    let statuses = status::NAMES.iter().enumerate().map(move |(i, name)| {
        Row::StatusType(StatusType { st: numbered(i), name: (*name).to_owned() })
    });
    let types = kind::NAMES.iter().enumerate().map(move |(i, name)| {
        let (tt, name) = (numbered(i), (*name).to_owned());
        let (is_sell, is_market) = (kind::is_sell(tt), kind::is_market(tt));
        Row::TradeType(TradeType { tt, name, is_sell, is_market })
    });
    let sectors = (1..=12).map(|sc| Row::Sector(Sector { sc, name: names::sector(sc) }));
    let industries = (1..=102).map(|ind| {
        Row::Industry(Industry { ind, name: names::industry(ind), sc: Scale::sector_of(ind) })
    });
    zip_codes
        .chain(taxes)
        .chain(statuses)
        .chain(types)
        .chain(sectors)
        .chain(industries)
        .chain(exchanges(scale))
        .chain(fees())
}

fn exchanges(scale: Scale) -> impl Iterator<Item = Row> {
    (1..=4_u8).flat_map(move |ex| {
        let name = EXCHANGES[usize::from(ex) - 1].to_owned();
        let securities = (1..=scale.securities()).filter(|s| Scale::exchange_of(*s) == ex).count();
        let (ad, securities) = (u64::from(ex), securities as u32);
        let exchange = Exchange { ex, name, securities, opens: 900, closes: 1700, ad };
        [Row::Exchange(exchange), address(scale, ad)]
    })
}

fn fees() -> impl Iterator<Item = Row> {
    (0..5_u8).flat_map(|tt| (1..=3_u8).map(move |tier| (tt, tier))).flat_map(|(tt, tier)| {
        let charge = Row::Charge(Charge { tt, tier, charge: Scale::charge(tt, tier) });
        let rates = (1..=4_u8).flat_map(move |ex| {
            Scale::QUANTITIES.map(|(from_qty, to_qty)| {
                let rate = Scale::commission_rate(tier, tt, ex, from_qty);
                Row::CommissionRate(CommissionRate { tier, tt, ex, from_qty, to_qty, rate })
            })
        });
        std::iter::once(charge).chain(rates)
    })
}

/// Generates an address. Exchanges, companies and customers have addresses, numbered in this
/// order.
pub(super) fn address(scale: Scale, ad: u64) -> Row {
    let mut stream = Stream::new(scale.seed, Purpose::Dimensions, ad);
    Row::Address(Address {
        ad,
        line1: format!("{} {} Street", stream.between(1, 9_999), names::last(stream.next())),
        line2: format!("Floor {}", stream.between(1, 40)),
        zc: stream.between(1, u64::from(scale.zip_codes())) as u32,
        country: "USA".to_owned(),
    })
}
