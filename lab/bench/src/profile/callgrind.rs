//! Reads the counts of Valgrind's callgrind from the file that it writes.
//!
//! The file lists each function with its lines that took instructions, and with its calls. A
//! name is written once, and later replaced by a number. The line after a call has the
//! instructions of the callee, which are counted where the callee is listed.

use std::collections::HashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The crates of this project, with everything inlined into them.
    Ours,
    /// The engine beneath and its crates, with its slices and checksums wherever they are used.
    Engine,
    Allocator,
    /// The standard library, libc, other crates, and the benchmark itself.
    Others,
}

const BENCHMARKS: &str = "percolator_bench";
const OURS: [&str; 4] = ["percolator", "percolator_core", "bigtable", "bigtable_fjall"];
const ENGINE: [&str; 14] = [
    "dashmap",
    "flume",
    "interval_heap",
    "self_cell",
    "sfa",
    "varint_rs",
    "fjall",
    "lsm_tree",
    "crossbeam_skiplist",
    "crossbeam_epoch",
    "byteview",
    "quick_cache",
    "xxhash_rust",
    "lz4_flex",
];
/// Functions of the allocator that the program calls.
const ALLOCATES: [&str; 6] = [
    "mi_malloc",
    "mi_malloc_aligned",
    "mi_zalloc",
    "mi_zalloc_aligned",
    "mi_realloc",
    "mi_realloc_aligned",
];

impl Owner {
    /// The owner of a function: the first known crate in its name.
    fn of(function: &str) -> Owner {
        if is_allocator(function) {
            return Owner::Allocator;
        }
        let mut words =
            function.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty());
        let known =
            words.find(|word| OURS.contains(word) || ENGINE.contains(word) || *word == BENCHMARKS);
        match known {
            Some(known) if OURS.contains(&known) => Owner::Ours,
            Some(known) if ENGINE.contains(&known) => Owner::Engine,
            _ => Owner::Others,
        }
    }
}

fn is_allocator(function: &str) -> bool {
    function.starts_with("mi_") || function.starts_with("_mi_")
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Counts {
    /// Instructions of each [`Owner`], in their order.
    pub(crate) instructions: [f64; 4],
    pub(crate) allocations: f64,
}

impl Counts {
    pub(crate) fn all_instructions(&self) -> f64 {
        self.instructions.iter().sum()
    }

    /// Reads a file of callgrind.
    ///
    /// # Errors
    /// An error if the file does not count instructions first, or if its parts do not add up to
    /// its total.
    pub(crate) fn read(text: &str) -> anyhow::Result<Counts> {
        let events = text.lines().find_map(|line| line.strip_prefix("events:"));
        let first = events.and_then(|events| events.split_whitespace().next());
        anyhow::ensure!(first == Some("Ir"), "callgrind has not counted instructions: {events:?}");
        let mut counts = Counts::default();
        counts.add_functions(text);
        let total = text.lines().find_map(|line| line.strip_prefix("totals:")?.trim().parse().ok());
        let read = counts.all_instructions();
        anyhow::ensure!(
            total == Some(read),
            "{read} instructions of callgrind's {total:?} were read"
        );
        Ok(counts)
    }

    fn add_functions(&mut self, text: &str) {
        let mut names: HashMap<&str, &str> = HashMap::new();
        let (mut function, mut callee, mut is_of_callee) = ("", "", false);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=") {
                function = full_name(&mut names, name);
            } else if let Some(name) = line.strip_prefix("cfn=") {
                callee = full_name(&mut names, name);
            } else if let Some(calls) = line.strip_prefix("calls=") {
                is_of_callee = true;
                if ALLOCATES.contains(&callee) && !is_allocator(function) {
                    let count = calls.split_whitespace().next().and_then(|n| n.parse::<f64>().ok());
                    self.allocations += count.unwrap_or(0.0);
                }
            } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c))
                && !std::mem::take(&mut is_of_callee)
            {
                let cost = line.split_whitespace().nth(1).and_then(|n| n.parse::<f64>().ok());
                self.instructions[Owner::of(function) as usize] += cost.unwrap_or(0.0);
            }
        }
    }
}

/// The name in `(12) name`, or the earlier name for `(12)`.
fn full_name<'a>(names: &mut HashMap<&'a str, &'a str>, told: &'a str) -> &'a str {
    let Some((number, name)) = told.split_once(')') else { return told };
    match name.trim_start() {
        "" => names.get(number).copied().unwrap_or_default(),
        name => {
            names.insert(number, name);
            name
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read() {
        let counts = Counts::read(include_str!("callgrind.out")).unwrap();
        assert_eq!(counts.instructions, [53.0, 700.0, 200.0, 15.0]);
        assert_eq!((counts.allocations, counts.all_instructions()), (5.0, 968.0));
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        for text in [
            "events: Ir\nfn=(1) a\n1 5\ntotals: 6\n",
            "",
            "not of callgrind's\n",
            "events: Dr Ir\n",
        ] {
            assert!(Counts::read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_owner_is_the_first_crate_in_a_name() {
        let is = |owner, name| assert_eq!(Owner::of(name), owner, "{name}");
        is(Owner::Ours, "core::ptr::drop_in_place<bigtable_fjall::draft::Draft>");
        is(Owner::Ours, "percolator_core::commit::<impl percolator_core::Transaction>::commit");
        is(Owner::Ours, "percolator::database::Database::begin");
        is(Owner::Engine, "<lsm_tree::Memtable as core::fmt::Debug>::insert");
        is(Owner::Others, "percolator_bench::turns::take");
        is(Owner::Others, "__memcpy_avx_unaligned_erms");
        is(Owner::Allocator, "_mi_page_malloc");
    }
}
