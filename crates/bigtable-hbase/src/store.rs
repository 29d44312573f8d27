//! Implements the store: tables of one namespace, created with the attributes that Percolator
//! needs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bigtable::sync::locked;
use bigtable::{Error, Layout, Result, Store, Table, TableSchema, Timestamp, check_table_name};
use bytes::Bytes;
use cluster_net::Tls;

use crate::address::HbaseAddress;
use crate::client::{Access, Client};
use crate::encode::{GUARD_FAMILY, family};
use crate::failure::Failure;
use crate::proto::{
    self, BytesBytesPair, ColumnFamilySchema, CreateNamespaceRequest, CreateTableRequest,
    GetTableDescriptorsRequest, GetTableDescriptorsResponse, GetTableNamesRequest,
    GetTableNamesResponse, NameStringPair, NamespaceDescriptor, Nothing, TableName,
};
use crate::table::HbaseTable;

/// The prefix of a table's qualifier: our names may begin with a dot or a dash, HBase's may
/// not.
const TABLE_PREFIX: &str = "t.";
/// The attribute of a table that holds its schema in our form.
const SCHEMA: &[u8] = b"PERCOLATOR_SCHEMA";
/// Larger than the largest value of a cell with its names.
const CELL_BYTES_MAX: &str = "75497472";
/// The attributes that keep HBase from dropping cells, with their values.
const LOSES_NOTHING: [(&str, &str); 3] =
    [("NEW_VERSION_BEHAVIOR", "true"), ("VERSIONS", "2147483647"), ("TTL", "2147483647")];
/// Interval at which the client asks whether a compaction has ended.
const COMPACTION_PAUSE: Duration = Duration::from_millis(50);

/// The cells that a deletion hides until files are compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deletions {
    /// Cells written before the deletion: `NEW_VERSION_BEHAVIOR`.
    OfWhatWasThere,
    /// Also cells written after it, at or below its timestamp: HBase's classic rule. Tests show
    /// that Percolator does not work with it.
    #[cfg(test)]
    OfLaterCellsToo,
}

/// A store in the tables of an HBase cluster.
///
/// ```no_run
/// use bigtable::Store;
/// use bigtable_hbase::{HbaseOptions, HbaseStore};
/// # async fn example() -> bigtable::Result<()> {
/// let address = "hbase://127.0.0.1:16000/percolator".parse()?;
/// let store = HbaseStore::connect(&address, HbaseOptions::default()).await?;
/// println!("{:?}", store.table_names().await?);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct HbaseStore {
    client: Arc<Client>,
    namespace: String,
    request_life_max: Duration,
    deletions: Deletions,
    tables: Mutex<BTreeMap<String, Arc<HbaseTable>>>,
}

/// Options of a [`HbaseStore`] that its address does not contain.
///
/// ```
/// assert!(!bigtable_hbase::HbaseOptions::default().plaintext_beyond_loopback);
/// ```
#[derive(Debug, Clone, Default)]
pub struct HbaseOptions {
    /// The certificates for an address with `tls=true`: the authority that signs those of the
    /// servers, and this client's own. A server's certificate must name the server's host.
    /// Default: none.
    pub tls: Option<Tls>,
    /// Allows connections without TLS to servers on other machines. HBase believes the user name
    /// that the client gives, also with TLS. Default: `false`.
    pub plaintext_beyond_loopback: bool,
}

impl HbaseStore {
    /// Connects to the cluster at an address, and creates the namespace if it does not exist.
    ///
    /// # Errors
    /// * `Unavailable` if no server answers in time.
    /// * `Refused` if one of the ends refuses the other, for a certificate or a permission. The
    ///   same if the cluster names a server on another machine, and `options` allows no plain text.
    /// * `InvalidRequest` if the address itself names such a server, if it has `tls=true` and there
    ///   are no certificates, or if HBase is too old.
    pub async fn connect(address: &HbaseAddress, options: HbaseOptions) -> Result<Self> {
        HbaseStore::open(address, options, Deletions::OfWhatWasThere).await
    }

    pub(crate) async fn open(
        address: &HbaseAddress,
        options: HbaseOptions,
        deletions: Deletions,
    ) -> Result<Self> {
        let request_life_max = address.request_life_max();
        let HbaseAddress { servers: seeds, namespace, user, deadline, .. } = address.clone();
        let HbaseOptions { tls, plaintext_beyond_loopback } = options;
        if address.tls && tls.is_none() {
            return Err(Error::invalid(format!(
                "{address}: the address has tls=true, and there are no certificates: give the \
                 authority, the client's certificate and its key"
            )));
        }
        let tls = tls.filter(|_| address.tls);
        let access = Access {
            seeds,
            user,
            deadline,
            tls,
            plaintext_beyond_loopback,
            #[cfg(test)]
            proxy: None,
        };
        if let Some(why) = access.seeds.iter().find_map(|seed| access.refuses(seed)) {
            return Err(Error::invalid(format!("{address}: {why}")));
        }
        let tables = Mutex::default();
        let client = Arc::new(Client::new(access));
        let store = HbaseStore { client, namespace, request_life_max, deletions, tables };
        let (version, _) = store.status(&[0]).await.map_err(|failure| match failure.of_read() {
            Error::Unavailable { why } => {
                Error::Unavailable { why: format!("{address}: {why}; check that HBase runs there") }
            }
            Error::InvalidRequest(why) => Error::invalid(format!("{address}: {why}")),
            Error::Refused(why) => Error::Refused(format!("{address}: {why}")),
            other => other,
        })?;
        if let Some(why) = crate::version::too_old(&version) {
            return Err(Error::invalid(format!("{address}: {why}")));
        }
        store.create_namespace().await.map_err(|failure| match failure.of_read() {
            Error::InvalidRequest(why) => {
                Error::invalid(format!("{address}: the namespace cannot be used: {why}"))
            }
            Error::Refused(why) => {
                Error::Refused(format!("{address}: the namespace cannot be used: {why}"))
            }
            other => other,
        })?;
        Ok(store)
    }

    async fn create_namespace(&self) -> Result<(), Failure> {
        let name = self.namespace.clone();
        let asked = proto::NamespaceDescriptorRequest { namespace: name.clone() };
        match self.client.master::<Nothing>("GetNamespaceDescriptor", &asked).await {
            Err(Failure::Lost(why)) if why.contains("NamespaceNotFound") => {}
            Err(Failure::Refused(why)) if why.contains("NamespaceNotFound") => {}
            answer => return answer.map(drop),
        }
        let descriptor = NamespaceDescriptor { name: name.into() };
        let (nonce_group, nonce) = (rand::random(), rand::random());
        let request = CreateNamespaceRequest { descriptor, nonce_group, nonce };
        match self.client.procedure("CreateNamespace", &request).await {
            // Another process was faster.
            Err(Failure::Refused(why)) if why.contains("NamespaceExist") => Ok(()),
            created => created,
        }
    }

    /// Has this store, which has opened no table yet, reach all servers through a proxy.
    #[cfg(test)]
    pub(crate) fn go_through(&mut self, proxy: Arc<crate::tests::proxy::Proxy>) {
        Arc::get_mut(&mut self.client).expect("no table is open").go_through(proxy);
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn table_name(&self, name: &str) -> TableName {
        TableName {
            namespace: self.namespace.clone().into(),
            qualifier: format!("{TABLE_PREFIX}{name}").into(),
        }
    }

    /// The name of a table in `hbase:meta` and in HBase's shell.
    pub(crate) fn id(&self, name: &str) -> String {
        match self.namespace.as_str() {
            "default" => format!("{TABLE_PREFIX}{name}"),
            namespace => format!("{namespace}:{TABLE_PREFIX}{name}"),
        }
    }

    pub(crate) async fn describe(&self, name: &str) -> Result<Option<proto::TableSchema>, Failure> {
        let request = GetTableDescriptorsRequest { table_names: vec![self.table_name(name)] };
        let answer: GetTableDescriptorsResponse =
            self.client.master("GetTableDescriptors", &request).await?;
        Ok(answer.table_schema.into_iter().next())
    }

    async fn create(&self, name: &str, schema: &TableSchema) -> Result<(), Failure> {
        let descriptor = descriptor(self.table_name(name), schema, self.deletions);
        let request = CreateTableRequest {
            table_schema: descriptor,
            split_keys: Vec::new(),
            nonce_group: rand::random(),
            nonce: rand::random(),
        };
        match self.client.procedure("CreateTable", &request).await {
            // Another process was faster.
            Err(Failure::Refused(why)) if why.contains("TableExists") => Ok(()),
            created => created,
        }
    }

    /// Checks that the open tables of this store which share a group describe it alike.
    fn check_groups(&self, name: &str, schema: &TableSchema) -> Result<()> {
        for table in self.opened() {
            for group in &schema.groups {
                let theirs = table.schema().groups.iter().find(|of| of.name == group.name);
                if theirs.is_some_and(|theirs| theirs != group) {
                    return Err(Error::invalid(format!(
                        "table {name} describes locality group {} differently from table {}",
                        group.name,
                        table.name()
                    )));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn opened(&self) -> Vec<Arc<HbaseTable>> {
        let tables = locked(&self.tables);
        tables.values().cloned().collect()
    }

    /// Flushes the memory of every open table's regions to files, and compacts the files: some
    /// of them, or with `major` all. Tests use it to check what compactions keep.
    ///
    /// # Errors
    /// `Unavailable` if a server does not answer in time.
    pub async fn compact(&self, families: Option<&[&str]>, major: bool) -> Result<()> {
        for table in self.opened() {
            self.compact_table(&table, families, major).await?;
        }
        Ok(())
    }

    pub(crate) async fn compact_table(
        &self,
        table: &HbaseTable,
        families: Option<&[&str]>,
        major: bool,
    ) -> Result<()> {
        let regions = self.client.regions(table.id()).await.map_err(Failure::of_read)?;
        for region in regions {
            let named: Vec<Option<Bytes>> = match families {
                None => vec![None],
                Some(names) => {
                    names.iter().map(|name| Some(Bytes::copy_from_slice(name.as_bytes()))).collect()
                }
            };
            for family in named {
                self.client.flush(&region, family.clone()).await.map_err(Failure::of_read)?;
                let asked = self.client.compact(&region, family, major).await;
                asked.map_err(Failure::of_read)?;
            }
            while self.client.is_compacting(&region).await.map_err(Failure::of_read)? {
                tokio::time::sleep(COMPACTION_PAUSE).await;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Store for HbaseStore {
    async fn open_table(&self, name: &str, schema: &TableSchema) -> Result<Arc<dyn Table>> {
        check_table_name(name)?;
        schema.check()?;
        if schema.groups.iter().flat_map(|group| &group.families).any(|of| {
            of.family.as_str().as_bytes() == GUARD_FAMILY || of.family.as_str().starts_with('.')
        }) {
            return Err(Error::invalid(
                "on HBase no family may be called _guard or begin with a dot: choose another name",
            ));
        }
        self.check_groups(name, schema)?;
        let mut found = self.describe(name).await.map_err(Failure::of_read)?;
        if found.is_none() {
            self.create(name, schema).await.map_err(Failure::of_read)?;
            found = self.describe(name).await.map_err(Failure::of_read)?;
        }
        let Some(found) = found else {
            let why = format!("table {name} was created, but the server does not find it");
            return Err(Error::Unavailable { why });
        };
        match self.deletions {
            Deletions::OfWhatWasThere => check_descriptor(&self.id(name), &found, schema)?,
            #[cfg(test)]
            Deletions::OfLaterCellsToo => {}
        }
        let mut tables = locked(&self.tables);
        let table = tables.entry(name.to_owned()).or_insert_with(|| {
            let client = self.client.clone();
            Arc::new(HbaseTable::new(name, self.id(name).into(), schema.clone(), client))
        });
        Ok(table.clone())
    }

    async fn table_names(&self) -> Result<Vec<String>> {
        let request = GetTableNamesRequest { namespace: Some(self.namespace.clone()) };
        let answer: GetTableNamesResponse =
            self.client.master("GetTableNames", &request).await.map_err(Failure::of_read)?;
        let names = answer.table_names.iter().filter_map(|name| {
            let name = std::str::from_utf8(&name.qualifier).ok()?;
            name.strip_prefix(TABLE_PREFIX).map(str::to_owned)
        });
        let mut names: Vec<String> = names.collect();
        names.sort();
        Ok(names)
    }

    fn floor(&self) -> Timestamp {
        Timestamp::ZERO
    }

    async fn raise_floor(&self, _floor: Timestamp) -> Result<()> {
        Err(Error::invalid("HBase cannot compare the floor within a row operation"))
    }

    /// Compacts the files of in-memory families and of guards, and drops guards of empty rows, at
    /// most once in five minutes for each table.
    async fn reclaim(&self) -> Result<()> {
        self.upkeep(crate::upkeep::pause(self.request_life_max)).await
    }

    fn request_life_max(&self) -> Option<Duration> {
        Some(self.request_life_max)
    }
}

fn attributes(pairs: &[(&str, &str)]) -> Vec<BytesBytesPair> {
    let pair = |(first, second): &(&str, &str)| BytesBytesPair {
        first: Bytes::copy_from_slice(first.as_bytes()),
        second: Bytes::copy_from_slice(second.as_bytes()),
    };
    pairs.iter().map(pair).collect()
}

/// The description with which HBase creates a table.
fn descriptor(name: TableName, schema: &TableSchema, deletions: Deletions) -> proto::TableSchema {
    let new_version_behavior = match deletions {
        Deletions::OfWhatWasThere => "true",
        #[cfg(test)]
        Deletions::OfLaterCellsToo => "false",
    };
    let data = schema.groups.iter().flat_map(|group| {
        let in_memory = matches!(group.layout, Layout::InMemory(_));
        group.families.iter().map(move |of| ColumnFamilySchema {
            name: family(&of.family),
            attributes: attributes(&[
                ("VERSIONS", "2147483647"),
                ("NEW_VERSION_BEHAVIOR", new_version_behavior),
                ("TTL", "2147483647"),
                ("MIN_VERSIONS", "0"),
                ("KEEP_DELETED_CELLS", "FALSE"),
                ("BLOOMFILTER", "ROW"),
                ("DATA_BLOCK_ENCODING", "FAST_DIFF"),
                ("IN_MEMORY", if in_memory { "true" } else { "false" }),
            ]),
        })
    });
    let guard = ColumnFamilySchema {
        name: Bytes::from_static(GUARD_FAMILY),
        attributes: attributes(&[
            ("VERSIONS", "1"),
            ("NEW_VERSION_BEHAVIOR", new_version_behavior),
            ("TTL", "2147483647"),
            ("BLOOMFILTER", "ROW"),
        ]),
    };
    proto::TableSchema {
        table_name: Some(name),
        attributes: vec![BytesBytesPair {
            first: Bytes::from_static(SCHEMA),
            second: describe(schema).into(),
        }],
        column_families: data.chain([guard]).collect(),
        configuration: vec![NameStringPair {
            name: "hbase.server.keyvalue.maxsize".to_owned(),
            value: CELL_BYTES_MAX.to_owned(),
        }],
    }
}

/// Our schema as text, for the comparison with an existing table.
fn describe(schema: &TableSchema) -> String {
    let groups = schema.groups.iter().map(|group| {
        let families: Vec<&str> = group.families.iter().map(|of| of.family.as_str()).collect();
        format!("{} {:?} {}", group.name, group.layout, families.join(","))
    });
    groups.collect::<Vec<_>>().join("\n")
}

/// Refuses a table that would lose cells, or that has another schema. `id` is its name in HBase's
/// shell.
fn check_descriptor(id: &str, found: &proto::TableSchema, schema: &TableSchema) -> Result<()> {
    let own = found.attributes.iter().find(|pair| pair.first == SCHEMA);
    if own.is_none_or(|pair| pair.second != describe(schema)) {
        return Err(Error::invalid(format!(
            "table {id} exists with another schema: open it with the schema that it was created \
             with"
        )));
    }
    match lost_cells(id, found) {
        Some((what, help)) => Err(Error::invalid(format!("table {id}: {what}: {help}"))),
        None => Ok(()),
    }
}

/// The attributes with which a table would lose cells, and the command that mends all of them;
/// `None` if it keeps all.
pub(crate) fn lost_cells(id: &str, found: &proto::TableSchema) -> Option<(String, String)> {
    let (mut faults, mut mended) = (Vec::new(), Vec::new());
    for of in &found.column_families {
        let family = String::from_utf8_lossy(&of.name);
        let wrong: Vec<_> = LOSES_NOTHING.iter().filter_map(|it| wrong_value(of, *it)).collect();
        let fault = |(attribute, has, _): &(&str, String, &str)| {
            format!("family {family} would lose cells, {attribute} is {has}")
        };
        faults.extend(wrong.iter().map(fault));
        let pairs = wrong.iter().map(|(name, _, wanted)| format!(", {name} => '{wanted}'"));
        let pairs: String = pairs.collect();
        mended.extend((!wrong.is_empty()).then(|| format!("{{NAME => '{family}'{pairs}}}")));
    }
    let help = || format!("run in HBase's shell alter '{id}', {}", mended.join(", "));
    (!faults.is_empty()).then(|| (faults.join("; "), help()))
}

/// An attribute with its value and the wanted one, if a family would lose cells with it.
fn wrong_value(
    of: &ColumnFamilySchema,
    (attribute, wanted): (&'static str, &'static str),
) -> Option<(&'static str, String, &'static str)> {
    let pair = of.attributes.iter().find(|pair| pair.first == attribute.as_bytes());
    let has = pair.map(|pair| String::from_utf8_lossy(&pair.second).to_ascii_lowercase());
    // HBase's shell may write an endless time to live as a word, and it is the default.
    let endless = attribute == "TTL" && has.as_deref().is_none_or(|has| has == "forever");
    // A guard has one version.
    let guard = attribute == "VERSIONS" && of.name == GUARD_FAMILY;
    let is_right = has.as_deref() == Some(wanted) || endless || guard;
    (!is_right).then(|| (attribute, has.unwrap_or("not set".to_owned()), wanted))
}

#[cfg(test)]
mod tests {
    use bigtable::LocalityGroup;

    use super::*;

    #[test]
    fn a_table_that_would_lose_cells_is_refused_with_the_command_that_mends_it() {
        let schema = TableSchema { groups: vec![LocalityGroup::on_disk("data", Layout::Versions)] };
        let name = TableName { namespace: "shop".into(), qualifier: "t.x".into() };
        let sound = descriptor(name, &schema, Deletions::OfWhatWasThere);
        check_descriptor("shop:t.x", &sound, &schema).expect("as it was created");
        for (attribute, value, mended) in [
            ("TTL", Some("86400"), "2147483647"),
            ("VERSIONS", Some("1"), "2147483647"),
            ("VERSIONS", None, "2147483647"),
            ("NEW_VERSION_BEHAVIOR", Some("false"), "true"),
            ("NEW_VERSION_BEHAVIOR", None, "true"),
        ] {
            let mut wrong = sound.clone();
            let of = &mut wrong.column_families[0].attributes;
            of.retain(|pair| pair.first != attribute.as_bytes());
            of.extend(value.map(|value| BytesBytesPair {
                first: Bytes::from_static(attribute.as_bytes()),
                second: Bytes::from_static(value.as_bytes()),
            }));
            let error = check_descriptor("shop:t.x", &wrong, &schema).expect_err(attribute);
            let help = format!("alter 'shop:t.x', {{NAME => 'data', {attribute} => '{mended}'}}");
            assert!(error.to_string().contains(&help), "{error}");
        }
    }
}
