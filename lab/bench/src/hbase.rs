//! Names a namespace for a benchmark over HBase, and puts the cluster's processes into its report.

use bigtable_hbase::HbaseAddress;
use percolator_torture::{ServerProcess, Servers};
use serde_json::{Value, json};

/// The address of a namespace that no other run uses.
pub(crate) fn own_namespace(address: &HbaseAddress, benchmark: &str) -> HbaseAddress {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since_ms = since.unwrap_or_default().as_millis();
    let namespace = format!("{}_{benchmark}_{since_ms}", address.namespace);
    HbaseAddress { namespace, ..address.clone() }
}

/// The cluster's version and processes.
pub(crate) fn servers_json(servers: &Servers) -> Value {
    let one = |of: &ServerProcess| {
        json!({
            "address": of.server.address,
            "process": of.process.id,
            "regions": of.server.regions,
            "has_meta": of.server.has_meta,
        })
    };
    json!({
        "version": servers.version,
        "balancer": servers.balancer,
        "master": one(&servers.master),
        "region_servers": servers.region_servers.iter().map(one).collect::<Vec<_>>(),
    })
}
