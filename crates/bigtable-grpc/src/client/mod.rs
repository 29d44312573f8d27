//! Implements a client of google.bigtable.v2: [`GrpcStore`] is a [`Store`](bigtable::Store)
//! behind a network.
//!
//! ```text
//!   store.rs        opens a store: families, garbage collection rules, routing; names of tables
//!   options.rs      the options of a client
//!   table.rs        rows: reads, conditional mutations, tablets (the trait Table)
//!   wire.rs         a table's requests in the form of the API
//!   filter.rs       selections and probes as filters of the API
//!   merge.rs        rows from the chunks of a stream
//!   address.rs      the address of a store
//!   channel.rs      endpoints, deadlines, headers
//!   pool.rs         several warm connections, none of them old
//!   credentials.rs  tokens for Cloud Bigtable
//!   retry.rs        repetition with pauses
//!   batch.rs        several conditional mutations in one request, by the server's extension
//!   limits.rs       the limits of that extension
//!   rows.rs         several rows by one request
//!   each.rs         several reads of rows and short pages (read.rs) in one request
//!   spanned.rs      numbers of the tables of a request
//!   split.rs        dividing entries among requests
//!   gather.rs       delaying requests, so that those of several callers go together
//!   administration.rs  backups, for an administrator
//!   bare.rs         prepared requests, the baseline of measurements
//!   status.rs       status codes of the API as errors
//! ```
//!
//! The client itself repeats reads and unconditional mutations. Such mutations name their
//! times, so applying one twice changes nothing more. The client sends a conditional mutation
//! once, because only the protocol above knows whether a repetition is harmless. If the first
//! one may have been applied, the caller gets [`Unknown`](bigtable::Error::Unknown).

mod address;
mod administration;
mod bare;
mod batch;
mod channel;
mod credentials;
mod each;
mod examine;
mod filter;
mod gather;
mod limits;
mod merge;
mod options;
mod pool;
mod read;
mod retry;
mod rows;
mod spanned;
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
