//! Tests tables, families, ranges of rows, and the static answers.

use super::*;
use crate::proto::admin::bigtable_instance_admin_client::BigtableInstanceAdminClient;
use crate::proto::admin::drop_row_range_request::Target;
use crate::proto::admin::gc_rule::Rule;
use crate::proto::admin::modify_column_families_request::Modification;
use crate::proto::admin::modify_column_families_request::modification::Mod;
use crate::proto::admin::{
    CheckConsistencyRequest, DeleteTableRequest, DropRowRangeRequest, GcRule,
    GenerateConsistencyTokenRequest, GetInstanceRequest, GetTableRequest, ListAppProfilesRequest,
    ListBackupsRequest, ListClustersRequest, ListInstancesRequest, ListTablesRequest,
    ModifyColumnFamiliesRequest, UpdateTableRequest, create_table_request,
};
use crate::proto::data::{PingAndWarmRequest, SampleRowKeysRequest};

impl World {
    pub(super) async fn modify(
        &mut self,
        modifications: Vec<(&str, Mod)>,
    ) -> Result<Table, Status> {
        self.modify_table(TABLE, modifications).await
    }

    pub(super) async fn modify_table(
        &mut self,
        name: &str,
        modifications: Vec<(&str, Mod)>,
    ) -> Result<Table, Status> {
        let modification = |(id, change): (&str, Mod)| Modification {
            id: id.to_owned(),
            r#mod: Some(change),
            ..Modification::default()
        };
        let request = ModifyColumnFamiliesRequest {
            name: name.to_owned(),
            modifications: modifications.into_iter().map(modification).collect(),
            ignore_warnings: false,
        };
        self.admin.modify_column_families(request).await.map(tonic::Response::into_inner)
    }

    async fn drop_rows(&mut self, target: Option<Target>) -> Result<(), Status> {
        let request = DropRowRangeRequest { name: TABLE.to_owned(), target };
        self.admin.drop_row_range(request).await.map(|_| ())
    }

    async fn protect(&mut self, deletion_protection: bool) {
        let table = Table { name: TABLE.to_owned(), deletion_protection, ..Table::default() };
        let paths = vec!["deletion_protection".to_owned()];
        let request = UpdateTableRequest {
            table: Some(table),
            update_mask: Some(prost_types::FieldMask { paths }),
            ..UpdateTableRequest::default()
        };
        let done = self.admin.update_table(request).await.expect("the table is updated");
        assert!(done.into_inner().done, "nothing is to be waited for");
    }

    pub(super) async fn table(&mut self) -> Result<Table, Status> {
        self.table_named(TABLE).await
    }

    pub(super) async fn table_named(&mut self, name: &str) -> Result<Table, Status> {
        let request = GetTableRequest { name: name.to_owned(), view: 0 };
        self.admin.get_table(request).await.map(tonic::Response::into_inner)
    }

    async fn delete_table(&mut self) -> Result<(), Status> {
        let request = DeleteTableRequest { name: TABLE.to_owned() };
        self.admin.delete_table(request).await.map(|_| ())
    }

    async fn samples(&mut self) -> Vec<(String, i64)> {
        let request = SampleRowKeysRequest { table_name: TABLE.to_owned(), ..Default::default() };
        let mut stream = self.data.sample_row_keys(request).await.unwrap().into_inner();
        let mut samples = Vec::new();
        while let Some(sample) = stream.message().await.unwrap() {
            samples.push((sample.row_key.escape_ascii().to_string(), sample.offset_bytes));
        }
        samples
    }
}

/// The names of the families, in the order of the answer.
pub(super) fn families(table: &Table) -> Vec<&str> {
    table.column_families.iter().map(|entry| entry.key.as_str()).collect()
}

/// The settings of a family.
pub(super) fn settings(table: Table, family: &str) -> ColumnFamily {
    sorted(table.column_families).remove(family).expect("the table has the family")
}

pub(super) fn versions(count: i32) -> ColumnFamily {
    let gc_rule = Some(GcRule { rule: Some(Rule::MaxNumVersions(count)) });
    ColumnFamily { gc_rule, ..ColumnFamily::default() }
}

#[tokio::test]
async fn tables_are_created_listed_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::open(dir.path()).await;
    let created = world.create("t", &["b", "a"]).await.unwrap();
    assert_eq!((created.name.as_str(), families(&created)), (TABLE, vec!["a", "b"]));
    assert_eq!(created.granularity, 1, "MILLIS");
    refused(world.create("t", &[]).await, Code::AlreadyExists);
    refused(world.create("a/b", &[]).await, Code::InvalidArgument);
    refused(world.create("u", &["bad name!"]).await, Code::InvalidArgument);
    refused(world.create("u", &[&"x".repeat(65)]).await, Code::InvalidArgument);
    world.create("u", &[]).await.unwrap();
    let request = ListTablesRequest { parent: INSTANCE.to_owned(), ..Default::default() };
    let listed = world.admin.list_tables(request).await.unwrap().into_inner().tables;
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|table| table.column_families.is_empty()), "names only");
    let other = ListTablesRequest { parent: format!("{INSTANCE}2"), ..Default::default() };
    assert!(world.admin.list_tables(other).await.unwrap().into_inner().tables.is_empty());

    world.set("r", "a:q", 1000, "old").await;
    world.delete_table().await.unwrap();
    refused(world.delete_table().await, Code::NotFound);
    refused(world.table().await, Code::NotFound);
    refused(world.read(ReadRowsRequest::default()).await, Code::NotFound);
    refused(world.mutate("r", vec![set("a:q", 0, "v")]).await, Code::NotFound);
    world.create("t", &["a"]).await.unwrap();
    assert!(world.all().await.is_empty(), "the new table has nothing of the old one");
    world.stop().await;
}

#[tokio::test]
async fn families_come_and_go_with_their_cells() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    let table = world.modify(vec![("b", Mod::Create(versions(3)))]).await.unwrap();
    assert_eq!(families(&table), ["a", "b"]);
    assert_eq!(settings(table, "b"), versions(3));
    let table = world.modify(vec![("b", Mod::Update(versions(2)))]).await.unwrap();
    assert_eq!(settings(table, "b"), versions(2));
    refused(world.modify(vec![("b", Mod::Create(versions(1)))]).await, Code::AlreadyExists);
    refused(world.modify(vec![("c", Mod::Update(versions(1)))]).await, Code::NotFound);
    refused(world.modify(vec![("c", Mod::Drop(true))]).await, Code::NotFound);
    refused(world.modify(vec![("b", Mod::Drop(false))]).await, Code::InvalidArgument);
    // The server applies all modifications or none.
    let both = vec![("c", Mod::Create(versions(1))), ("x", Mod::Drop(true))];
    refused(world.modify(both).await, Code::NotFound);
    assert_eq!(families(&world.table().await.unwrap()), ["a", "b"]);

    for family in ["lock", "write", "data"] {
        world.modify(vec![(family, Mod::Create(ColumnFamily::default()))]).await.unwrap();
    }
    for row in ["r", "s"] {
        for column in ["a:q", "b:q", "lock:q", "write:q", "data:q"] {
            world.set(row, column, 1000, "v").await;
            world.set(row, column, 2000, "w").await;
        }
    }
    for family in ["a", "lock", "write", "data"] {
        world.modify(vec![(family, Mod::Drop(true))]).await.unwrap();
        refused(world.mutate("r", vec![set(&format!("{family}:q"), 0, "v")]).await, Code::NotFound);
        world.modify(vec![(family, Mod::Create(ColumnFamily::default()))]).await.unwrap();
    }
    let left = ["r/b:q@2000=w", "r/b:q@1000=v", "s/b:q@2000=w", "s/b:q@1000=v"];
    assert_eq!(world.all().await, left);
    // The same request drops and creates a family.
    let both = vec![("b", Mod::Drop(true)), ("b", Mod::Create(ColumnFamily::default()))];
    world.modify(both).await.unwrap();
    assert!(world.all().await.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn a_protected_table_keeps_its_data() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    world.protect(true).await;
    assert!(world.table().await.unwrap().deletion_protection);
    refused(world.delete_table().await, Code::FailedPrecondition);
    refused(world.modify(vec![("a", Mod::Drop(true))]).await, Code::FailedPrecondition);
    world.protect(false).await;
    world.modify(vec![("a", Mod::Drop(true))]).await.unwrap();
    world.delete_table().await.unwrap();
    let request = UpdateTableRequest { table: Some(Table::default()), ..Default::default() };
    refused(world.admin.update_table(request).await, Code::InvalidArgument);
    world.stop().await;
}

#[tokio::test]
async fn ranges_of_rows_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a", "write"]).await;
    for row in 0..1500 {
        let row = format!("{}{row:04}", if row % 2 == 0 { "even" } else { "odd" });
        world.mutate(&row, vec![set("a:q", 1000, "v"), set("write:q", 1000, "v")]).await.unwrap();
    }
    refused(world.drop_rows(None).await, Code::InvalidArgument);
    refused(world.drop_rows(Some(Target::RowKeyPrefix("".into()))).await, Code::InvalidArgument);
    world.drop_rows(Some(Target::RowKeyPrefix("neither".into()))).await.unwrap();
    assert_eq!(world.all().await.len(), 3000);
    world.drop_rows(Some(Target::RowKeyPrefix("even".into()))).await.unwrap();
    let left = world.all().await;
    assert!(left.len() == 1500 && left.iter().all(|cell| cell.starts_with("odd")));
    world.set("even0000", "a:q", 1000, "again").await;
    assert_eq!(world.all().await[0], "even0000/a:q@1000=again");
    world.drop_rows(Some(Target::DeleteAllDataFromTable(true))).await.unwrap();
    assert!(world.all().await.is_empty());
    world.set("r", "a:q", 1000, "afterwards").await;
    assert_eq!(world.all().await, ["r/a:q@1000=afterwards"]);
    world.stop().await;
}

#[tokio::test]
async fn samples_divide_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::open(dir.path()).await;
    let split = |key: &'static str| create_table_request::Split { key: key.into() };
    let request = CreateTableRequest {
        parent: INSTANCE.to_owned(),
        table_id: "t".to_owned(),
        table: Some(Table {
            column_families: entries([("a".to_owned(), ColumnFamily::default())]),
            ..Table::default()
        }),
        initial_splits: vec![split("m"), split("c"), split("m")],
    };
    world.admin.create_table(request).await.unwrap();
    let pairs = |pairs: &[(&str, i64)]| -> Vec<_> {
        pairs.iter().map(|(key, at)| ((*key).to_owned(), *at)).collect()
    };
    assert_eq!(world.samples().await, pairs(&[("c", 0), ("m", 0), ("", 0)]));
    world.set("b", "a:q", 1000, "four").await;
    world.set("x", "a:q", 1000, "and five").await;
    assert_eq!(world.samples().await, pairs(&[("c", 0), ("m", 0), ("x", 12), ("", 12)]));
    let large = "x".repeat(600 << 10);
    for row in ["d", "e", "f", "g"] {
        world.set(row, "a:q", 1000, &large).await;
    }
    let samples = world.samples().await;
    assert!(samples.iter().any(|(key, _)| key == "e"), "{samples:?}");
    assert!(samples.is_sorted_by_key(|(_, bytes)| *bytes), "{samples:?}");
    world.stop().await;
}

#[tokio::test]
async fn what_clients_ask_before_they_begin_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    let mut instances = BigtableInstanceAdminClient::new(world.channel.clone());
    let name = INSTANCE.to_owned();
    let instance = instances.get_instance(GetInstanceRequest { name: name.clone() }).await.unwrap();
    assert_eq!(instance.into_inner().name, INSTANCE);
    let bad = GetInstanceRequest { name: "i".to_owned() };
    refused(instances.get_instance(bad).await, Code::InvalidArgument);
    let parent = "projects/p".to_owned();
    let request = ListInstancesRequest { parent, ..Default::default() };
    let listed = instances.list_instances(request).await.unwrap().into_inner().instances;
    assert_eq!(listed.len(), 1);
    let request = ListClustersRequest { parent: name.clone(), ..Default::default() };
    let clusters = instances.list_clusters(request).await.unwrap().into_inner().clusters;
    assert_eq!(clusters[0].name, format!("{INSTANCE}/clusters/local"));
    let request = ListAppProfilesRequest { parent: name.clone(), ..Default::default() };
    let profiles = instances.list_app_profiles(request).await.unwrap().into_inner().app_profiles;
    assert!(profiles[0].routing_policy.is_some());
    world.data.ping_and_warm(PingAndWarmRequest { name, ..Default::default() }).await.unwrap();

    let request = GenerateConsistencyTokenRequest { name: TABLE.to_owned() };
    let token = world.admin.generate_consistency_token(request).await.unwrap().into_inner();
    let mut request = CheckConsistencyRequest {
        name: TABLE.to_owned(),
        consistency_token: token.consistency_token,
        ..Default::default()
    };
    let checked = world.admin.check_consistency(request.clone()).await.unwrap();
    assert!(checked.into_inner().consistent);
    request.consistency_token = "other".to_owned();
    refused(world.admin.check_consistency(request).await, Code::InvalidArgument);
    let backups = world.admin.list_backups(ListBackupsRequest::default()).await;
    refused(backups, Code::Unimplemented);

    let mut health = tonic_health::pb::health_client::HealthClient::new(world.channel.clone());
    let service = "google.bigtable.v2.Bigtable".to_owned();
    let request = tonic_health::pb::HealthCheckRequest { service };
    assert_eq!(health.check(request).await.unwrap().into_inner().status, 1, "SERVING");
    drop((instances, health));
    world.stop().await;
}

#[tokio::test]
async fn everything_is_there_after_the_server_was_started_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a", "lock", "write"]).await;
    world.modify(vec![("b", Mod::Create(versions(7)))]).await.unwrap();
    world.modify(vec![("a", Mod::Drop(true))]).await.unwrap();
    for column in ["b:q", "lock:q", "write:q"] {
        world.set("r", column, 5000, "kept").await;
    }
    let before = (world.table().await.unwrap(), world.all().await);
    world.stop().await;
    let mut world = World::open(dir.path()).await;
    assert_eq!((world.table().await.unwrap(), world.all().await), before);
    let kept = ["r/b:q@5000=kept", "r/lock:q@5000=kept", "r/write:q@5000=kept"];
    assert_eq!(before.1, kept);
    world.stop().await;
}
