//! Reads a page of a scan: rows of one region, assembled from the parts that the server sends.
//!
//! The server may send a row in parts, and a heartbeat in place of rows. All parts come from
//! one scanner, which reads a row as of one moment. If the scanner is lost, the page ends after
//! its last complete row.

use std::ops::Bound;

use bigtable::{PageLimit, RowKey, RowRange};
use bytes::Bytes;

use crate::client::Client;
use crate::failure::Failure;
use crate::proto::{self, RegionSpecifier, Scan, ScanRequest, ScanResponse};
use crate::regions::Region;

/// Most bytes of one answer.
const ANSWER_BYTES: u64 = 2 << 20;

/// A row's key and its cells.
pub(crate) type Found = (Bytes, Vec<proto::Cell>);

/// A scan of a table, without its rows.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) client: &'a Client,
    pub(crate) table: &'a Bytes,
    pub(crate) scan: Scan,
}

/// The part of a page received so far.
#[derive(Debug, Default)]
struct Filling {
    rows: Vec<Found>,
    /// Bytes of the keys and values of complete rows.
    bytes: usize,
    /// A row of which more parts may arrive.
    open: Option<Found>,
    /// The scanner's position, from a heartbeat.
    cursor: Option<Bytes>,
}

impl Filling {
    /// Adds an answer; `true` if the page is full.
    fn add(&mut self, answer: ScanResponse, limit: PageLimit) -> bool {
        self.cursor = answer.cursor.and_then(|cursor| cursor.row);
        for result in answer.results {
            let Some(row) = result.cell.first().map(|cell| cell.row.clone()) else { continue };
            if self.open.as_ref().is_some_and(|(open, _)| *open != row) {
                self.close();
                if limit.is_reached(self.rows.len(), self.bytes) {
                    return true;
                }
            }
            let open = self.open.get_or_insert_with(|| (row, Vec::new()));
            open.1.extend(result.cell);
            if !result.partial.unwrap_or(false) {
                self.close();
                if limit.is_reached(self.rows.len(), self.bytes) {
                    return true;
                }
            }
        }
        false
    }

    /// Completes the open row.
    fn close(&mut self) {
        let Some((row, cells)) = self.open.take() else { return };
        let of = |cell: &proto::Cell| cell.qualifier.len().saturating_sub(1) + cell.value.len();
        self.bytes += row.len() + cells.iter().map(of).sum::<usize>();
        self.rows.push((row, cells));
    }
}

impl Rows<'_> {
    /// Reads the first rows of the range, from one region at most. Also returns the rest of the
    /// range.
    pub(crate) async fn page(
        &self,
        range: &RowRange,
        limit: PageLimit,
        split: impl Fn(&RowRange, &Region) -> (RowRange, Option<RowRange>),
    ) -> Result<(Vec<Found>, Option<RowRange>), Failure> {
        let first = first_row(range);
        let rows_max = u32::try_from(limit.rows_max).unwrap_or(u32::MAX / 2).min(1 << 20);
        let open = |region: &Region| {
            let (here, _) = split(range, region);
            ScanRequest {
                region: Some(RegionSpecifier::named(&region.name)),
                scan: Some(self.bounded(&here)),
                number_of_rows: Some(rows_max),
                limit_of_rows: Some(rows_max),
                client_handles_partials: Some(true),
                client_handles_heartbeats: Some(true),
                ..ScanRequest::default()
            }
        };
        let (place, until) = ((self.table, &first[..]), self.client.deadline());
        let (answer, region): (ScanResponse, _) =
            self.client.on_region(place, "Scan", open, true, until).await?;
        let (_, rest) = split(range, &region);
        let mut filling = Filling::default();
        let exhausted = self.fill(&mut filling, answer, &region, limit, rows_max).await;
        let resume = match (exhausted, filling.rows.last(), filling.cursor) {
            (true, ..) => rest,
            (false, Some((last, _)), _) => Some(range.after(RowKey::from(last.clone()))),
            // There is no row yet, but the scanner has reached this position.
            (false, None, Some(cursor)) => {
                Some(RowRange { start: Bound::Included(cursor.into()), end: range.end.clone() })
            }
            (false, None, None) => Some(range.clone()),
        };
        let resume = resume.filter(|range| !range.is_empty());
        Ok((filling.rows, resume))
    }

    /// Reads until the page is full or the region has no more rows; `true` in the latter case.
    async fn fill(
        &self,
        filling: &mut Filling,
        mut answer: ScanResponse,
        region: &Region,
        limit: PageLimit,
        rows_max: u32,
    ) -> bool {
        let scanner_id = answer.scanner_id;
        let mut next_call_seq = 0;
        loop {
            let more_in_region = answer.more_results_in_region.unwrap_or(false);
            let more = answer.more_results.unwrap_or(true);
            if filling.add(answer, limit) {
                self.end(region, scanner_id).await;
                return false;
            }
            if !more_in_region || !more {
                filling.close();
                // The limit of rows may end a scanner before the region's end.
                return !more_in_region && filling.rows.len() < rows_max as usize;
            }
            next_call_seq += 1;
            let request = ScanRequest {
                scanner_id,
                number_of_rows: Some(rows_max),
                next_call_seq: Some(next_call_seq - 1),
                client_handles_partials: Some(true),
                client_handles_heartbeats: Some(true),
                ..ScanRequest::default()
            };
            match self.client.next(region, &request).await {
                Ok(next) => answer = next,
                // The open row will be read again from its beginning.
                Err(_) => {
                    filling.open = None;
                    return false;
                }
            }
        }
    }

    /// Closes the scanner. The server also does so by itself after a while.
    async fn end(&self, region: &Region, scanner_id: Option<u64>) {
        let request =
            ScanRequest { scanner_id, close_scanner: Some(true), ..ScanRequest::default() };
        let _ = self.client.next(region, &request).await;
    }

    fn bounded(&self, range: &RowRange) -> Scan {
        let key = |bound: &Bound<RowKey>| match bound {
            Bound::Unbounded => None,
            Bound::Included(key) | Bound::Excluded(key) => Some(key.to_bytes()),
        };
        Scan {
            start_row: key(&range.start),
            include_start_row: Some(!matches!(range.start, Bound::Excluded(_))),
            stop_row: key(&range.end),
            include_stop_row: Some(matches!(range.end, Bound::Included(_))),
            max_result_size: Some(ANSWER_BYTES),
            need_cursor_result: Some(true),
            ..self.scan.clone()
        }
    }
}

/// The lowest key that the range may contain.
fn first_row(range: &RowRange) -> Bytes {
    match &range.start {
        Bound::Unbounded => Bytes::new(),
        Bound::Included(key) => key.to_bytes(),
        Bound::Excluded(key) => [key.as_bytes(), &[0]].concat().into(),
    }
}
