//! Implements Trade-Update: twenty trades with all their records, and a correction to each.

use percolator::Result;

use crate::model::*;
use crate::request::{Answer, Lookup};

use super::session::Session;
use super::trade_lookup::{details, found};

pub(super) async fn run(session: &mut Session, lookup: &Lookup) -> Result<Answer> {
    let mut answer = Answer::default();
    let trades = found(session, lookup).await?;
    for (trade, state) in details(session, &trades, &mut answer).await? {
        answer.item(state.price);
        match lookup {
            Lookup::Listed(_) => {
                let executor = corrected(&trade.executor, " X ", " ");
                session.set(keys::trade(trade.t), &D, &Trade { executor, ..trade })?;
            }
            Lookup::OfAccount { .. } => {
                let row = keys::settlement(trade.t);
                if let Some(mut settlement) = session.get::<Settlement>(row.clone(), &D).await? {
                    settlement.cash_type = corrected(&settlement.cash_type, " Account", "");
                    session.set(row, &D, &settlement)?;
                }
            }
            Lookup::OfSecurity { .. } | Lookup::FirstOf { .. } => {
                let row = keys::cash_transaction(trade.t);
                if let Some(mut cash) = session.get::<CashTransaction>(row.clone(), &D).await? {
                    cash.name = corrected(&cash.name, " shares of ", " of ");
                    session.set(row, &D, &cash)?;
                }
            }
        }
    }
    Ok(answer)
}

/// Changes a text from one form to the other: the next correction reverts it.
fn corrected(text: &str, long: &str, short: &str) -> String {
    if text.contains(long) {
        return text.replacen(long, short, 1);
    }
    match text.rfind(short) {
        Some(at) if !short.is_empty() => {
            format!("{}{long}{}", &text[..at], &text[at + short.len()..])
        }
        _ => format!("{text}{long}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_is_taken_back_by_the_next() {
        for (text, long, short) in [
            ("Ada Abbot 1", " X ", " "),
            ("Cash Account", " Account", ""),
            ("Margin", " Account", ""),
            ("Buy 100 shares of 7", " shares of ", " of "),
        ] {
            let once = corrected(text, long, short);
            assert_ne!(once, text);
            assert_eq!(corrected(&once, long, short), text);
        }
    }
}
