//! Known ways to get Percolator wrong. Documentation only.
//!
//! A comment or a test of this project that names `H20` refers to the page
//! [Hazards](https://github.com/percolator-rs/percolator/blob/main/docs/hazards.md), in the
//! repository at `docs/hazards.md`. The page says of each:
//!
//! * what goes wrong, in a sentence, and the defence that prevents it, with its file;
//! * the tests that show the defence, which carry the number in their names;
//! * the mutants: builds with the defence switched off, which a test must notice.
//!
//! The rows, by subject:
//!
//! | numbers | subject |
//! |---|---|
//! | H01 to H26 | locks, commits, outcomes, and the resolving of locks |
//! | H27 to H39 | reads: snapshots, scans, garbage, own writes |
//! | H40 to H46 | the oracle |
//! | H47 to H62 | observers and their notifications |
//! | H63 to H71 | the store: keys, records, limits and syncs |
//! | H72 to H77 | programs: dropped commits, unpolled futures, long observers, loaders, pauses |
//! | H78 to H80 | the embedded store: removals by earlier reads, merges that drop, write buffers |
//!
//! A test keeps the page true: every number that the code names has a row, and every test and
//! mutant that a row names exists. A comment that names `ADR-7` refers to a decision in
//! `docs/decisions/`.
