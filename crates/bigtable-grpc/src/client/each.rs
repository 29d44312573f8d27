//! Reads of single rows that have gathered, by as few requests as the server takes them in (paper
//! section 2.5).
//!
//! Transactions read at timestamps of their own, so their filters differ, and a ReadRows has one
//! filter. The extension of this project's server takes a row and a filter for each read. To any
//! other server only reads by the same filter go together: those of one transaction, or of
//! snapshots at one timestamp.
//!
//! Invariant: what comes for one read is told to its caller when it comes, whatever becomes of the
//! others.

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
        Error::Unavailable { why: format!("the read was given up: {RUNTIME_ENDED}") }
    }
}

fn nothing(key: RowKey) -> Row {
    Row::new(key, Vec::new())
}

async fn alone(table: &GrpcTable, read: Waiting<RowRead>) {
    let row = table.row(&read.request.key, read.request.filter.clone()).await;
    read.tell(row);
}

/// Reads those with the same filter by one request, as any server takes them.
async fn by_filter(table: &GrpcTable, gathered: Vec<Waiting<RowRead>>) {
    let mut groups: BTreeMap<Vec<u8>, Vec<Waiting<RowRead>>> = BTreeMap::new();
    for read in gathered {
        groups.entry(read.request.filter.encode_to_vec()).or_default().push(read);
    }
    // All at once, as they would have been without waiting for each other: nobody waits for a reply
    // to another's read.
    join_all(groups.into_values().map(|group| same(table, group))).await;
}

async fn same(table: &GrpcTable, group: Vec<Waiting<RowRead>>) {
    if group.len() > 1 {
        let keys: Vec<_> = group.iter().map(|read| read.request.key.clone()).collect();
        // An error may be about one row alone: then each is asked for by itself.
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

/// Reads by the extension; what has not come, or may come a moment later, is asked for again.
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
        let unanswered = || Status::unavailable("the server has left reads without an answer");
        let status = outcome.err().or(failed).unwrap_or_else(unanswered);
        if status.code() == Code::Unimplemented {
            // An older release was started in its place.
            return by_filter(table, left).await;
        }
        // Answers to others do not count: each read is tried as often as it would be alone.
        if !attempts.again(&status).await {
            return left.into_iter().for_each(|read| read.tell(Err(of_read(&status))));
        }
    }
}

/// The reads of one request, and what has come for them.
#[derive(Debug)]
struct Answers {
    /// Those that have no answer yet.
    left: Vec<Option<Waiting<RowRead>>>,
    /// The one whose answer has come in part.
    open: Option<(usize, Merger, Option<Row>)>,
    /// Why one that is left has failed.
    failed: Option<Status>,
}

impl Answers {
    fn new(reads: Vec<Waiting<RowRead>>) -> Self {
        Answers { left: reads.into_iter().map(Some).collect(), open: None, failed: None }
    }

    /// Sends the request, and tells what comes.
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
            Some(_) => Err(broken("it ends within an answer".to_owned())),
        }
    }

    /// The error says which rule of the stream the part breaks.
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
        let slot = slot.filter(|slot| slot.is_some()).ok_or("an answer that was not asked for")?;
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
