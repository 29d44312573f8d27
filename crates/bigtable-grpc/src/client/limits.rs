//! Holds two limits of the server's extension: how many conditional mutations, and how many
//! reads, one request may contain.

/// How much the server takes in one request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// Most conditional mutations in one request; `None` if it takes only one.
    pub(crate) entries_max: Option<usize>,
    /// Most reads, each with its filter, in one request; `None` if it takes only one.
    pub(crate) reads_max: Option<usize>,
}
