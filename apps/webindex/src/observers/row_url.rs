//! Reads the URL from the key of a changed row.

/// Returns the URL that is the changed row's key.
pub(super) fn row_url(change: &percolator::Change) -> percolator::Result<String> {
    let text = String::from_utf8(change.row.as_bytes().to_vec()).ok();
    text.filter(|url| url::Url::parse(url).is_ok()).ok_or_else(|| {
        percolator::Error::application(format!("the row {} is not a URL", change.row))
    })
}
