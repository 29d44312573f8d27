//! `console`: shows a store in the browser.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use percolator_console::Recorder;
use serde_json::json;
use webindex::WebIndex;

use crate::cmd::serve::asked_to_end;
use crate::cmd::webindex::{is_in, search_dir};
use crate::console::{ADDRESS, Consoles, Shown, ShownArgs, announced};
use crate::context::Context;
use crate::exit::Exit;
use crate::log::{LogArgs, ServiceLog};
use crate::service::{self, State};
use crate::store::{CONSOLE, Place, StoreArgs};

/// Show a store in the browser, until Ctrl-C. The store is a cluster, or a directory that no
/// other process has open.
///
/// The console shows the rates and durations of its own process. To see those of a load or a
/// worker, start that command with --console. The process also collects garbage, with a retention
/// of ten minutes, also with --read-only.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator console --data D
  percolator console --config percolator.toml --read-only")]
pub(crate) struct Console {
    /// The address to listen on; port 0 takes any free one.
    #[arg(long, value_name = "ADDR", default_value = ADDRESS)]
    listen: SocketAddr,
    #[command(flatten)]
    shown: ShownArgs,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    store: StoreArgs,
}

impl Console {
    pub(crate) fn log(&self) -> ServiceLog {
        ServiceLog::new("console", &self.log)
    }

    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let recorder = Arc::new(Recorder::new());
        let place = self.store.place()?;
        let db = self
            .store
            .watched_by(recorder.clone())
            .in_role(CONSOLE)
            .open_existing_at(&place)
            .await?;
        // In a directory no process runs the observers meanwhile, so changes wait. Search works
        // in clusters.
        let index = match &place {
            Place::Cluster(config) if is_in(&db).await? && search_dir(config).is_some() => {
                Some(Arc::new(WebIndex::connect(db.clone(), search_dir(config)).await?))
            }
            _ => None,
        };
        let shown = Shown {
            db: &db,
            recorder: Some(&recorder),
            place: Some(&place),
            index: index.as_ref(),
            gauge: None,
        };
        let mut consoles = Consoles::default();
        let dir = consoles.token_dir(Some(&place))?;
        let console = self.shown.console(&shown).token_dir(dir).listen(self.listen).await?;
        // A program that reads the URL may end this process at once.
        let ending = asked_to_end(&context.interrupt)?;
        if context.out.json {
            let file = console.token_file().map(|file| file.display().to_string());
            let (url, address) = (console.url_without_token(), console.addr().to_string());
            let line = json!({ "url": url, "address": address, "token_file": file });
            context.out.line(&line.to_string())?;
        } else {
            context.out.line(&announced(&console, io::stdout().is_terminal()))?;
            context.out.note("open this URL in a browser; Ctrl-C ends the console");
        }
        service::report(State::Ready);
        ending.await;
        Ok(Exit::Done)
    }
}
