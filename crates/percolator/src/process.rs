//! What a process of a cluster says of itself.

use percolator_core::ProcessInfo;

/// This process in this role, as [`Cluster::process`](crate::cluster::Cluster::process) takes it.
/// Needs the feature `cluster`.
///
/// ```
/// let process = percolator::cluster::this_process("loader");
/// assert_eq!((&*process.role, process.pid), ("loader", std::process::id()));
/// ```
pub fn this_process(role: &str) -> ProcessInfo {
    ProcessInfo {
        role: role.to_owned(),
        host: host_name(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// The name of this machine; empty where the system has no such call.
fn host_name() -> String {
    #[cfg(target_os = "linux")]
    return rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(target_os = "linux"))]
    String::new()
}
