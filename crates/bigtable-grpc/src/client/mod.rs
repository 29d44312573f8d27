//! A client of google.bigtable.v2: [`GrpcStore`] is a [`Store`](bigtable::Store) behind a network.
//!
//! ```text
//!   store.rs     opening: families, garbage collection rules, routing; names of tables
//!   options.rs   the options of a client
//!   table.rs     rows: reading, conditional mutations, tablets (the trait Table)
//!   wire.rs      requests of a table in the form of the API, and their sending
//!   filter.rs    selections and probes as filters of the API
//!   merge.rs     chunks of a stream as rows
//!   address.rs   where it all is
//!   channel.rs   the way there, deadlines, headers   pool.rs         connections, none of them old
//!   retry.rs     what is repeated, and when          credentials.rs  tokens of Google's
//!   batch.rs     several conditional mutations in one request, where the server takes them
//!   limits.rs    how much the server takes in one
//!   rows.rs      several rows by one request
//!   each.rs      several reads in one, as the server takes them (row_read.rs)
//!   split.rs     how much goes in one
//!   gather.rs    delaying conditional mutations and reads, so that those of several callers go
//!                together
//!   bare.rs      requests as they are, to measure all of this against
//!   status.rs    codes of the API as errors
//! ```
//!
//! What may be repeated is repeated here: reads, and unconditional mutations, which name their
//! times and so do the same again. A conditional mutation is sent once; only the protocol above
//! knows whether its repetition is harmless, and learns by [`Unknown`](bigtable::Error::Unknown)
//! that the first one may have been applied.

mod address;
mod bare;
mod batch;
mod channel;
mod credentials;
mod each;
mod filter;
mod gather;
mod limits;
mod merge;
mod options;
mod pool;
mod retry;
mod row_read;
mod rows;
mod split;
mod status;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod wire;

pub use address::Address;
pub use bare::{BareConditional, BareRead, BareTable};
pub use options::ClientOptions;
pub use store::GrpcStore;
