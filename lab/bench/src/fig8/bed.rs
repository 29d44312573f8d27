//! Creates all copies of the cells, and the arms that read and write them.

use std::path::Path;
use std::sync::Arc;

use percolator::{Options, Percolator};
use percolator_cli::context::Context;
use percolator_cli::progress::Progress;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tempfile::TempDir;

use super::caller::Work;
use super::cells::{Cells, Place};
use super::embedded::{
    Switches, bare, optimistic, packs, raw, recorded, single_writer, traced, transactions, twice,
    two_phases,
};
use super::postgres::Rows;
use super::remote::{self, Emulator};
use super::{Beside, Fig8};
use crate::Turns;
use crate::server::Server;
use crate::turns::{Others, go_on};

/// Most cells where loading each takes a request of its own.
pub(super) const FEWER_CELLS_MAX: usize = 10_000;

pub(super) struct Arm {
    pub(super) name: &'static str,
    pub(super) operation: &'static str,
    pub(super) work: Work,
    pub(super) callers: usize,
    pub(super) cells: Arc<Cells>,
    beside: Option<Beside>,
    /// True if processes that this one does not know work for the arm.
    elsewhere: bool,
}

pub(super) struct Bed {
    pub(super) arms: Vec<Arm>,
    /// The parts that were left out, each with the remedy.
    pub(super) missing: Vec<String>,
    keys: Arc<Vec<bigtable::RowKey>>,
    fewer: Arc<Vec<bigtable::RowKey>>,
    callers: usize,
    random: SmallRng,
    server: Option<Server>,
    emulator: Option<Emulator>,
    /// With its directory, which must outlive it.
    postgres: Option<(tpce::postgres::Server, TempDir)>,
}

impl Bed {
    pub(super) async fn create(
        context: &Context,
        settings: &Fig8,
        turns: Turns,
        dir: &Path,
    ) -> anyhow::Result<Bed> {
        let progress = Progress::new(context.out.quiet, None);
        let mut bed = Bed::empty(settings.cells, settings.callers, turns);
        let with = |beside| !settings.without.contains(&beside);
        for part in 0..6 {
            go_on(context)?;
            progress.say(part, &format!("loading, {} of 6", part + 1));
            match part {
                0 => bed.buffered(dir).await?,
                1 => bed.ladder(dir).await?,
                2 => bed.synced(dir).await?,
                3 if with(Beside::Server) => bed.served().await?,
                4 if with(Beside::Emulator) => bed.emulated().await?,
                5 if with(Beside::Postgres) => bed.relational().await?,
                _ => {}
            }
        }
        Ok(bed)
    }

    fn empty(cells: usize, callers: usize, turns: Turns) -> Bed {
        Bed {
            arms: Vec::new(),
            missing: Vec::new(),
            keys: Cells::keys(cells),
            fewer: Cells::keys(cells.min(FEWER_CELLS_MAX)),
            callers,
            random: SmallRng::seed_from_u64(turns.seed),
            server: None,
            emulator: None,
            postgres: None,
        }
    }

    /// Loads two copies into another store: a raw one, and one with transactions.
    pub(super) async fn over(
        [raw, cells]: [Place; 2],
        (count, callers): (usize, usize),
        turns: Turns,
    ) -> anyhow::Result<Bed> {
        let mut bed = Bed::empty(count, callers, turns);
        let raw = bed.copy(raw).await?;
        bed.arm("raw_get", &raw, Work::Get, "Table::read_row: one Get");
        bed.many("raw_get_many", &raw, Work::Get, "the same, many callers");
        bed.arm("raw_set", &raw, Work::Set, "Table::mutate_row: one Put with the row's guard");
        bed.many("raw_set_many", &raw, Work::Set, "the same, many callers");
        let cells = bed.copy(cells).await?;
        bed.arm("get", &cells, Work::Get, "get at a snapshot");
        bed.many("get_many", &cells, Work::Get, "the same, many callers");
        bed.arm("tx", &cells, Work::Set, "a transaction that sets a cell, the oracle here");
        bed.many("tx_many", &cells, Work::Set, "the same, many callers");
        bed.arms.iter_mut().for_each(|arm| arm.elsewhere = true);
        Ok(bed)
    }

    /// Every copy once.
    pub(super) fn copies(&self) -> Vec<&Cells> {
        let mut copies: Vec<&Arc<Cells>> = Vec::new();
        for arm in &self.arms {
            if !copies.iter().any(|known| Arc::ptr_eq(known, &arm.cells)) {
                copies.push(&arm.cells);
            }
        }
        copies.into_iter().map(|cells| &**cells).collect()
    }

    /// The processes beside this one that work for an arm.
    pub(super) fn others(&self, arm: &Arm) -> Others<'_> {
        match (arm.beside, &self.server, &self.emulator) {
            (Some(Beside::Server), Some(server), _) => Others::Server(server),
            (Some(Beside::Emulator), _, Some(Emulator::Started(server))) => Others::Server(server),
            (Some(Beside::Emulator), _, _) => Others::Unknown,
            (Some(Beside::Postgres), _, _) => Others::Descendants,
            _ if arm.elsewhere => Others::Unknown,
            _ => Others::Nobody,
        }
    }

    async fn copy(&mut self, place: Place) -> anyhow::Result<Arc<Cells>> {
        self.load(Cells::new(place, &self.keys)).await
    }

    async fn smaller_copy(&mut self, place: Place) -> anyhow::Result<Arc<Cells>> {
        self.load(Cells::new(place, &self.fewer)).await
    }

    async fn load(&mut self, cells: Cells) -> anyhow::Result<Arc<Cells>> {
        cells.load(&mut self.random).await?;
        Ok(Arc::new(cells))
    }

    fn arm(&mut self, name: &'static str, cells: &Arc<Cells>, work: Work, operation: &'static str) {
        let cells = cells.clone();
        self.arms.push(Arm {
            name,
            operation,
            work,
            callers: 1,
            cells,
            beside: None,
            elsewhere: false,
        });
    }

    fn many(
        &mut self,
        name: &'static str,
        cells: &Arc<Cells>,
        work: Work,
        operation: &'static str,
    ) {
        let (cells, callers) = (cells.clone(), self.callers);
        self.arms.push(Arm {
            name,
            operation,
            work,
            callers,
            cells,
            beside: None,
            elsewhere: false,
        });
    }

    /// Adds the arms whose writes survive the end of the process.
    async fn buffered(&mut self, dir: &Path) -> anyhow::Result<()> {
        let at = |name: &str| dir.join(name);
        let engine = self.copy(bare(&at("fjall"), false)?).await?;
        self.arm("fjall_get", &engine, Work::Get, "get of a bare fjall keyspace");
        self.arm("fjall_insert", &engine, Work::Set, "insert into a bare fjall keyspace");
        let engine = self.copy(packs(&at("fjall-packs"))?).await?;
        let operation = "what raw_set puts, into bare fjall keyspaces";
        self.arm("fjall_packs", &engine, Work::Set, operation);
        let peer = self.copy(optimistic(&at("optimistic"), false)?).await?;
        self.arm(
            "fjall_optimistic",
            &peer,
            Work::Set,
            "fjall_insert in fjall's optimistic transaction",
        );
        let peer = self.copy(single_writer(&at("single-writer"), false)?).await?;
        self.arm(
            "fjall_single_writer",
            &peer,
            Work::Set,
            "the same in fjall's transaction in turn",
        );

        let store = Switches::ALL.open(&at("main"))?;
        let db = Percolator::over(store.clone(), Options::default()).await?;
        let apart = self.copy(raw(&*store, "raw", true).await?).await?;
        let blind = self.copy(raw(&*store, "blind", false).await?).await?;
        self.arm("raw_get", &apart, Work::Get, "newest version of one cell by Table::read_row");
        self.many("raw_get_many", &apart, Work::Get, "raw_get, many callers");
        self.arm("raw_set", &apart, Work::Set, "a newer version of that cell by Table::mutate_row");
        self.arm(
            "raw_set_blind",
            &blind,
            Work::Set,
            "the same where it takes no older version along",
        );
        self.many("raw_set_many", &apart, Work::Set, "raw_set, many callers");
        self.many("raw_set_blind_many", &blind, Work::Set, "raw_set_blind, many callers");
        let cells = self.copy(transactions(&db, Options::default(), "cells").await?).await?;
        self.arm("get", &cells, Work::Get, "get, a hundred at one snapshot");
        self.many("get_many", &cells, Work::Get, "get, many callers");
        self.arm("snapshot_get", &cells, Work::SnapshotGet, "snapshot, get");
        self.arm("begin_get", &cells, Work::BeginGet, "begin, get");
        self.arm("tx", &cells, Work::Set, "begin, set, commit");
        self.many("tx_many", &cells, Work::Set, "tx, many callers");
        // They share the copy: the store caches another one as it has room for it.
        let recorded = Arc::new(cells.through(transactions(&db, recorded(), "cells").await?));
        self.arm("get_recorded", &recorded, Work::Get, "get, with a console's recorder");
        self.arm("tx_recorded", &recorded, Work::Set, "tx, with a console's recorder");
        let traced = Arc::new(cells.through(transactions(&db, traced(), "cells").await?));
        self.arm("get_traced", &traced, Work::Get, "get, with a trace of each transaction");
        self.arm("tx_traced", &traced, Work::Set, "tx, with a trace of each transaction");
        let ten = self.alone(&at("ten"), Switches::ALL, Options::default()).await?;
        self.arm("tx_ten", &ten, Work::SetTen, "begin, ten sets in ten rows, commit; in cells");
        Ok(())
    }

    /// Creates a copy in a store of its own, so that no other cells lie between its cells.
    async fn alone(
        &mut self,
        dir: &Path,
        switches: Switches,
        options: Options,
    ) -> anyhow::Result<Arc<Cells>> {
        let store = switches.open(dir)?;
        let db = Percolator::over(store, options.clone()).await?;
        self.copy(transactions(&db, options, "cells").await?).await
    }

    /// Adds the steps of the ladder below the default.
    async fn ladder(&mut self, dir: &Path) -> anyhow::Result<()> {
        let (all, paper) = (Switches::ALL, Switches::PAPER);
        let apart = Switches { newest_apart: true, ..paper };
        let forms = [
            ("two_phases", all, true, "tx, by prewrite and commit as in the paper"),
            ("with_memory", all, false, "the same, values apart from records"),
            ("with_newest_apart", apart, false, "the same, newest records not remembered"),
            ("paper_faithful", paper, false, "the same, all versions together: the paper's form"),
        ];
        let store = Switches::ALL.open(&dir.join("two-mutations"))?;
        let cells = self.copy(twice(&*store, "cells").await?).await?;
        let operation = "what two_phases puts and removes, by two Table::mutate_row";
        self.arm("two_mutations", &cells, Work::Set, operation);
        for (name, switches, short_values, operation) in forms {
            let cells = self.alone(&dir.join(name), switches, two_phases(short_values)).await?;
            self.arm(name, &cells, Work::Set, operation);
            if name == "paper_faithful" {
                self.arm("paper_faithful_get", &cells, Work::Get, "get, in that form");
            }
        }
        Ok(())
    }

    /// Adds the arms whose writes survive a power cut.
    async fn synced(&mut self, dir: &Path) -> anyhow::Result<()> {
        let at = |name: &str| dir.join(name);
        let engine = self.smaller_copy(bare(&at("fjall-sync"), true)?).await?;
        self.arm("fjall_insert_sync", &engine, Work::Set, "fjall_insert, synced");
        let peer = self.smaller_copy(optimistic(&at("optimistic-sync"), true)?).await?;
        self.arm("fjall_optimistic_sync", &peer, Work::Set, "fjall_optimistic, synced");
        let peer = self.smaller_copy(single_writer(&at("single-writer-sync"), true)?).await?;
        self.arm("fjall_single_writer_sync", &peer, Work::Set, "fjall_single_writer, synced");

        let sync = Switches { sync: true, ..Switches::ALL };
        let store = sync.open(&at("sync"))?;
        let db = Percolator::over(store.clone(), Options::default()).await?;
        let table = self.smaller_copy(raw(&*store, "raw", true).await?).await?;
        self.arm("raw_set_sync", &table, Work::Set, "raw_set, synced");
        self.many("raw_set_sync_many", &table, Work::Set, "the same, many callers");
        let cells = transactions(&db, Options::default(), "cells").await?;
        let cells = self.smaller_copy(cells).await?;
        self.arm("tx_sync", &cells, Work::Set, "tx, synced");
        self.many("tx_sync_many", &cells, Work::Set, "the same, many callers");
        let phases = transactions(&db, two_phases(true), "phases").await?;
        let phases = self.smaller_copy(phases).await?;
        self.arm("two_phases_sync", &phases, Work::Set, "two_phases, synced");

        let alone = Switches { groups: false, ..sync }.open(&at("sync-alone"))?;
        let db = Percolator::over(alone, Options::default()).await?;
        let cells = transactions(&db, Options::default(), "cells").await?;
        let cells = self.smaller_copy(cells).await?;
        self.many("tx_sync_many_alone", &cells, Work::Set, "tx_sync_many, each synced by itself");
        Ok(())
    }

    async fn served(&mut self) -> anyhow::Result<()> {
        let server = Server::start("table", &["--durability", "buffered"])?;
        let tables = remote::tables(server.address()).await?;
        self.server = Some(server);
        let names = ["server_raw_get", "server_raw_set", "server_get", "server_tx"];
        self.remote(Beside::Server, tables, names).await
    }

    async fn emulated(&mut self) -> anyhow::Result<()> {
        let emulator = match Emulator::start()? {
            Ok(emulator) => emulator,
            Err(missing) => {
                self.missing.push(missing);
                return Ok(());
            }
        };
        let tables = remote::tables(emulator.address()).await?;
        self.emulator = Some(emulator);
        let names = ["emulator_raw_get", "emulator_raw_set", "emulator_get", "emulator_tx"];
        self.remote(Beside::Emulator, tables, names).await
    }

    async fn remote(
        &mut self,
        beside: Beside,
        [raw, cells]: [Place; 2],
        [raw_get, raw_set, get, tx]: [&'static str; 4],
    ) -> anyhow::Result<()> {
        let first = self.arms.len();
        let raw = self.smaller_copy(raw).await?;
        self.arm(raw_get, &raw, Work::Get, "raw_get over loopback");
        self.arm(raw_set, &raw, Work::Set, "raw_set over loopback");
        let cells = self.smaller_copy(cells).await?;
        self.arm(get, &cells, Work::Get, "get over loopback");
        self.arm(tx, &cells, Work::Set, "tx over loopback, the oracle in this process");
        self.arms[first..].iter_mut().for_each(|arm| arm.beside = Some(beside));
        Ok(())
    }

    /// Adds the arms of PostgreSQL, with a process for each connection.
    async fn relational(&mut self) -> anyhow::Result<()> {
        let programs = match tpce::postgres::Server::find() {
            Ok(programs) => programs,
            Err(missing) => {
                self.missing.push(missing.to_string());
                return Ok(());
            }
        };
        let dir = tempfile::Builder::new().prefix("percolator-fig8-").tempdir()?;
        let server = tpce::postgres::Server::start(dir.path(), programs)?;
        let (first, keys) = (self.arms.len(), self.fewer.clone());
        let rows = Rows::create(&server, "cells", false, 1, &keys).await?;
        let rows = self.smaller_copy(Place::Postgres(rows)).await?;
        self.arm("postgres_get", &rows, Work::Get, "PostgreSQL: select of a row by primary key");
        self.arm("postgres_update", &rows, Work::Set, "PostgreSQL: update of a row, committed");
        let rows = Rows::create(&server, "synced", true, self.callers, &keys).await?;
        let rows = self.smaller_copy(Place::Postgres(rows)).await?;
        self.arm("postgres_update_sync", &rows, Work::Set, "the same, synced");
        self.many("postgres_update_sync_many", &rows, Work::Set, "the same, many callers");
        self.postgres = Some((server, dir));
        self.arms[first..].iter_mut().for_each(|arm| arm.beside = Some(Beside::Postgres));
        Ok(())
    }
}
