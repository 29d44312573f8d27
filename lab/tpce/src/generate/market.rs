//! Generates companies, with their securities, prices and news.

use crate::Scale;
use crate::model::*;
use crate::scale::{DAY_MS, PRICED_DAYS, names};

use super::dimensions::address;
use super::stream::{Purpose, Stream};

/// Numbers per company: competitors, quarters of figures, news items.
const COMPETITORS: u32 = 3;
const QUARTERS: u32 = 20;
const NEWS: u32 = 2;

/// Length of a news item, in bytes. TPC-E's have a hundred thousand, but they are read too
/// seldom to matter here.
const NEWS_BYTES: usize = 1_000;

pub(super) fn rows(scale: Scale) -> impl Iterator<Item = Row> {
    let companies = (1..=scale.companies()).flat_map(move |co| company(scale, co));
    let securities = (1..=scale.securities()).flat_map(move |symb| security(scale, symb));
    companies.chain(securities)
}

fn company(scale: Scale, co: u32) -> Vec<Row> {
    let mut stream = Stream::new(scale.seed, Purpose::Companies, u64::from(co));
    let ad = 4 + u64::from(co);
    let (name, ind) = (names::company(co), Scale::industry_of(co));
    let description = format!("{name} makes {} for {}. ", names::industry(ind), "everybody");
    let mut rows = vec![address(scale, ad)];
    rows.push(Row::Company(Company {
        co,
        status: status::ACTIVE,
        name,
        ind,
        rating: (*stream.pick(&["AAA", "AA", "A", "BBB", "BB", "B"])).to_owned(),
        ceo: format!("{} {}", names::first(stream.next()), names::last(stream.next())),
        ad,
        description: description.repeat(2),
        founded_day: stream.between(1, 10_000) as u32,
    }));
    for competitor in 1..=COMPETITORS.min(scale.companies() - 1) {
        let comp = (co - 1 + competitor * 7) % scale.companies() + 1;
        if comp != co {
            rows.push(Row::Competitor(Competitor { co, comp, ind: Scale::industry_of(comp) }));
        }
    }
    rows.dedup();
    for quarter in 0..QUARTERS {
        rows.push(Row::Financial(financial(co, quarter, &mut stream)));
    }
    for i in 0..NEWS {
        rows.extend(news(scale, co, (co - 1) * NEWS + i + 1, &mut stream));
    }
    rows
}

fn financial(co: u32, quarter: u32, stream: &mut Stream) -> Financial {
    let revenue = stream.amount(100_000_000, 1_600_000_000);
    let net_earn = stream.amount(-10_000_000, revenue / 10);
    let out_basic = stream.amount(400_000_000, 9_500_000_000);
    Financial {
        co,
        year: 2000 + quarter / 4,
        qtr: (quarter % 4) as u8 + 1,
        start_day: 11_000 + quarter * 91,
        revenue,
        net_earn,
        basic_eps: net_earn * 100 / out_basic.max(1),
        diluted_eps: net_earn * 100 / (out_basic + 1_000_000),
        margin: net_earn * 10_000 / revenue,
        inventory: stream.amount(1_000_000, 100_000_000),
        assets: stream.amount(100_000_000, 2_000_000_000),
        liabilities: stream.amount(10_000_000, 100_000_000),
        out_basic,
        out_diluted: out_basic + 1_000_000,
    }
}

fn news(scale: Scale, co: u32, ni: u32, stream: &mut Stream) -> [Row; 2] {
    let headline = format!("{} in the news, for the {ni}. time", names::company(co));
    let mut item = headline.repeat(NEWS_BYTES / headline.len() + 1);
    item.truncate(NEWS_BYTES);
    let item = NewsItem {
        ni,
        summary: format!("{headline}: a summary"),
        headline,
        item,
        dts: stream.below(scale.start_ms().max(1)),
        source: names::last(stream.next()).to_owned(),
        author: names::first(stream.next()).to_owned(),
    };
    [Row::NewsItem(item), Row::NewsXref(NewsXref { co, ni })]
}

fn security(scale: Scale, symb: u32) -> Vec<Row> {
    let mut stream = Stream::new(scale.seed, Purpose::Securities, !u64::from(symb));
    let (co, issue) = scale.issue(symb);
    let last_day = scale.last_priced_day();
    let (low52, high52) = (stream.amount(1_500, 2_000), stream.amount(3_000, 3_500));
    let mut rows = vec![Row::Security(Security {
        symb,
        issue,
        status: status::ACTIVE,
        name: format!("{} {}", names::company(co), ["COMMON", "PREF_A"][usize::from(issue.min(1))]),
        ex: Scale::exchange_of(symb),
        co,
        num_out: stream.amount(4_000_000, 9_500_000_000),
        start_day: 5_000,
        pe: stream.amount(100, 12_000),
        high52,
        high52_day: last_day - stream.below(300) as u32,
        low52,
        low52_day: last_day - stream.below(300) as u32,
        dividend: stream.amount(0, 1_000),
        yields: stream.amount(0, 12_000),
    })];
    let (start, today) = (scale.start_ms(), scale.start_ms() / DAY_MS * DAY_MS);
    rows.push(Row::LastTrade(LastTrade {
        symb,
        price: scale.price(symb, start),
        dts: start,
        open_price: scale.price(symb, today),
        vol: 0,
    }));
    for day in 0..PRICED_DAYS {
        let close = stream.amount(low52, high52);
        rows.push(Row::DailyMarket(DailyMarket {
            symb,
            day: last_day - day,
            close,
            high: (close + stream.amount(0, 200)).min(high52),
            low: (close - stream.amount(0, 200)).max(low52),
            vol: stream.amount(1_000, 10_000_000),
        }));
    }
    rows
}
