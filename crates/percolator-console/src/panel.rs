//! An application's part of the console: its search, and a page for each of its things.

use std::fmt::Debug;

use futures::future::BoxFuture;
use serde_json::Value;

/// An application's part of the console. The answers are JSON, as the console's page draws them.
///
/// The web index has one: `percolator webindex load --console` shows it.
///
/// ```
/// use futures::future::BoxFuture;
/// use percolator_console::{Panel, PanelError};
/// use serde_json::{Value, json};
///
/// #[derive(Debug)]
/// struct Nothing;
/// impl Panel for Nothing {
///     fn name(&self) -> &'static str {
///         "nothing"
///     }
///     fn search<'a>(
///         &'a self,
///         _query: &'a str,
///         offset: usize,
///         _limit: usize,
///     ) -> BoxFuture<'a, Result<Value, PanelError>> {
///         Box::pin(async move { Ok(json!({ "total": 0, "offset": offset, "hits": [] })) })
///     }
///     fn page<'a>(&'a self, _key: &'a str) -> BoxFuture<'a, Result<Option<Value>, PanelError>> {
///         Box::pin(async { Ok(None) })
///     }
///     fn stats(&self) -> BoxFuture<'_, Result<Value, PanelError>> {
///         Box::pin(async { Ok(json!({})) })
///     }
/// }
/// assert_eq!(Nothing.name(), "nothing");
/// ```
pub trait Panel: Debug + Send + Sync {
    /// The application's name.
    fn name(&self) -> &'static str;

    /// Searches: `{total, offset, hits: [{url, title, snippet, highlights, rank, ..}]}`.
    fn search<'a>(
        &'a self,
        query: &'a str,
        offset: usize,
        limit: usize,
    ) -> BoxFuture<'a, Result<Value, PanelError>>;

    /// Returns the facts about one thing that was found; `None` if there is no such thing.
    fn page<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Value>, PanelError>>;

    /// The application in numbers, by name.
    fn stats(&self) -> BoxFuture<'_, Result<Value, PanelError>>;
}

/// Why an application's panel could not answer.
///
/// See [`Panel`] for where it is returned.
#[derive(Debug, thiserror::Error)]
pub enum PanelError {
    /// The question is wrong; the text says how.
    #[error("{0}")]
    Asked(String),
    /// The application failed.
    #[error("{0}")]
    Failed(String),
}
