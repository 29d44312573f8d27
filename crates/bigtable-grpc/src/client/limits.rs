//! How much the server takes in one request, beyond what the API says.

/// What the server takes in one request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// Most conditional mutations; `None` if it takes one.
    pub(crate) entries_max: Option<usize>,
    /// Most reads of single rows by a filter each; `None` if it takes one.
    pub(crate) reads_max: Option<usize>,
}
