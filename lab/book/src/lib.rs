//! The book of `docs/book`, chapter by chapter.
//!
//! The chapters lie where a reader of the repository finds them. This crate shows them in the
//! documentation, and `cargo test -p percolator-book --doc` compiles and runs their programs. It is
//! a crate of its own because the recipes need other crates, such as axum.

#[doc = include_str!("../../../docs/book/01-what-percolator-is.md")]
pub mod chapter_01 {}

#[doc = include_str!("../../../docs/book/02-rows-and-columns.md")]
pub mod chapter_02 {}

#[doc = include_str!("../../../docs/book/03-a-transaction.md")]
pub mod chapter_03 {}

#[doc = include_str!("../../../docs/book/04-a-crash.md")]
pub mod chapter_04 {}

#[doc = include_str!("../../../docs/book/05-the-oracle.md")]
pub mod chapter_05 {}

#[doc = include_str!("../../../docs/book/06-observers.md")]
pub mod chapter_06 {}

#[doc = include_str!("../../../docs/book/07-garbage.md")]
pub mod chapter_07 {}

#[doc = include_str!("../../../docs/book/08-one-step.md")]
pub mod chapter_08 {}

#[doc = include_str!("../../../docs/book/09-the-disk-engine.md")]
pub mod chapter_09 {}

#[doc = include_str!("../../../docs/book/10-how-we-try-to-break-it.md")]
pub mod chapter_10 {}

#[doc = include_str!("../../../docs/book/11-semantics.md")]
pub mod chapter_11 {}

#[doc = include_str!("../../../docs/book/12-recipes.md")]
pub mod chapter_12 {}

#[doc = include_str!("../../../docs/book/13-recipes-services.md")]
pub mod chapter_13 {}

#[doc = include_str!("../../../docs/hazards.md")]
pub mod hazards {}
