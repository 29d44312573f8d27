//! Opens a store behind the API, and its tables.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bigtable::sync::locked;
use bigtable::{Error, Result, Store, StoreId, TableSchema, Timestamp, check_table_name};
use tokio::runtime::Handle;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Status};

use super::address::Address;
use super::bare::BareTable;
use super::batch;
use super::channel::{Channels, Way, routing};
use super::gather::{BEHIND_MAX, Gather, LATE_MAX};
use super::limits::Limits;
use super::options::ClientOptions;
use super::retry::{once, repeat};
use super::status::{of_mutation, of_read};
use super::wire::{Gathers, GrpcTable, LIMITS, Parts};
use crate::families::{entries, sorted};
use crate::proto::admin::app_profile::RoutingPolicy;
use crate::proto::admin::modify_column_families_request::Modification;
use crate::proto::admin::modify_column_families_request::modification::Mod;
use crate::proto::admin::table::View;
use crate::proto::admin::r#type::Kind;
use crate::proto::admin::{
    ColumnFamily, CreateTableRequest, GetAppProfileRequest, GetTableRequest, ListTablesRequest,
    ModifyColumnFamiliesRequest, Table,
};

/// Most pages of a list.
const PAGES_MAX: usize = 1000;
/// Most attempts to find a table complete, while others create it too.
const LOOKS_MAX: usize = 4;
/// Number of waiting reads at which they are sent, if the server cannot combine all of them.
const READS_MAX: usize = 1000;

/// A store behind google.bigtable.v2: Cloud Bigtable, the server of this crate, or Google's
/// emulator.
///
/// Its futures run in the tokio runtime that opened it. The client warms up each connection
/// before use, and replaces it before it is an hour old. For Cloud Bigtable it finds
/// credentials as Google's own clients do. It tries the file that
/// `GOOGLE_APPLICATION_CREDENTIALS` names, then the user's credentials
/// (`gcloud auth application-default login`), then those of the machine.
///
/// It differs from stores in this process in four ways:
///
/// * It has **no floor**: the API cannot compare one within a row operation. So
///   [`raise_floor`](Store::raise_floor) returns an error. Percolator's garbage collection
///   instead waits for requests to [come to their end](Store::request_life_max). With the
///   default deadline of 20 s, no retention below 160 s is possible.
/// * It reports **no locality groups**, because Cloud Bigtable reads whole rows. So Percolator
///   keeps notifications in tables of their own.
/// * The server decides how durable an acknowledged mutation is. The client sends only
///   [`Syncing::MayBeLost`](bigtable::Syncing::MayBeLost), which only the server of this crate
///   reads. The client does not send locality groups or their bounds, so it cannot detect that
///   two processes describe them differently.
/// * A predicate may be too long for one filter of the API. Dozens of columns of one row with
///   long names are, or hundreds with short ones. If a match leaves the row unchanged, the
///   client checks whole families, and may report a conflict where none exists. Otherwise it
///   returns [`InvalidRequest`](Error::InvalidRequest).
///
/// ```no_run
/// use bigtable::Store;
/// # async fn example() -> bigtable::Result<()> {
/// let address = "bigtable://127.0.0.1:8086/project/instance".parse()?;
/// let store = bigtable_grpc::GrpcStore::open(&address, Default::default()).await?;
/// println!("{:?}", store.table_names().await?);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct GrpcStore {
    channels: Arc<Channels>,
    instance: String,
    app_profile: String,
    /// Why it is not known how the application profile routes requests, if it is not.
    pub(super) profile_unread: Option<String>,
    /// How much the server takes in one request.
    limits: Limits,
    /// Time that conditional mutations and reads wait for others.
    batch_delay: Duration,
    /// The waiting requests of all tables.
    gathers: Gathers,
    /// The runtime that opened the store. It sends the gathered requests.
    runtime: Handle,
    /// The schema of each open table. Only this process knows its locality groups.
    opened: Mutex<BTreeMap<String, TableSchema>>,
}

impl GrpcStore {
    /// Connects to the instance, and checks the routing of the application profile.
    ///
    /// # Errors
    /// * `Unavailable` if no server answers, or it fails to say which store it has.
    /// * `Refused` if one of the two refuses the other's certificate, or a permission is missing.
    /// * `InvalidRequest` without credentials, or for plain text to another machine that the
    ///   options do not allow.
    /// * `InvalidRequest` if the profile routes to several clusters or refuses single-row
    ///   transactions, which need one cluster.
    pub async fn open(address: &Address, options: ClientOptions) -> Result<GrpcStore> {
        GrpcStore::open_by(Way::to(address, &options).await?, address, options).await
    }

    pub(crate) async fn open_by(
        way: Way,
        address: &Address,
        options: ClientOptions,
    ) -> Result<GrpcStore> {
        let (batches, batch_delay) = (options.batches, options.batch_delay);
        let app_profile = address.app_profile().unwrap_or(&options.app_profile).to_owned();
        let (instance, opened) = (address.instance(), Mutex::default());
        let channels = Arc::new(Channels::open(way, &instance, &app_profile, &options).await?);
        let (gathers, limits) = (Gathers { mutations: None, reads: None }, Limits::default());
        let runtime = Handle::current();
        let mut store = GrpcStore {
            channels,
            instance,
            app_profile,
            profile_unread: None,
            limits,
            batch_delay,
            gathers,
            runtime,
            opened,
        };
        store.profile_unread = store.check_routing().await?;
        // Google's own service has no extension.
        if !store.channels.by_token() {
            let routing = routing(&[("name", &store.instance)])?;
            // The answer also names the store, so the client asks even if it batches nothing.
            let limits = batch::limits(&store.channels, &routing).await?;
            if batches {
                store.limits = limits;
            }
        }
        store.gathers = store.new_gathers(batch_delay);
        Ok(store)
    }

    /// Checks how the application profile routes requests. Returns why that is not known, if the
    /// server does not tell.
    async fn check_routing(&self) -> Result<Option<String>> {
        let name = format!("{}/appProfiles/{}", self.instance, self.app_profile);
        let routing = routing(&[("name", &name)])?;
        let answer = repeat(self.channels.deadline(), || async {
            let request =
                self.channels.request(&routing, GetAppProfileRequest { name: name.clone() });
            Ok(self.channels.instances().get_app_profile(request).await?.into_inner())
        });
        let profile = match answer.await {
            Ok(profile) => profile,
            // Google's emulator has no profiles, and only one place to route to.
            Err(status) if status.code() == Code::Unimplemented => {
                return Ok(Some(format!("the server describes no profiles: {}", status.message())));
            }
            // Credentials without the permission to read profiles may still use them.
            Err(status) if self.channels.by_token() && status.code() == Code::PermissionDenied => {
                tracing::warn!(
                    profile = name,
                    "this client cannot read how the application profile routes requests"
                );
                return Ok(Some(format!("{name} may not be read: {}", status.message())));
            }
            Err(status) => return Err(of_read(&status)),
        };
        match profile.routing_policy {
            Some(RoutingPolicy::SingleClusterRouting(single))
                if single.allow_transactional_writes =>
            {
                Ok(None)
            }
            Some(RoutingPolicy::SingleClusterRouting(_)) => Err(Error::invalid(format!(
                "application profile {name} does not allow single-row transactions, which \
                 Percolator requires: allow them, or name another profile"
            ))),
            _ => Err(Error::invalid(format!(
                "application profile {name} routes to several clusters, and rows are atomic within \
                 one cluster only: name a profile with single-cluster routing"
            ))),
        }
    }

    pub(super) fn table_name(&self, id: &str) -> String {
        format!("{}/tables/{id}", self.instance)
    }

    /// The families of the table, if it exists.
    pub(super) async fn look(
        &self,
        name: &str,
        routing: &MetadataValue<Ascii>,
    ) -> Result<Option<BTreeMap<String, ColumnFamily>>> {
        let answer = repeat(self.channels.deadline(), || async {
            let (name, view) = (name.to_owned(), View::SchemaView as i32);
            let request = self.channels.request(routing, GetTableRequest { name, view });
            Ok(self.channels.tables().get_table(request).await?.into_inner())
        });
        match answer.await {
            Ok(table) => Ok(Some(sorted(table.column_families))),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(of_read(&status)),
        }
    }

    /// Creates the table, or the families that it lacks. Another process may do so at the same
    /// time.
    async fn complete(
        &self,
        id: &str,
        exists: bool,
        missing: Vec<String>,
        routing: &MetadataValue<Ascii>,
    ) -> Result<()> {
        let (mut admin, deadline) = (self.channels.tables(), self.channels.deadline());
        let outcome: std::result::Result<(), Status> = if !exists {
            let families = missing.into_iter().map(|f| (f, ColumnFamily::default()));
            let request = CreateTableRequest {
                parent: self.instance.clone(),
                table_id: id.to_owned(),
                table: Some(Table { column_families: entries(families), ..Table::default() }),
                initial_splits: Vec::new(),
            };
            let request = self.channels.request(routing, request);
            once(deadline, admin.create_table(request)).await.map(drop)
        } else {
            let create = |id| Modification {
                id,
                r#mod: Some(Mod::Create(ColumnFamily::default())),
                ..Modification::default()
            };
            let request = ModifyColumnFamiliesRequest {
                name: self.table_name(id),
                modifications: missing.into_iter().map(create).collect(),
                ignore_warnings: false,
            };
            let request = self.channels.request(routing, request);
            once(deadline, admin.modify_column_families(request)).await.map(drop)
        };
        match outcome {
            Err(status) if status.code() == Code::PermissionDenied => Err(Error::Refused(format!(
                "table {id} lacks families, and these credentials may not create them ({}): let a \
                 user with these permissions open the table once, or allow bigtable.tables.create \
                 and .update",
                status.message()
            ))),
            Err(status) if status.code() != Code::AlreadyExists => Err(of_mutation(&status)),
            _ => Ok(()),
        }
    }

    /// Makes sure that the table exists with these families, and that no garbage collection
    /// rule of the server applies to the table.
    async fn prepare(&self, id: &str, schema: &TableSchema) -> Result<()> {
        let name = self.table_name(id);
        let routing = routing(&[("name", &name)])?;
        let families = schema.groups.iter().flat_map(|group| &group.families);
        let families: Vec<_> = families.map(|family| family.family.as_str().to_owned()).collect();
        for _ in 0..LOOKS_MAX {
            let there = self.look(&name, &routing).await?;
            let exists = there.is_some();
            let there = there.unwrap_or_default();
            // A rule is refused before the table is changed. The last look sees a later rule.
            check_families(id, &families, &there)?;
            let mut missing = families.clone();
            missing.retain(|family| !there.contains_key(family));
            if exists && missing.is_empty() {
                return Ok(());
            }
            self.complete(id, exists, missing, &routing).await?;
        }
        let why = format!("other clients keep creating and deleting table {id}");
        Err(Error::Unavailable { why })
    }
}

fn is_aggregate(family: &ColumnFamily) -> bool {
    let kind = family.value_type.as_ref().and_then(|value_type| value_type.kind.as_ref());
    matches!(kind, Some(Kind::AggregateType(_)))
}

/// Refuses families that were made for something else.
///
/// A garbage collection rule would delete data that Percolator still needs. A rule by age is
/// the worst: to it, logical timestamps are dates in January 1970. A rule of any other family of
/// the table is refused too, as the server of this crate refuses it.
pub(super) fn check_families(
    table: &str,
    families: &[String],
    there: &BTreeMap<String, ColumnFamily>,
) -> Result<()> {
    for (family, settings) in there {
        if families.contains(family) && is_aggregate(settings) {
            return Err(Error::invalid(format!(
                "family {family} of table {table} was made for aggregates, and its cells cannot be \
                 set: use another table"
            )));
        }
        let rule = settings.gc_rule.as_ref().and_then(|rule| rule.rule.as_ref());
        if rule.is_some() {
            return Err(Error::invalid(format!(
                "family {family} of table {table} has a garbage collection rule, which would delete \
                 what transactions still need: remove it \
                 (`cbt setgcpolicy {table} {family} never`), or use another table"
            )));
        }
    }
    Ok(())
}

#[async_trait]
impl Store for GrpcStore {
    async fn open_table(
        &self,
        name: &str,
        schema: &TableSchema,
    ) -> Result<Arc<dyn bigtable::Table>> {
        check_table_name(name)?;
        schema.check()?;
        self.remember(name, schema, false)?;
        self.prepare(name, schema).await?;
        self.remember(name, schema, true)?;
        Ok(Arc::new(self.table(name, schema)?))
    }

    async fn table_names(&self) -> Result<Vec<String>> {
        let routing = routing(&[("parent", &self.instance)])?;
        let mut names = Vec::new();
        let mut page_token = String::new();
        for _ in 0..PAGES_MAX {
            let answer = repeat(self.channels.deadline(), || async {
                let request = ListTablesRequest {
                    parent: self.instance.clone(),
                    view: View::NameOnly as i32,
                    page_token: page_token.clone(),
                    ..ListTablesRequest::default()
                };
                let request = self.channels.request(&routing, request);
                Ok(self.channels.tables().list_tables(request).await?.into_inner())
            });
            let page = answer.await.map_err(|status| of_read(&status))?;
            let id = |table: Table| table.name.rsplit('/').next().map(str::to_owned);
            names.extend(page.tables.into_iter().filter_map(id));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        names.sort();
        Ok(names)
    }

    fn id(&self) -> Option<StoreId> {
        self.channels.store_id()
    }

    /// Cloud Bigtable reads whole rows, and the API does not say whether another server does.
    fn locality_groups(&self) -> bool {
        false
    }

    /// Twice the deadline: the client gives a request up at its deadline, and the server counts
    /// the same deadline from the arrival. The delay for gathering comes before both.
    fn request_life_max(&self) -> Option<Duration> {
        let sent = 2 * self.channels.deadline();
        Some(match self.batch_delay {
            Duration::ZERO => sent,
            delay => sent + delay + BEHIND_MAX + LATE_MAX,
        })
    }

    fn limits(&self) -> bigtable::Limits {
        LIMITS
    }

    fn floor(&self) -> Timestamp {
        Timestamp::ZERO
    }

    async fn raise_floor(&self, floor: Timestamp) -> Result<()> {
        if floor == Timestamp::ZERO {
            return Ok(());
        }
        Err(Error::invalid(
            "a store behind google.bigtable.v2 cannot compare a floor within its row operations",
        ))
    }
}

impl GrpcStore {
    /// Returns the bare requests of an open table.
    ///
    /// # Errors
    /// `InvalidRequest` if the table is not open.
    pub fn bare_table(&self, name: &str) -> Result<BareTable> {
        let opened = locked(&self.opened);
        let schema = opened.get(name).ok_or_else(|| {
            Error::invalid(format!("table {name} is not open: open it with its schema first"))
        })?;
        self.table(name, schema).map(BareTable)
    }

    pub(super) fn table(&self, name: &str, schema: &TableSchema) -> Result<GrpcTable> {
        let full = self.table_name(name);
        let params = [("table_name", &*full), ("app_profile_id", &*self.app_profile)];
        Ok(GrpcTable::from(Parts {
            routing: routing(&params)?,
            channels: self.channels.clone(),
            name: name.to_owned(),
            path: full,
            app_profile: self.app_profile.clone(),
            schema: schema.clone(),
            limits: self.limits,
            gathers: self.gathers.clone(),
        }))
    }

    /// Makes the queues in which requests wait, if there is a delay.
    fn new_gathers(&self, delay: Duration) -> Gathers {
        if delay.is_zero() {
            return Gathers { mutations: None, reads: None };
        }
        let runtime = &self.runtime;
        let reads_max = self.limits.reads_max.unwrap_or(READS_MAX);
        Gathers {
            mutations: self.limits.entries_max.map(|max| Gather::new(delay, max, runtime)),
            reads: Some(Gather::new(delay, reads_max, runtime)),
        }
    }

    pub(super) fn channels(&self) -> &Channels {
        &self.channels
    }

    /// The instance's name in the API.
    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    /// Number of requests that this client has sent so far, each attempt counted.
    pub fn requests_sent(&self) -> u64 {
        self.channels.requests_sent()
    }

    /// Number of those requests that read rows.
    pub fn reads_sent(&self) -> u64 {
        self.channels.reads_sent()
    }

    /// Checks a schema against those of the open tables. With `add`, records it too.
    fn remember(&self, name: &str, schema: &TableSchema, add: bool) -> Result<()> {
        let mut opened = locked(&self.opened);
        match opened.get(name) {
            Some(known) if known == schema => return Ok(()),
            Some(_) => {
                return Err(Error::invalid(format!("table {name} is open with another schema")));
            }
            None => {}
        }
        for group in &schema.groups {
            let mut known = opened.values().flat_map(|schema| &schema.groups);
            if known.any(|known| known.name == group.name && known != group) {
                return Err(Error::invalid(format!(
                    "another table describes locality group {} differently",
                    group.name
                )));
            }
        }
        if add {
            opened.insert(name.to_owned(), schema.clone());
        }
        Ok(())
    }
}
