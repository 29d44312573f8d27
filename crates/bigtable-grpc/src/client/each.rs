//! Sends gathered reads of single rows in as few requests as the server allows (paper section
//! 2.5).
//!
//! Each transaction reads at its own timestamp, so the filters of its reads differ from those
//! of other transactions. A ReadRows has only one filter. The extension of this project's
//! server takes a row and a filter for each read. Any other server gets one ReadRows for each
//! distinct filter. It combines reads with equal filters: those of one transaction, or of
//! snapshots at the same timestamp, that select the same columns.
//!
//! Invariant: a failed read fails no other read. With the extension, each caller gets its
//! answer as soon as that answer arrives. Reads that one ReadRows combines get theirs when its
//! stream ends.

use std::collections::BTreeMap;

use bigtable::{Error, Row, RowKey};
use futures::StreamExt;
use futures::future::join_all;
use prost::Message;
use tonic::{Code, Status};

use super::gather::{RUNTIME_ENDED, Together, Waiting};
use super::merge::Merger;
use super::retry::{Attempts, once};
use super::row_read::RowRead;
use super::split::{BATCH_BYTES_MAX, Size, split};
use super::status::{is_transient, of_read};
use super::wire::{GrpcTable, IN_FLIGHT_MAX};
use crate::proto::extension::ReadEachRowRequest;
use crate::proto::extension::read_each_row_request::Entry;
use crate::proto::extension::read_each_row_response::Part;

impl Together for RowRead {
    type Answer = Row;

    async fn deliver(table: GrpcTable, gathered: Vec<Waiting<Self>>) {
        let Some(entries) = table.limits.reads_max.filter(|_| gathered.len() > 1) else {
            return by_filter(&table, gathered).await;
        };
        let max = Size { entries, bytes: BATCH_BYTES_MAX, mutations: 0 };
        let requests = split(gathered, max, size);
        let requests = requests.into_iter().map(|some| by_extension(&table, some));
        futures::stream::iter(requests).for_each_concurrent(IN_FLIGHT_MAX, |sent| sent).await;
    }

    fn given_up() -> Error {
        Error::Unavailable { why: format!("the client gave the read up: {RUNTIME_ENDED}") }
    }
}

fn nothing(key: RowKey) -> Row {
    Row::new(key, Vec::new())
}

async fn alone(table: &GrpcTable, read: Waiting<RowRead>) {
    let row = table.row(&read.request.key, read.request.filter.clone()).await;
    read.tell(row);
}

/// Sends one request per filter, which every server supports.
async fn by_filter(table: &GrpcTable, gathered: Vec<Waiting<RowRead>>) {
    let mut groups: BTreeMap<Vec<u8>, Vec<Waiting<RowRead>>> = BTreeMap::new();
    for read in gathered {
        groups.entry(read.request.filter.encode_to_vec()).or_default().push(read);
    }
    // All requests go at once, as they would have without gathering: of the callers here, none
    // waits for the answer to another one's read.
    join_all(groups.into_values().map(|group| same(table, group))).await;
}

async fn same(table: &GrpcTable, group: Vec<Waiting<RowRead>>) {
    if group.len() > 1 {
        let keys: Vec<_> = group.iter().map(|read| read.request.key.clone()).collect();
        // The error may concern one row only, so each row is then read by itself.
        if let Ok(found) = table.rows(&keys, &group[0].request.filter).await {
            for read in group {
                let key = &read.request.key;
                let row = found.get(key).cloned().unwrap_or_else(|| nothing(key.clone()));
                read.tell(Ok(row));
            }
            return;
        }
    }
    join_all(group.into_iter().map(|read| alone(table, read))).await;
}

fn size(read: &Waiting<RowRead>) -> Size {
    let RowRead { key, filter } = &read.request;
    let bytes = key.as_bytes().len() + filter.encoded_len();
    Size { entries: 1, bytes, mutations: 0 }
}

/// Reads by the extension. Reads without an answer, or with a transient error, are sent again.
async fn by_extension(table: &GrpcTable, mut left: Vec<Waiting<RowRead>>) {
    let mut attempts = Attempts::default();
    loop {
        let mut answers = Answers::new(left);
        let outcome = once(table.channels.deadline(), answers.receive(table)).await;
        let failed = answers.failed.take();
        left = answers.left.into_iter().flatten().collect();
        if left.is_empty() {
            return;
        }
        let unanswered = || Status::unavailable("the server did not answer all reads");
        let status = outcome.err().or(failed).unwrap_or_else(unanswered);
        if status.code() == Code::Unimplemented {
            // An older release without the extension has replaced the server.
            return by_filter(table, left).await;
        }
        // Each failed request counts for all reads left, whether or not others got answers:
        // each read is tried as often as it would be alone.
        if !attempts.again(&status).await {
            return left.into_iter().for_each(|read| read.tell(Err(of_read(&status))));
        }
    }
}

/// The reads of one request, and the answers received so far.
#[derive(Debug)]
struct Answers {
    /// The reads that have no answer yet; `None` for an answered one.
    left: Vec<Option<Waiting<RowRead>>>,
    /// The read whose answer has arrived in part.
    open: Option<(usize, Merger, Option<Row>)>,
    /// The last transient error of a read that is still left.
    failed: Option<Status>,
}

impl Answers {
    fn new(reads: Vec<Waiting<RowRead>>) -> Self {
        Answers { left: reads.into_iter().map(Some).collect(), open: None, failed: None }
    }

    /// Sends the request, and passes each answer to its caller when it arrives.
    async fn receive(&mut self, table: &GrpcTable) -> Result<(), Status> {
        let entry = |read: &Waiting<RowRead>| Entry {
            row_key: read.request.key.to_bytes(),
            filter: Some(read.request.filter.clone()),
        };
        let entries = self.left.iter().flatten().map(entry).collect();
        let request = ReadEachRowRequest { table_name: table.path.clone(), entries };
        let request = table.channels.read_request(&table.routing, request);
        let mut stream = table.channels.extension().read_each_row(request).await?.into_inner();
        let broken = |what: String| Status::data_loss(format!("the stream is broken: {what}"));
        while let Some(message) = stream.message().await? {
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
        let open = self.open.take().unwrap_or_else(|| (place, Merger::new(false), None));
        let (began, mut merger, mut found) = open;
        if began != place {
            return Err(format!("an answer to entry {place} within that to {began}"));
        }
        for chunk in part.chunks {
            if let Some(row) = merger.push(chunk)?
                && found.replace(row).is_some()
            {
                return Err(format!("several rows for entry {place}"));
            }
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
        let key = &read.request.key;
        let outcome = match (status, found) {
            (Some(status), _) => Err(of_read(&status)),
            (None, Some(row)) if row.key != *key => {
                let told = format!("row {} for {key}", row.key);
                *slot = Some(read);
                return Err(told);
            }
            (None, Some(row)) => Ok(row),
            (None, None) => Ok(nothing(key.clone())),
        };
        read.tell(outcome);
        Ok(())
    }
}
