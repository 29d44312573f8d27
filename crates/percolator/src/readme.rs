//! The snippets of README.md, compiled as documentation tests.
//!
//! Only documentation tests see this file, so the package does not need README.md.

#[doc = include_str!("../../../README.md")]
struct Readme;
