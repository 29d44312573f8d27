//! Shrinks a history whose answers differ, until a person can read it.

use super::super::*;
use super::ask::Request;
use super::draw::Draw;
use super::{Difference, Pair};
use crate::proto::data::row_filter::{Chain, Condition, Interleave};

/// Most runs in search of a shorter history.
const RUNS_MAX: usize = 600;

impl Pair {
    /// Removes requests, then parts of the requests left, as long as some answer still differs.
    pub(super) async fn shrink(&mut self, requests: Vec<Request>) -> (Vec<Request>, Difference) {
        let found = self.compare(&requests).await.expect("the same requests differ again");
        let mut left = Left { requests, found, runs: 0 };
        let mut step = left.requests.len();
        while step > 0 {
            // The families stay: without them every mutation would be refused, which is another
            // difference.
            let mut from = Draw::first().len();
            while from < left.requests.len() {
                let mut fewer = left.requests.clone();
                fewer.drain(from..(from + step).min(fewer.len()));
                if !left.take(self, fewer).await {
                    from += step;
                }
            }
            step /= 2;
        }
        let mut at = 0;
        while at < left.requests.len() {
            let mut taken = false;
            for simpler in simpler(&left.requests[at]) {
                let mut requests = left.requests.clone();
                requests[at] = simpler;
                taken = left.take(self, requests).await;
                if taken {
                    break;
                }
            }
            at += usize::from(!taken);
        }
        (left.requests, left.found)
    }
}

/// The shortest history so far.
struct Left {
    requests: Vec<Request>,
    found: Difference,
    runs: usize,
}

impl Left {
    /// Takes these requests instead, if their answers differ too.
    async fn take(&mut self, pair: &mut Pair, mut requests: Vec<Request>) -> bool {
        self.runs += 1;
        if self.runs > RUNS_MAX {
            return false;
        }
        let Some(found) = pair.compare(&requests).await else { return false };
        requests.truncate(found.at + 1);
        (self.requests, self.found) = (requests, found);
        true
    }
}

/// The variants of a request with something removed.
fn simpler(request: &Request) -> Vec<Request> {
    let mut all = Vec::new();
    match request {
        Request::Read(read) => {
            let filters = read.filter.iter().flat_map(simpler_filters).map(Some);
            for filter in filters.chain([None]) {
                if filter != read.filter {
                    all.push(Request::Read(ReadRowsRequest { filter, ..read.clone() }));
                }
            }
            if read.rows.is_some() {
                all.push(Request::Read(ReadRowsRequest { rows: None, ..read.clone() }));
            }
        }
        Request::Check(check) => {
            for filter in check.predicate_filter.iter().flat_map(simpler_filters) {
                let mut check = check.clone();
                check.predicate_filter = Some(filter);
                all.push(Request::Check(check));
            }
            let both = !check.true_mutations.is_empty() && !check.false_mutations.is_empty();
            let shorter = |mutations: &[Mutation]| {
                fewer(mutations).into_iter().filter(|m| both || !m.is_empty()).collect::<Vec<_>>()
            };
            for mutations in shorter(&check.true_mutations) {
                let mut check = check.clone();
                check.true_mutations = mutations;
                all.push(Request::Check(check));
            }
            for mutations in shorter(&check.false_mutations) {
                let mut check = check.clone();
                check.false_mutations = mutations;
                all.push(Request::Check(check));
            }
        }
        Request::Mutate(mutate) => {
            for mutations in fewer(&mutate.mutations).into_iter().filter(|m| !m.is_empty()) {
                all.push(Request::Mutate(MutateRowRequest { mutations, ..mutate.clone() }));
            }
        }
        Request::MutateMany(many) => {
            for entries in fewer(&many.entries).into_iter().filter(|e| !e.is_empty()) {
                let mut many = many.clone();
                many.entries = entries;
                all.push(Request::MutateMany(many));
            }
        }
        _ => {}
    }
    all
}

/// The lists that lack one member each.
fn fewer<T: Clone>(list: &[T]) -> Vec<Vec<T>> {
    let without = |at| {
        let mut list = list.to_vec();
        list.remove(at);
        list
    };
    (0..list.len()).map(without).collect()
}

/// The parts of a filter, and the filter with a simpler part.
fn simpler_filters(whole: &RowFilter) -> Vec<RowFilter> {
    let of_list = |list: &[RowFilter], make: &dyn Fn(Vec<RowFilter>) -> WireFilter| {
        let mut all = list.to_vec();
        if list.len() > 2 {
            all.extend(fewer(list).into_iter().map(|list| filter(make(list))));
        }
        for (at, part) in list.iter().enumerate() {
            for simpler in simpler_filters(part) {
                let mut list = list.to_vec();
                list[at] = simpler;
                all.push(filter(make(list)));
            }
        }
        all
    };
    match &whole.filter {
        Some(WireFilter::Chain(Chain { filters })) => {
            of_list(filters, &|filters| WireFilter::Chain(Chain { filters }))
        }
        Some(WireFilter::Interleave(Interleave { filters })) => {
            of_list(filters, &|filters| WireFilter::Interleave(Interleave { filters }))
        }
        Some(WireFilter::Condition(condition)) => {
            let parts = |condition: &Condition| {
                let Condition { predicate_filter, true_filter, false_filter } = condition.clone();
                [predicate_filter, true_filter, false_filter]
            };
            let mut all: Vec<_> = parts(condition).into_iter().flatten().map(|f| *f).collect();
            for at in 0..3 {
                let part = parts(condition)[at].clone();
                for simpler in part.iter().flat_map(|part| simpler_filters(part)) {
                    let mut parts = parts(condition);
                    parts[at] = Some(Box::new(simpler));
                    let [predicate_filter, true_filter, false_filter] = parts;
                    let condition = Condition { predicate_filter, true_filter, false_filter };
                    all.push(filter(WireFilter::Condition(Box::new(condition))));
                }
            }
            all
        }
        _ => Vec::new(),
    }
}
