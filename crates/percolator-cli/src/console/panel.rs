//! Adds the web index to the console: its search, its pages, its counts.

use std::sync::Arc;

use futures::future::BoxFuture;
use percolator_console::{Panel, PanelError};
use serde_json::{Value, json};
use webindex::search::Hit;
use webindex::{Error, HitCounts, WebIndex};

/// The web index in a console: search, pages, numbers.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use percolator_cli::WebPanel;
/// use percolator_console::Console;
/// use std::sync::Arc;
/// let (db, search) = (percolator::Percolator::in_memory().await?, tempfile::tempdir()?);
/// let index = webindex::WebIndex::open(db.clone(), search.path(), Default::default()).await?;
/// let panel = Arc::new(WebPanel::new(Arc::new(index)));
/// let console = Console::new(&db).panel(panel).listen("127.0.0.1:0").await?;
/// println!("search at {}", console.url());
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct WebPanel {
    index: Arc<WebIndex>,
}

impl WebPanel {
    /// Makes the panel of this index.
    pub fn new(index: Arc<WebIndex>) -> Self {
        WebPanel { index }
    }
}

/// A hit with its counts, and where counting ends.
fn with_counts((hit, counts): (&Hit, HitCounts)) -> Value {
    let mut value = json!(hit);
    value["in_links"] = counts.in_links.into();
    value["duplicates"] = counts.duplicates.into();
    value["counted_max"] = HitCounts::MAX.into();
    value
}

/// Converts an error. A malformed URL or query is the mistake of the client.
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
        Box::pin(async move {
            let found = self.index.find(query, offset, limit).await.map_err(refused)?;
            let counts = self.index.counts(&found.hits).await.map_err(refused)?;
            let hits: Vec<Value> = found.hits.iter().zip(counts).map(with_counts).collect();
            Ok(json!({ "total": found.total, "offset": found.offset, "hits": hits }))
        })
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
