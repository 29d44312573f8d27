//! The web index in the console: its search, its pages, its numbers.

use std::sync::Arc;

use futures::future::BoxFuture;
use percolator_console::{Panel, PanelError};
use serde_json::{Value, json};
use webindex::{Error, WebIndex};

/// What a console shows of a web index.
#[derive(Debug)]
pub struct WebPanel {
    index: Arc<WebIndex>,
}

impl WebPanel {
    /// The panel of this index.
    pub fn new(index: Arc<WebIndex>) -> Self {
        WebPanel { index }
    }
}

/// A question that cannot be asked so is the asker's mistake.
fn refused(error: Error) -> PanelError {
    match &error {
        Error::BadUrl { .. }
        | Error::Query { .. }
        | Error::OutOfRange { .. }
        | Error::NoSearchIndex => PanelError::Asked(error.to_string()),
        _ => PanelError::Failed(error.to_string()),
    }
}

impl Panel for WebPanel {
    fn name(&self) -> &'static str {
        "webindex"
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        offset: usize,
        limit: usize,
    ) -> BoxFuture<'a, Result<Value, PanelError>> {
        Box::pin(
            async move { Ok(json!(self.index.find(query, offset, limit).await.map_err(refused)?)) },
        )
    }

    fn page<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Value>, PanelError>> {
        Box::pin(async move {
            let Some(page) = self.index.page(key).await.map_err(refused)? else { return Ok(None) };
            let cluster = self.index.cluster(&page.url).await.map_err(refused)?;
            let cell = self.index.content_cell(&page.url);
            let column = String::from_utf8_lossy(cell.column.as_bytes()).into_owned();
            Ok(Some(json!({
                "page": page,
                "cluster": cluster,
                "cell": { "table": cell.table, "row": page.url, "column": column },
            })))
        })
    }

    fn stats(&self) -> BoxFuture<'_, Result<Value, PanelError>> {
        Box::pin(async { Ok(json!(self.index.stats().await.map_err(refused)?)) })
    }
}
