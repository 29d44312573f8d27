//! Runs a command here, or sends it to another process that has its directory open. Refuses a
//! command that cannot run there. A command that only reads is started again, up to five times in
//! all, if that process ends before the command prints. This module also runs commands that other
//! processes send here.

use std::io::IsTerminal;

use tracing::instrument::WithSubscriber;

use super::{Elsewhere, Program, conclude};
use crate::context::{Context, Input};
use crate::events;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::Out;
use crate::owner::ask::{self, Answer};
use crate::owner::find::{OpenElsewhere, find};
use crate::owner::hello::{Asker, Request};
use crate::owner::session::Call;
use crate::store;

/// How often a command that only reads is started again, if one owner of its directory after the
/// other ends.
const RUNS_MAX: usize = 5;

/// Runs a command here, or sends it to the process that has its directory open.
pub(super) async fn run_anywhere<P: Program>(
    mut program: P,
    context: &Context,
) -> anyhow::Result<Exit> {
    let mut runs = 0;
    loop {
        runs += 1;
        let (elsewhere, events) = (program.elsewhere(), program.global().events.clone());
        let error = match program.run(context).await {
            Ok(exit) => return Ok(exit),
            Err(error) => error,
        };
        let found = match error.downcast::<OpenElsewhere>() {
            Ok(found) => found,
            Err(error) => return Err(named(error).await),
        };
        if elsewhere == Elsewhere::Nowhere {
            return Err(found.refusal());
        }
        let events = events.as_deref().map(events::open).transpose()?;
        let asker = Asker {
            stdout_is_terminal: std::io::stdout().is_terminal(),
            color: context.out.color,
            events: events.is_some(),
            dir: std::env::current_dir().unwrap_or_default(),
        };
        let needs_database = elsewhere != Elsewhere::Copies;
        let (args, input) = (std::env::args_os().collect(), context.input.as_bytes().to_vec());
        let request = Request { args, input, asker };
        match ask::ask(found, (request, needs_database), events, &context.interrupt).await? {
            Answer::Exit(exit) => return Ok(exit),
            Answer::CutOff { printed: false, .. }
                if elsewhere == Elsewhere::Reads
                    && runs < RUNS_MAX
                    && !context.interrupt.requested() =>
            {
                program = P::parse();
            }
            Answer::CutOff { error, .. } => return Err(error),
        }
    }
}

/// Adds the name of the owner to the error of a command that opened its directory in a way of its
/// own.
async fn named(error: anyhow::Error) -> anyhow::Error {
    let Some(dir) = store::in_use(&error) else { return error };
    match find(&dir).await {
        Some(owner) => OpenElsewhere { dir, owner }.refusal(),
        None => error,
    }
}

/// Runs a command for another process, on this thread; `None` if it was cut off.
pub(crate) fn run_asked<P: Program>(call: Call) -> Option<Exit> {
    let Call { asked, request, interrupt, mut cut_off, runtime } = call;
    let Request { args, input, asker } = request;
    // The asker has parsed the same arguments with the same tree, so it has shown help and
    // mistakes already.
    let program = P::try_parse_from(args).ok()?;
    let (global, writes) = (program.global(), program.elsewhere() == Elsewhere::Writes);
    let copies = program.elsewhere() == Elsewhere::Copies;
    let out = Out { json: global.json, quiet: global.quiet, color: asker.color, logs: false };
    let events = events::relayed(global.level(), &asked);
    let is_cut_off = cut_off.clone();
    let run = async {
        let result = match (program.elsewhere(), Input::sent(input)) {
            (Elsewhere::Nowhere, _) => return None,
            // The asker has been told that this process runs none.
            _ if !copies && !asked.has_database() => return None,
            (_, Err(error)) => Err(error.into()),
            (_, Ok(input)) => {
                let interrupt = Interrupt::asked_by(interrupt);
                let context = Context { out, interrupt, input, tree: P::command };
                tokio::select! {
                    result = program.run(&context) => result,
                    _ = cut_off.wait_for(|cut_off| *cut_off) => return None,
                }
            }
        };
        Some(result)
    };
    let scoped = asked.clone().scope(async {
        let result = run.await;
        let closed = asked.close(store::CLOSING_MAX, writes).await;
        let result = result?.and_then(|exit| Ok(closed.map(|()| exit)?));
        if *is_cut_off.borrow() {
            // The database may be closed by now, and then the error is only a consequence.
            return None;
        }
        Some(conclude::<P>(result, out))
    });
    let exit = runtime.block_on(scoped.with_subscriber(events));
    // Turns off the events that only that command wanted, so that they cost nothing from now on.
    tracing::callsite::rebuild_interest_cache();
    exit
}
