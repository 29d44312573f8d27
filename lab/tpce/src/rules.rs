//! Computes the effect of a trade on an account, in whole cents and whole shares. This is pure
//! arithmetic, the same for the generator and for every store.

/// A lot of a security in an account. The quantity of a short position is negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lot {
    pub(crate) dts: u64,
    /// The trade that opened the lot.
    pub(crate) t: u64,
    pub(crate) qty: i64,
    pub(crate) price: i64,
}

/// An executed order that is to be settled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill {
    pub(crate) t: u64,
    pub(crate) is_sell: bool,
    pub(crate) lifo: bool,
    pub(crate) qty: i64,
    pub(crate) price: i64,
    pub(crate) dts: u64,
}

/// The effect of a fill on the lots of one security in one account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Lots whose quantity changed, with the remaining quantity. A lot with none left is gone.
    pub(crate) changed: Vec<Lot>,
    pub(crate) opened: Option<Lot>,
    /// For each changed lot: lot, quantity before, quantity after.
    pub(crate) history: Vec<(u64, i64, i64)>,
    /// The cost of the shares that changed hands, and their proceeds.
    pub(crate) bought: i64,
    pub(crate) sold: i64,
}

impl Settled {
    pub(crate) fn gain(&self) -> i64 {
        (self.sold - self.bought).max(0)
    }
}

/// Settles an order against the account's lots of its security, given oldest first. If a sale
/// finds too few lots, it opens a short position: a lot of a negative quantity. A purchase
/// first covers short positions.
pub(crate) fn settle(lots: &[Lot], fill: Fill) -> Settled {
    let mut settled = Settled::default();
    let mut needed = fill.qty;
    let opposite = |lot: &&Lot| if fill.is_sell { lot.qty > 0 } else { lot.qty < 0 };
    let mut candidates: Vec<&Lot> = lots.iter().filter(opposite).collect();
    if fill.lifo {
        candidates.reverse();
    }
    for lot in candidates {
        if needed == 0 {
            break;
        }
        let taken = needed.min(lot.qty.abs());
        let left = if fill.is_sell { lot.qty - taken } else { lot.qty + taken };
        settled.history.push((lot.t, lot.qty, left));
        settled.changed.push(Lot { qty: left, ..*lot });
        let (cost, brought) = if fill.is_sell {
            (lot.price, fill.price)
        } else {
            // A short position: it was sold then, and is bought now.
            (fill.price, lot.price)
        };
        settled.bought += taken * cost;
        settled.sold += taken * brought;
        needed -= taken;
    }
    if needed > 0 {
        let qty = if fill.is_sell { -needed } else { needed };
        settled.history.push((fill.t, 0, qty));
        settled.opened = Some(Lot { dts: fill.dts, t: fill.t, qty, price: fill.price });
    }
    settled
}

/// A rate of an amount, given in hundredths of a percent.
pub(crate) fn share(amount: i64, rate: i64) -> i64 {
    amount * rate / 10_000
}

/// Whether an account with this tax status owes tax on gains, and whether its broker withholds
/// the tax.
pub(crate) fn taxed(tax_status: u8) -> (bool, bool) {
    (matches!(tax_status, 1 | 2), tax_status == 1)
}

/// The change of the account's balance by a trade.
pub(crate) fn settlement(fill: Fill, charge: i64, commission: i64, withheld: i64) -> i64 {
    let value = fill.qty * fill.price;
    if fill.is_sell {
        value - charge - commission - withheld
    } else {
        -(value + charge + commission + withheld)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lots(quantities: &[i64]) -> Vec<Lot> {
        let lot = |(i, qty): (usize, &i64)| Lot {
            dts: i as u64,
            t: i as u64 + 1,
            qty: *qty,
            price: 1000 + i as i64,
        };
        quantities.iter().enumerate().map(lot).collect()
    }

    fn fill(is_sell: bool, lifo: bool, qty: i64) -> Fill {
        Fill { t: 9, is_sell, lifo, qty, price: 2000, dts: 99 }
    }

    #[test]
    fn a_sale_takes_the_oldest_or_the_newest_lots() {
        let first = settle(&lots(&[100, 200, 400]), fill(true, false, 250));
        assert_eq!(first.history, [(1, 100, 0), (2, 200, 50)]);
        assert_eq!(first.bought, 100 * 1000 + 150 * 1001);
        assert_eq!(first.sold, 250 * 2000);
        assert_eq!(first.opened, None);
        let last = settle(&lots(&[100, 200, 400]), fill(true, true, 250));
        assert_eq!(last.history, [(3, 400, 150)]);
    }

    #[test]
    fn what_is_not_there_is_owed_and_paid_back() {
        let short = settle(&lots(&[100]), fill(true, false, 300));
        assert_eq!(short.opened.map(|lot| lot.qty), Some(-200));
        assert_eq!(short.history, [(1, 100, 0), (9, 0, -200)]);
        let covered = settle(&lots(&[-200]), fill(false, false, 300));
        assert_eq!(covered.history, [(1, -200, 0), (9, 0, 100)]);
        assert_eq!((covered.bought, covered.sold), (200 * 2000, 200 * 1000));
        assert_eq!(covered.gain(), 0);
    }

    #[test]
    fn positions_change_by_what_was_traded() {
        for quantities in [vec![], vec![100, 200], vec![-400, -100]] {
            for is_sell in [true, false] {
                for lifo in [true, false] {
                    let settled = settle(&lots(&quantities), fill(is_sell, lifo, 300));
                    let delta: i64 = settled.history.iter().map(|(_, was, is)| is - was).sum();
                    assert_eq!(delta, if is_sell { -300 } else { 300 });
                }
            }
        }
    }

    #[test]
    fn balances_are_in_whole_cents() {
        assert_eq!(share(10_000, 25), 25);
        assert_eq!(settlement(fill(true, false, 10), 100, 50, 7), 20_000 - 157);
        assert_eq!(settlement(fill(false, false, 10), 100, 50, 0), -20_150);
    }
}
