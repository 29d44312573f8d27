//! Implements the service google.bigtable.admin.v2.BigtableTableAdmin: tables and families.
//!
//! This service checks and keeps garbage collection rules, and `collect.rs` applies them. The
//! service refuses to set a rule in a table of Percolator. The parts that the service lacks answer
//! UNIMPLEMENTED: backups, snapshots, authorized views, and access policies.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigtable::RowRange;
use prost::Message;
use tonic::{Request, Response, Status};

use super::schema::{FamilyRecord, Schema, TableRecord};
use super::status::of_engine;
use super::tables::{Tables, protected};
use super::{instance_admin, limits, names, purge, rules};
use crate::families;
use crate::proto::admin::bigtable_table_admin_server::BigtableTableAdmin;
use crate::proto::admin::drop_row_range_request::Target;
use crate::proto::admin::modify_column_families_request::Modification;
use crate::proto::admin::modify_column_families_request::modification::Mod;
use crate::proto::admin::table::{
    ClusterState, ClusterStatesEntry, TimestampGranularity, View, cluster_state,
};
use crate::proto::admin::{
    CheckConsistencyRequest, CheckConsistencyResponse, ColumnFamily, CreateTableRequest,
    DeleteTableRequest, DropRowRangeRequest, GcRule, GenerateConsistencyTokenRequest,
    GenerateConsistencyTokenResponse, GetTableRequest, ListTablesRequest, ListTablesResponse,
    ModifyColumnFamiliesRequest, Table, UpdateTableRequest,
};
use crate::proto::iam::v1::{TestIamPermissionsRequest, TestIamPermissionsResponse};
use crate::proto::longrunning::{Operation, operation};

/// Prefix of a table's consistency token. Without replication, every token is consistent at
/// once.
const TOKEN_PREFIX: &str = "consistent-";

/// The service.
#[derive(Debug)]
pub(crate) struct TableAdmin(pub(crate) Arc<Tables>);

#[tonic::async_trait]
impl BigtableTableAdmin for TableAdmin {
    async fn create_table(
        &self,
        request: Request<CreateTableRequest>,
    ) -> Result<Response<Table>, Status> {
        let request = request.into_inner();
        let name = names::new_table(&request.parent, &request.table_id)?;
        let table = request.table.unwrap_or_default();
        if table.granularity != TimestampGranularity::Unspecified as i32
            && table.granularity != TimestampGranularity::Millis as i32
        {
            return Err(Status::invalid_argument("the granularity of tables is MILLIS"));
        }
        if table.change_stream_config.is_some() || table.automated_backup_config.is_some() {
            return Err(Status::unimplemented("this server has no change streams and no backups"));
        }
        let mut families = BTreeMap::new();
        for (family, settings) in families::sorted(table.column_families) {
            limits::check_family_name(&family)?;
            families.insert(family, gc_rule(&settings)?);
        }
        check_family_count(families.len())?;
        let mut splits: Vec<_> = request.initial_splits.iter().map(|s| s.key.to_vec()).collect();
        if splits.len() > limits::SPLITS_MAX {
            return Err(Status::invalid_argument(format!(
                "the table has {} initial splits, at most {} are allowed",
                splits.len(),
                limits::SPLITS_MAX
            )));
        }
        splits.iter().try_for_each(|split| limits::check_row_key(split))?;
        splits.sort();
        splits.dedup();
        let families = families.into_iter().collect();
        let created = self.0.create(&name, families, splits, table.deletion_protection).await?;
        Ok(Response::new(describe(&created, View::SchemaView)?))
    }

    async fn list_tables(
        &self,
        request: Request<ListTablesRequest>,
    ) -> Result<Response<ListTablesResponse>, Status> {
        let request = request.into_inner();
        names::check_instance(&request.parent)?;
        let view = view(request.view, View::NameOnly)?;
        let schemas = self.0.schemas(&format!("{}/tables/", request.parent)).await;
        let tables = schemas.iter().map(|schema| describe(schema, view));
        let tables = tables.collect::<Result<_, _>>()?;
        // There are never enough tables to need pages.
        Ok(Response::new(ListTablesResponse { tables, next_page_token: String::new() }))
    }

    async fn get_table(
        &self,
        request: Request<GetTableRequest>,
    ) -> Result<Response<Table>, Status> {
        let request = request.into_inner();
        let view = view(request.view, View::SchemaView)?;
        let table = self.0.table(&request.name).await?;
        Ok(Response::new(describe(&*table.schema().await, view)?))
    }

    async fn update_table(
        &self,
        request: Request<UpdateTableRequest>,
    ) -> Result<Response<Operation>, Status> {
        let UpdateTableRequest { table, update_mask, .. } = request.into_inner();
        let table = table.ok_or_else(|| Status::invalid_argument("no table given"))?;
        let paths = update_mask.unwrap_or_default().paths;
        if paths.is_empty() {
            return Err(Status::invalid_argument("update_mask names no field"));
        }
        if let Some(other) = paths.iter().find(|path| *path != "deletion_protection") {
            return Err(Status::unimplemented(format!(
                "this server cannot update {other:?}, only deletion_protection"
            )));
        }
        let protect = table.deletion_protection;
        let change = |record: &mut TableRecord| {
            record.deletion_protection = protect;
            Ok(())
        };
        let schema = self.0.change(&table.name, change).await?;
        done("UpdateTable", &describe(&schema, View::SchemaView)?)
    }

    async fn delete_table(
        &self,
        request: Request<DeleteTableRequest>,
    ) -> Result<Response<()>, Status> {
        self.0.delete(&request.into_inner().name).await?;
        Ok(Response::new(()))
    }

    async fn modify_column_families(
        &self,
        request: Request<ModifyColumnFamiliesRequest>,
    ) -> Result<Response<Table>, Status> {
        let ModifyColumnFamiliesRequest { name, modifications, .. } = request.into_inner();
        if modifications.is_empty() {
            return Err(Status::invalid_argument("no modifications given"));
        }
        let change = |record: &mut TableRecord| {
            let was_percolators = rules::is_percolators(record);
            modifications.iter().try_for_each(|modification| modify(record, modification))?;
            check_family_count(record.families.len())?;
            let ruled = modifications.iter().any(sets_rule);
            if ruled && (was_percolators || rules::is_percolators(record)) {
                return Err(rules::percolators(record));
            }
            Ok(())
        };
        let schema = self.0.change(&name, change).await?;
        Ok(Response::new(describe(&schema, View::SchemaView)?))
    }

    async fn drop_row_range(
        &self,
        request: Request<DropRowRangeRequest>,
    ) -> Result<Response<()>, Status> {
        let DropRowRangeRequest { name, target } = request.into_inner();
        let table = self.0.table(&name).await?;
        let range = match target {
            Some(Target::RowKeyPrefix(prefix)) if !prefix.is_empty() => {
                limits::check_row_key(&prefix)?;
                RowRange::prefix(&prefix[..])
            }
            Some(Target::DeleteAllDataFromTable(true)) => RowRange::all(),
            _ => {
                return Err(Status::invalid_argument(
                    "give a row key prefix, or delete_all_data_from_table=true",
                ));
            }
        };
        let held = table.hold_schema().await?;
        if held.record.deletion_protection && range == RowRange::all() {
            return Err(protected(&name));
        }
        purge::rows(&table.engine, range).await.map_err(of_engine)?;
        Ok(Response::new(()))
    }

    async fn generate_consistency_token(
        &self,
        request: Request<GenerateConsistencyTokenRequest>,
    ) -> Result<Response<GenerateConsistencyTokenResponse>, Status> {
        let name = request.into_inner().name;
        self.0.table(&name).await?;
        let consistency_token = format!("{TOKEN_PREFIX}{name}");
        Ok(Response::new(GenerateConsistencyTokenResponse { consistency_token }))
    }

    async fn check_consistency(
        &self,
        request: Request<CheckConsistencyRequest>,
    ) -> Result<Response<CheckConsistencyResponse>, Status> {
        let CheckConsistencyRequest { name, consistency_token, .. } = request.into_inner();
        self.0.table(&name).await?;
        if consistency_token.strip_prefix(TOKEN_PREFIX) != Some(&name) {
            return Err(Status::invalid_argument(format!(
                "{consistency_token:?} is not a consistency token of this table"
            )));
        }
        Ok(Response::new(CheckConsistencyResponse { consistent: true }))
    }

    async fn test_iam_permissions(
        &self,
        request: Request<TestIamPermissionsRequest>,
    ) -> Result<Response<TestIamPermissionsResponse>, Status> {
        // Every client that reaches the server may do everything.
        let permissions = request.into_inner().permissions;
        Ok(Response::new(TestIamPermissionsResponse { permissions }))
    }
}

fn view(number: i32, unspecified: View) -> Result<View, Status> {
    match View::try_from(number) {
        Ok(View::Unspecified) => Ok(unspecified),
        Ok(view) => Ok(view),
        Err(_) => Err(Status::invalid_argument(format!("there is no view {number}"))),
    }
}

fn check_family_count(count: usize) -> Result<(), Status> {
    if count <= limits::FAMILIES_MAX {
        return Ok(());
    }
    let text =
        format!("the table has {count} families, at most {} are allowed", limits::FAMILIES_MAX);
    Err(Status::invalid_argument(text))
}

/// Encodes a family's rule for its record.
fn gc_rule(family: &ColumnFamily) -> Result<Vec<u8>, Status> {
    if family.value_type.is_some() {
        return Err(Status::unimplemented("this server has no typed and no aggregate families"));
    }
    if let Some(rule) = &family.gc_rule {
        rules::check(rule)?;
    }
    let rule = family.gc_rule.as_ref().map(Message::encode_to_vec).unwrap_or_default();
    if rule.len() > limits::GC_RULE_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "the garbage collection rule has {} bytes, at most {}",
            rule.len(),
            limits::GC_RULE_BYTES_MAX
        )));
    }
    Ok(rule)
}

/// True if a modification gives its family a rule.
fn sets_rule(modification: &Modification) -> bool {
    match &modification.r#mod {
        Some(Mod::Create(family) | Mod::Update(family)) => {
            family.gc_rule.as_ref().is_some_and(|rule| rule.rule.is_some())
        }
        Some(Mod::Drop(_)) | None => false,
    }
}

fn modify(record: &mut TableRecord, modification: &Modification) -> Result<(), Status> {
    let id = &modification.id;
    let unknown = |record: &TableRecord| {
        Status::not_found(format!("table {} has no family {id:?}", record.name))
    };
    match modification.r#mod.as_ref() {
        Some(Mod::Create(family)) => {
            limits::check_family_name(id)?;
            if record.family_mut(id).is_some() {
                let text = format!("table {} has a family {id:?} already", record.name);
                return Err(Status::already_exists(text));
            }
            record.add_family(id, gc_rule(family)?);
        }
        Some(Mod::Update(family)) => {
            let rule = gc_rule(family)?;
            match record.family_mut(id) {
                Some(known) => known.gc_rule = rule,
                None => return Err(unknown(record)),
            }
        }
        Some(Mod::Drop(true)) => {
            if record.deletion_protection {
                return Err(protected(&record.name));
            }
            let at = record.families.iter().position(|family| family.name == *id);
            let dead = record.families.remove(at.ok_or_else(|| unknown(record))?);
            record.dead_families.push(FamilyRecord { gc_rule: Vec::new(), ..dead });
        }
        Some(Mod::Drop(false)) | None => {
            return Err(Status::invalid_argument("a modification has no kind"));
        }
    }
    Ok(())
}

/// Describes a table, as far as the view shows it.
fn describe(schema: &Schema, view: View) -> Result<Table, Status> {
    let record = &schema.record;
    let mut table = Table { name: record.name.clone(), ..Table::default() };
    if view != View::NameOnly {
        table.granularity = TimestampGranularity::Millis as i32;
        table.deletion_protection = record.deletion_protection;
    }
    if matches!(view, View::SchemaView | View::Full) {
        let mut families = Vec::new();
        for family in schema.families() {
            let rule = match family.gc_rule.as_slice() {
                [] => None,
                rule => Some(GcRule::decode(rule).map_err(|error| {
                    Status::internal(format!("the rule of {} is damaged: {error}", family.name))
                })?),
            };
            let settings = ColumnFamily { gc_rule: rule, ..ColumnFamily::default() };
            families.push((family.name.clone(), settings));
        }
        table.column_families = families::entries(families);
    }
    if matches!(view, View::ReplicationView | View::Full | View::EncryptionView) {
        let ready = cluster_state::ReplicationState::Ready as i32;
        let state = ClusterState { replication_state: ready, ..ClusterState::default() };
        let key = instance_admin::CLUSTER.to_owned();
        table.cluster_states.push(ClusterStatesEntry { key, value: Some(state) });
    }
    Ok(table)
}

/// An operation that is already done.
fn done(kind: &str, table: &Table) -> Result<Response<Operation>, Status> {
    let result = prost_types::Any {
        type_url: "type.googleapis.com/google.bigtable.admin.v2.Table".to_owned(),
        value: table.encode_to_vec(),
    };
    Ok(Response::new(Operation {
        name: format!("operations/{}/{kind}", table.name),
        done: true,
        result: Some(operation::Result::Response(result)),
        ..Operation::default()
    }))
}
