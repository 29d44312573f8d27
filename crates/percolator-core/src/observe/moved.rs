//! Asks the oracle whether anything may have changed, so that idle workers find the changes of
//! other processes soon.
//!
//! A worker has no hint of another process's change, and finds it by scanning. Scans of an idle
//! store are rare, because each asks every table. The question whether the oracle has issued a
//! timestamp since the last question costs one small request. Every transaction that leaves a
//! notification takes a timestamp. So after an answer of "none" no scan is needed.
//!
//! A timestamp is issued before its transaction writes. Therefore the workers scan twice: when
//! they learn of a new timestamp, and one period later. A commit may take even longer. Nothing
//! depends on these scans: the ordinary ones find each change that they miss (H61).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bigtable::Timestamp;
use futures::future::{Either, select};

use crate::Result;
use crate::observe::context::Context;

/// Has idle workers scan soon after the oracle has issued a timestamp, until they stop.
pub(super) async fn peek_loop(context: Arc<Context>, every: Duration) {
    let mut last = None;
    // Whether the last answer was a new timestamp.
    let mut moved = false;
    while let Some(latest) = peek(&context).await {
        match latest {
            Ok(latest) => {
                let looks_again = moved;
                moved = last.replace(latest).is_some_and(|last| last != latest);
                if moved || looks_again {
                    context.look_now();
                }
            }
            Err(error) => context.report(&error),
        }
        context.rest(every).await;
    }
}

/// The highest timestamp issued so far. `None` once the workers are asked to stop.
async fn peek(context: &Context) -> Option<Result<Timestamp>> {
    match select(pin!(context.crew.stopping()), context.shared.oracle().peek()).await {
        Either::Left(_) => None,
        Either::Right((latest, _)) => Some(latest),
    }
}
