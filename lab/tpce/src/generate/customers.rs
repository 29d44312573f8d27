//! Generates customers, the permissions to trade for them, their watch lists, and the brokers.
//! The accounts come with the history, which determines the balances.

use crate::Scale;
use crate::model::*;
use crate::scale::names;

use super::dimensions::address;
use super::stream::{Purpose, Stream};

pub(super) fn rows(scale: Scale) -> impl Iterator<Item = Row> {
    let brokers = (1..=scale.brokers()).map(|b| {
        let name = names::broker(b);
        Row::Broker(Broker { b, status: status::ACTIVE, name, trades: 0, commission: 0 })
    });
    brokers.chain((1..=scale.customers).flat_map(move |c| customer(scale, c)))
}

pub(crate) fn name(c: u64) -> (String, String) {
    (names::first(c).to_owned(), format!("{} {c}", names::last(c)))
}

fn customer(scale: Scale, c: u64) -> Vec<Row> {
    let mut stream = Stream::new(scale.seed, Purpose::WatchLists, c);
    let ad = 4 + u64::from(scale.companies()) + c;
    let (first_name, last_name) = name(c);
    let mut rows = vec![address(scale, ad)];
    rows.push(Row::Customer(Customer {
        c,
        tax_id: names::tax_id(c),
        status: status::ACTIVE,
        email: format!("{}.{c}@example.org", first_name.to_lowercase()),
        last_name,
        first_name,
        gender: (c % 2) as u8,
        born_day: stream.between(1, 9_000) as u32,
        ad,
        phone: format!("555-{:04}", c % 10_000),
        tier: Scale::tier(c),
    }));
    let taxes = Scale::tax_rates_of(c).map(|tx| Row::CustomerTaxrate(CustomerTaxrate { c, tx }));
    rows.extend(taxes);
    for ca in scale.accounts(c) {
        for who in std::iter::once(c).chain(scale.executors(ca)) {
            let (first_name, last_name) = name(who);
            let acl = if who == c { "0000" } else { "0001" }.to_owned();
            let tax_id = names::tax_id(who);
            let permission = AccountPermission { ca, tax_id, acl, last_name, first_name };
            rows.push(Row::AccountPermission(permission));
        }
    }
    rows.push(Row::WatchList(WatchList { c, wl: c }));
    let count = stream.between(50, 150);
    let watched = stream.distinct(count, u64::from(scale.securities()));
    rows.extend(watched.into_iter().map(|symb| Row::WatchItem(WatchItem { wl: c, symb })));
    rows
}
