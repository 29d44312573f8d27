//! Sends gathered reads in as few requests as the server allows (paper section 2.5).
//!
//! Each transaction reads at its own timestamp, so the filters of its reads differ from those
//! of other transactions. A ReadRows has only one filter. The extension of this project's
//! server takes a table, a row or a short page of a range, and a filter for each read. Any other
//! server gets one ReadRows for each page and for each distinct filter of a table's rows. It
//! combines reads of rows with equal filters: those of one transaction, or of snapshots at the same
//! timestamp, that select the same columns.
//!
//! Invariant: a failed read fails no other read. There are two exceptions: the server breaks the
//! rules of the stream, or it answers the first read left after the deadline in each attempt. With
//! the extension, each caller gets its answer as soon as that answer arrives. Reads that one
//! ReadRows combines get theirs when its stream ends.

use std::collections::BTreeMap;
use std::ops::Bound;

use bigtable::{Bytes, Error, Page, Row, RowKey};
use futures::StreamExt;
use futures::future::join_all;
use prost::Message;
use tonic::{Code, Status};

use super::gather::{RUNTIME_ENDED, Together, Waiting};
use super::merge::Merger;
use super::read::{BYTES_MAX, Of, Read};
use super::retry::{Attempts, once};
use super::spanned::Spanned;
use super::split::{BATCH_BYTES_MAX, Size, split};
use super::status::{is_transient, of_read};
use super::wire::{GrpcTable, IN_FLIGHT_MAX, wire_range};
use crate::proto::extension::ReadEachRequest;
use crate::proto::extension::read_each_request::Entry;
use crate::proto::extension::read_each_response::Part;

/// A read of the row with this key.
type OfRow = (RowKey, Waiting<Read>);

impl Together for Read {
    type Answer = Page;

    async fn deliver(mut gathered: Vec<Waiting<Self>>) {
        let reads_max = gathered.first().and_then(|read| read.table.limits.reads_max);
        let Some(entries) = reads_max.filter(|_| gathered.len() > 1) else {
            return by_filter(gathered).await;
        };
        let max = Size { entries, bytes: BATCH_BYTES_MAX, mutations: 0 };
        // The server answers in this order, and a row is read sooner than a page.
        gathered.sort_by_key(|read| matches!(read.request.of, Of::Page(..)));
        let requests = split(gathered, max, size).into_iter().map(by_extension);
        futures::stream::iter(requests).for_each_concurrent(IN_FLIGHT_MAX, |sent| sent).await;
    }

    fn given_up() -> Error {
        Error::Unavailable { why: format!("the client gave the read up: {RUNTIME_ENDED}") }
    }
}

fn of_row(row: Row) -> Page {
    Page { rows: vec![row], resume: None }
}

async fn alone(read: Waiting<Read>) {
    let Read { of, filter } = &read.request;
    let page = match of {
        Of::Row(key) => read.table.row(key, filter.clone()).await.map(of_row),
        Of::Page(range, limit) => read.table.page(range, filter, *limit).await,
    };
    read.tell(page);
}

/// Sends one request for each page, and for each filter of rows, which every server supports.
async fn by_filter(gathered: Vec<Waiting<Read>>) {
    let mut groups: BTreeMap<(String, Vec<u8>), Vec<OfRow>> = BTreeMap::new();
    let mut pages = Vec::new();
    for read in gathered {
        match &read.request.of {
            Of::Row(key) => {
                let (key, filter) = (key.clone(), read.request.filter.encode_to_vec());
                groups.entry((read.table.path.clone(), filter)).or_default().push((key, read));
            }
            Of::Page(..) => pages.push(alone(read)),
        }
    }
    // All requests go at once, as they would have without gathering: of the callers here, none
    // waits for the answer to another one's read.
    let groups = join_all(groups.into_values().map(same));
    futures::join!(groups, join_all(pages));
}

async fn same(group: Vec<OfRow>) {
    if let [(_, first), _, ..] = &group[..] {
        let keys: Vec<_> = group.iter().map(|(key, _)| key.clone()).collect();
        // The error may concern one row only, so each row is then read by itself.
        if let Ok(found) = first.table.rows(&keys, &first.request.filter).await {
            for (key, read) in group {
                let row = found.get(&key).cloned();
                read.tell(Ok(of_row(row.unwrap_or_else(|| Row::new(key, Vec::new())))));
            }
            return;
        }
    }
    join_all(group.into_iter().map(|(_, read)| alone(read))).await;
}

fn size(read: &Waiting<Read>) -> Size {
    let Read { of, filter } = &read.request;
    let bound = |bound: &Bound<RowKey>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => key.as_bytes().len(),
        Bound::Unbounded => 0,
    };
    let keys = match of {
        Of::Row(key) => key.as_bytes().len(),
        Of::Page(range, _) => bound(&range.start) + bound(&range.end),
    };
    Size { entries: 1, bytes: keys + filter.encoded_len(), mutations: 0 }
}

/// Writes a read in the form of the extension.
fn entry(Read { of, filter }: &Read) -> Entry {
    let filter = Some(filter.clone());
    match of {
        Of::Row(key) => Entry { row_key: key.to_bytes(), filter, ..Entry::default() },
        Of::Page(range, limit) => {
            // Zero would be the server's own bound.
            let [rows_max, bytes_max] = [limit.rows_max, limit.bytes_max.min(BYTES_MAX)]
                .map(|max| u32::try_from(max.max(1)).unwrap_or(u32::MAX));
            let row_range = Some(wire_range(range));
            Entry { filter, row_range, rows_max, bytes_max, ..Entry::default() }
        }
    }
}

/// Builds the answer to a read. The error says what is wrong with the server's answer.
fn answer(of: &Of, rows: Vec<Row>, scanned: Bytes) -> Result<Page, String> {
    let is_asked = |key: &RowKey| match of {
        Of::Row(asked) => key == asked,
        Of::Page(range, _) => range.contains(key),
    };
    if let Some(row) = rows.iter().find(|row| !is_asked(&row.key)) {
        return Err(format!("row {}, which was not asked for", row.key));
    }
    match of {
        Of::Row(key) => {
            let row = rows.into_iter().next();
            Ok(of_row(row.unwrap_or_else(|| Row::new(key.clone(), Vec::new()))))
        }
        Of::Page(..) if scanned.is_empty() => Ok(Page { rows, resume: None }),
        Of::Page(range, _) => {
            let scanned = RowKey::from(scanned);
            if !range.contains(&scanned) || rows.last().is_some_and(|last| last.key > scanned) {
                return Err(format!("a page that ends at {scanned}, which is not its end"));
            }
            let rest = range.after(scanned);
            Ok(Page { rows, resume: (!rest.is_empty()).then_some(rest) })
        }
    }
}

/// Reads by the extension. Reads without an answer, or with a transient error, are sent again.
async fn by_extension(mut left: Vec<Waiting<Read>>) {
    let Some(table) = left.first().map(|read| read.table.clone()) else { return };
    let mut attempts = Attempts::default();
    loop {
        let asked = left.len();
        let mut answers = Answers::new(left);
        let outcome = answers.receive(&table).await;
        let failed = answers.failed.take();
        left = answers.left.into_iter().flatten().collect();
        if left.is_empty() {
            return;
        }
        let unanswered = || Status::unavailable("the server did not answer all reads");
        let status = outcome.err().or(failed).unwrap_or_else(unanswered);
        if status.code() == Code::Unimplemented {
            // An older release without the extension has replaced the server.
            return by_filter(left).await;
        }
        // A read behind one that takes long was not tried yet.
        if left.len() < asked {
            attempts = Attempts::default();
        }
        if !attempts.again(&status).await {
            return left.into_iter().for_each(|read| read.tell(Err(of_read(&status))));
        }
    }
}

/// The reads of one request, and the answers received so far.
#[derive(Debug)]
struct Answers {
    /// The reads that have no answer yet; `None` for an answered one.
    left: Vec<Option<Waiting<Read>>>,
    /// The read whose answer has arrived in part.
    open: Option<(usize, Merger, Vec<Row>)>,
    /// The last transient error of a read that is still left.
    failed: Option<Status>,
}

impl Answers {
    fn new(reads: Vec<Waiting<Read>>) -> Self {
        Answers { left: reads.into_iter().map(Some).collect(), open: None, failed: None }
    }

    /// Sends the request, and passes each answer to its caller when it arrives.
    async fn receive(&mut self, table: &GrpcTable) -> Result<(), Status> {
        let mut tables = Spanned::default();
        let entries = self.left.iter().flatten();
        let entries = entries
            .map(|read| Entry { table: tables.number(&read.table.path), ..entry(&read.request) })
            .collect();
        let request = ReadEachRequest { entries, table_names: tables.names() };
        let request = table.channels.read_request(&table.routing, request);
        let deadline = table.channels.deadline();
        let mut client = table.channels.extension();
        let mut stream = once(deadline, client.read_each(request)).await?.into_inner();
        let broken = |what: String| Status::data_loss(format!("the stream is broken: {what}"));
        // Each message has the whole deadline, since a large row takes its time.
        while let Some(message) = once(deadline, stream.message()).await? {
            for part in message.parts {
                self.take(part).map_err(broken)?;
            }
        }
        match self.open {
            None => Ok(()),
            Some(_) => Err(broken("the stream ends within an answer".to_owned())),
        }
    }

    /// Takes one part of the stream. The error says which rule of the stream the part breaks.
    fn take(&mut self, part: Part) -> Result<(), String> {
        let place = usize::try_from(part.entry).unwrap_or(usize::MAX);
        let open = self.open.take().unwrap_or_else(|| (place, Merger::new(false), Vec::new()));
        let (began, mut merger, mut found) = open;
        if began != place {
            return Err(format!("an answer to entry {place} within that to {began}"));
        }
        for chunk in part.chunks {
            found.extend(merger.push(chunk)?);
        }
        let rows_max = match self.left.get(place) {
            Some(Some(read)) => read.request.of.rows_max(),
            _ => 0,
        };
        if found.len() > rows_max {
            return Err(format!("{} rows for entry {place}", found.len()));
        }
        if part.more {
            self.open = Some((place, merger, found));
            return Ok(());
        }
        merger.finish()?;
        let slot = self.left.get_mut(place);
        let slot = slot
            .filter(|slot| slot.is_some())
            .ok_or("the server sent an answer that no request asked for")?;
        let status = part.status.map(|s| Status::new(Code::from_i32(s.code), s.message));
        if let Some(status) = &status
            && is_transient(status)
        {
            self.failed = Some(status.clone());
            return Ok(());
        }
        let Some(read) = slot.take() else { return Ok(()) };
        let outcome = match status {
            Some(status) => Err(of_read(&status)),
            None => match answer(&read.request.of, found, part.scanned) {
                Ok(page) => Ok(page),
                Err(told) => {
                    *slot = Some(read);
                    return Err(told);
                }
            },
        };
        read.tell(outcome);
        Ok(())
    }
}
