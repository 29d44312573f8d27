//! Implements the parts of google.bigtable.admin.v2.BigtableInstanceAdmin that clients call
//! before they use a table. Every instance exists, with one cluster and one application
//! profile.

use std::collections::BTreeSet;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::names;
use super::tables::Tables;
use crate::proto::admin::app_profile::{RoutingPolicy, SingleClusterRouting};
use crate::proto::admin::bigtable_instance_admin_server::BigtableInstanceAdmin;
use crate::proto::admin::{
    AppProfile, Cluster, GetAppProfileRequest, GetClusterRequest, GetInstanceRequest, Instance,
    ListAppProfilesRequest, ListAppProfilesResponse, ListClustersRequest, ListClustersResponse,
    ListInstancesRequest, ListInstancesResponse, StorageType, cluster, instance,
};
use crate::proto::longrunning::operations_server::Operations as OperationsService;
use crate::proto::longrunning::{GetOperationRequest, Operation};

/// The only cluster of every instance.
pub(crate) const CLUSTER: &str = "local";
/// The only application profile of every instance.
const PROFILE: &str = "default";

/// The service.
#[derive(Debug)]
pub(crate) struct InstanceAdmin(pub(crate) Arc<Tables>);

#[tonic::async_trait]
impl BigtableInstanceAdmin for InstanceAdmin {
    async fn get_instance(
        &self,
        request: Request<GetInstanceRequest>,
    ) -> Result<Response<Instance>, Status> {
        let name = request.into_inner().name;
        names::check_instance(&name)?;
        Ok(Response::new(describe_instance(&name)))
    }

    async fn list_instances(
        &self,
        request: Request<ListInstancesRequest>,
    ) -> Result<Response<ListInstancesResponse>, Status> {
        let project = request.into_inner().parent;
        names::check_project(&project)?;
        // Lists the instances with tables; the server keeps no record of others.
        let schemas = self.0.schemas(&format!("{project}/instances/")).await;
        let instance = |name: &str| {
            names::below_instance(name, "tables").ok().map(|(instance, _)| instance.to_owned())
        };
        let names: BTreeSet<_> =
            schemas.iter().filter_map(|schema| instance(&schema.record.name)).collect();
        let instances = names.iter().map(|name| describe_instance(name)).collect();
        Ok(Response::new(ListInstancesResponse { instances, ..Default::default() }))
    }

    async fn get_cluster(
        &self,
        request: Request<GetClusterRequest>,
    ) -> Result<Response<Cluster>, Status> {
        let name = request.into_inner().name;
        match names::below_instance(&name, "clusters")? {
            (instance, CLUSTER) => Ok(Response::new(describe_cluster(instance))),
            _ => Err(Status::not_found(format!("{name} does not exist: there is {CLUSTER}"))),
        }
    }

    async fn list_clusters(
        &self,
        request: Request<ListClustersRequest>,
    ) -> Result<Response<ListClustersResponse>, Status> {
        let instance = request.into_inner().parent;
        names::check_instance(&instance)?;
        let clusters = vec![describe_cluster(&instance)];
        Ok(Response::new(ListClustersResponse { clusters, ..Default::default() }))
    }

    async fn get_app_profile(
        &self,
        request: Request<GetAppProfileRequest>,
    ) -> Result<Response<AppProfile>, Status> {
        let name = request.into_inner().name;
        match names::below_instance(&name, "appProfiles")? {
            (instance, PROFILE) => Ok(Response::new(describe_profile(instance))),
            _ => Err(Status::not_found(format!("{name} does not exist: there is {PROFILE}"))),
        }
    }

    async fn list_app_profiles(
        &self,
        request: Request<ListAppProfilesRequest>,
    ) -> Result<Response<ListAppProfilesResponse>, Status> {
        let instance = request.into_inner().parent;
        names::check_instance(&instance)?;
        let app_profiles = vec![describe_profile(&instance)];
        Ok(Response::new(ListAppProfilesResponse { app_profiles, ..Default::default() }))
    }
}

fn describe_instance(name: &str) -> Instance {
    Instance {
        name: name.to_owned(),
        display_name: name.rsplit('/').next().unwrap_or(name).to_owned(),
        state: instance::State::Ready as i32,
        r#type: instance::Type::Production as i32,
        ..Instance::default()
    }
}

fn describe_cluster(instance: &str) -> Cluster {
    let project = instance.split("/instances/").next().unwrap_or(instance);
    Cluster {
        name: format!("{instance}/clusters/{CLUSTER}"),
        location: format!("{project}/locations/{CLUSTER}"),
        state: cluster::State::Ready as i32,
        serve_nodes: 1,
        default_storage_type: StorageType::Ssd as i32,
        ..Cluster::default()
    }
}

fn describe_profile(instance: &str) -> AppProfile {
    let routing =
        SingleClusterRouting { cluster_id: CLUSTER.to_owned(), allow_transactional_writes: true };
    AppProfile {
        name: format!("{instance}/appProfiles/{PROFILE}"),
        description: "the only profile of this server".to_owned(),
        routing_policy: Some(RoutingPolicy::SingleClusterRouting(routing)),
        ..AppProfile::default()
    }
}

/// The service google.longrunning.Operations. This server finishes every operation before it
/// answers, so there is none to look up.
#[derive(Debug)]
pub(crate) struct Operations;

#[tonic::async_trait]
impl OperationsService for Operations {
    async fn get_operation(
        &self,
        request: Request<GetOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        let name = request.into_inner().name;
        Err(Status::not_found(format!("operation {name} has ended, or never existed")))
    }
}
