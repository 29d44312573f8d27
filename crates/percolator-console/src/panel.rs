//! Defines the part of the console that an application adds: a search, a page for each thing, and
//! counts.

use std::fmt::Debug;

use futures::future::BoxFuture;
use serde_json::Value;

/// The part of the console that an application adds. The answers are JSON, in the form that the
/// console's page draws.
///
/// The web index has a panel: `percolator webindex load --console` shows it.
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
    /// Returns the name of the application.
    fn name(&self) -> &'static str;

    /// Searches, and returns `{total, offset, hits: [{url, title, snippet, highlights, rank,
    /// ..}]}`. A hit may also have the counts `in_links` and `duplicates`. If it has
    /// `counted_max`, a count that is as high stands for this many or more.
    fn search<'a>(
        &'a self,
        query: &'a str,
        offset: usize,
        limit: usize,
    ) -> BoxFuture<'a, Result<Value, PanelError>>;

    /// Returns the facts about one thing that was found; `None` if there is no such thing.
    fn page<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Value>, PanelError>>;

    /// Returns counts of the application, by name.
    fn stats(&self) -> BoxFuture<'_, Result<Value, PanelError>>;
}

/// Why the panel of an application could not answer.
///
/// See [`Panel`] for where it is returned.
#[derive(Debug, thiserror::Error)]
pub enum PanelError {
    /// The request is wrong; the text says how.
    #[error("{0}")]
    Asked(String),
    /// The application failed.
    #[error("{0}")]
    Failed(String),
}
