//! Describes this process for its status row.

use percolator_core::ProcessInfo;

/// Returns the description of this process in a role, for
/// [`Cluster::process`](crate::cluster::Cluster::process). Needs the feature `cluster`.
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

/// The name of this machine; empty on systems other than Linux.
fn host_name() -> String {
    #[cfg(target_os = "linux")]
    return rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(target_os = "linux"))]
    String::new()
}
