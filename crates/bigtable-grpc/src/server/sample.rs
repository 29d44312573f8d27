//! Implements SampleRowKeys: it returns keys that divide a table into parts of about the same
//! size.
//!
//! The server scans a small table completely, so its sizes are exact. It scans only the
//! beginning of a larger one. It divides the rest by looking up the rows next to evenly spaced
//! keys, and guesses the sizes; the API promises no more. Keys at which a client asked to split
//! the table are always among the samples.

use std::collections::BTreeMap;
use std::ops::Bound;

use bigtable::{PageLimit, RowKey, RowRange, Table};
use tonic::Status;

use super::layout;
use super::status::of_engine;
use super::tables::Tables;
use crate::proto::data::{SampleRowKeysRequest, SampleRowKeysResponse};

/// Bytes between two samples.
const STEP_BYTES: usize = 1 << 20;
/// Most pages that are scanned.
const PAGES_MAX: usize = 32;
/// Most samples of the part that is not scanned.
const PROBES_MAX: usize = 32;
/// Bytes of a key that a probe varies.
const PROBE_BYTES: usize = 8;

/// Answers SampleRowKeys.
pub(crate) async fn keys(
    tables: &Tables,
    request: SampleRowKeysRequest,
) -> Result<Vec<SampleRowKeysResponse>, Status> {
    let table = tables.table(&request.table_name).await?;
    let schema = table.schema().await;
    let engine = &table.engine;
    let select = layout::everything();
    let mut samples: BTreeMap<RowKey, usize> = BTreeMap::new();
    let (mut bytes, mut sampled, mut last) = (0, 0, None);
    let mut next = Some(RowRange::all());
    for _ in 0..PAGES_MAX {
        let Some(range) = next.take() else { break };
        let limit = PageLimit::default();
        let page = engine.scan(&range, &select, limit).await.map_err(of_engine)?;
        for row in page.rows {
            bytes += row.cells.iter().map(|cell| cell.value.len()).sum::<usize>();
            if bytes - sampled >= STEP_BYTES {
                samples.insert(row.key.clone(), bytes);
                sampled = bytes;
            }
            last = Some(row.key);
        }
        next = page.resume;
        tokio::task::yield_now().await;
    }
    if let Some(rest) = next {
        for key in probe(engine, rest, PROBES_MAX).map_err(of_engine)? {
            bytes += STEP_BYTES;
            last = Some(key.clone());
            samples.insert(key, bytes);
        }
    }
    if let Some(last) = last {
        samples.insert(last, bytes);
    }
    for split in &schema.record.splits {
        let split = RowKey::from(&split[..]);
        let below = samples.range(..&split).next_back().map_or(0, |(_, bytes)| *bytes);
        samples.entry(split).or_insert(below);
    }
    let mut responses: Vec<_> = samples.into_iter().map(|(key, at)| response(key, at)).collect();
    responses.push(response(RowKey::default(), bytes));
    Ok(responses)
}

fn response(key: RowKey, bytes: usize) -> SampleRowKeysResponse {
    let offset_bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    SampleRowKeysResponse { row_key: key.to_bytes(), offset_bytes }
}

/// Rows that divide a range, found next to evenly spaced keys. The last row is always among
/// them.
fn probe(
    engine: &bigtable_fjall::FjallTable,
    range: RowRange,
    probes_max: usize,
) -> bigtable::Result<Vec<RowKey>> {
    let first = match &range.start {
        Bound::Included(key) | Bound::Excluded(key) => key.clone(),
        Bound::Unbounded => RowKey::default(),
    };
    let Some(last) = engine.last_row(&range)? else { return Ok(Vec::new()) };
    let shared = first.as_bytes().iter().zip(last.as_bytes()).take_while(|(a, b)| a == b).count();
    let (from, to) = (number(&first, shared), number(&last, shared));
    let mut found = vec![last.clone()];
    for part in 1..probes_max as u128 {
        let at = from + (to - from) * part / probes_max as u128;
        let at = u64::try_from(at).unwrap_or(u64::MAX).to_be_bytes();
        let key = RowKey::from([&last.as_bytes()[..shared], &at].concat());
        // The last row below a key divides the range as well as the first above it.
        let below = RowRange { start: range.start.clone(), end: Bound::Excluded(key) };
        if !below.is_empty() {
            found.extend(engine.last_row(&below)?);
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// The bytes after the shared prefix of the keys, as a number.
fn number(key: &RowKey, shared: usize) -> u128 {
    let mut bytes = [0; PROBE_BYTES];
    let rest = key.as_bytes().get(shared..).unwrap_or_default();
    let len = rest.len().min(PROBE_BYTES);
    bytes[..len].copy_from_slice(&rest[..len]);
    u128::from(u64::from_be_bytes(bytes))
}
